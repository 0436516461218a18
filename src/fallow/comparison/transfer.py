"""What every method's features are worth on other data: a column and a verdict beside those of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fallow.data import load
from fallow.report.page import Section
from fallow.transfers.backbones import Backbone
from fallow.transfers.page import section
from fallow.transfers.transfer import Transfer, probed, transfer

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison

FOLDER = "transfer"  # in the comparison's: features, by content, and what was found


def check(to: Sequence[str]) -> None:
    """Refuse, before anything is trained, data that features cannot be probed on."""
    if to:
        probed([load(source).target.kind for source in to], to)


def transferred(comparison: Comparison, to: Sequence[str], **how: Any) -> dict[str, Transfer]:
    """A linear probe of every method's networks on other data, by the name of each setting, a data set with a model.

    ``how`` is for :func:`fallow.transfer`: ``engine``, ``address``, ``workers``, ``device``.
    """
    found = {}
    for setting in comparison.findings().settings:
        done = [each for each in map(comparison.named, comparison.entries.values()) if each.reason is None]
        networks = [
            Backbone(
                each.method, str((comparison.folder / each.folder).resolve()), comparison.plan.score, each.seed,
                each.method, each.model, each.data,
            )
            for each in done
            if (each.data, each.model) == (setting.data, setting.model)
        ]  # fmt: skip
        if networks:
            found[setting.name] = transfer(
                networks, list(to), models=[setting.model], out=comparison.folder / FOLDER, **how
            )
    return found


def columns(found: Transfer | None, method: str) -> dict[str, str]:
    """The accuracy (or R²) of a method's features on each data set, with its verdict against the control."""
    if found is None:
        return {}
    entries = {column: [e for e in found.findings.of(column) if e.row == method] for column in found.findings.columns}
    return {
        f"probe of {column}": "".join(
            found.findings.shown.full(e.estimate.mean) + (f" ({e.verdict})" if e.verdict else "") for e in here
        )
        for column, here in entries.items()
    }


def sections(found: dict[str, Transfer]) -> list[Section]:
    """For the report: a table and a figure for every setting and data set."""
    made = []
    for name, each in found.items():
        for column in each.findings.columns:
            one = section(each.findings, column)
            title = one.title if len(found) == 1 else f"{name}, {one.title}"
            made.append(Section(f"Transfer to {title}", one.body, "", f"Transfer to {column}"))
    return made
