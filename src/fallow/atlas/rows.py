"""What an atlas knows: a line for every method in every setting, in one file that everything else is made from."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.base import files
from fallow.base.errors import RequestError

if TYPE_CHECKING:
    from fallow.atlas.sites import Site
    from fallow.comparison.findings import Findings
    from fallow.comparison.run import Comparison

LATER = ("first", "exploratory")  # columns that an older file does not have
SCRATCH, PRETRAINED = "scratch", "pretrained"
YARDSTICK = "yardstick"


@dataclass(frozen=True)
class Judgement:
    """One method in one setting: a data set, so many labels, and where training starts."""

    data: str
    labels: int
    start: str  # "scratch" or "pretrained"
    model: str
    method: str
    verdict: str  # against the controls of equal compute; "failed": it does not apply
    seeds: int
    mean: float | None  # test accuracy, as all shares from 0 to 1
    training: float | None  # accuracy on training examples at the end
    difference: float | None  # to the best control on validation
    low: float | None
    high: float | None
    p: float | None  # sequential, after Holm's correction over the methods of the setting
    classes: int
    channels: int
    values: int  # pixels or features
    seconds: float | None  # of a run
    tuned: int  # trials of settings that each runner had; 0: none
    measured: str  # by which version
    first: float | None = None  # the mean at the first look, which all methods ran; None: of before it was kept
    exploratory: bool = False  # it was asked after a look at results, and the guarantee does not cover it

    @property
    def fair(self) -> float | None:
        """The accuracy to compare with others of the setting: who ran on after the first look depends on the scores."""
        return self.mean if self.first is None else self.first

    @property
    def setting(self) -> tuple[str, int, str]:
        """Which column of the matrix it belongs to."""
        return self.data, self.labels, self.start


def gathered(site: Site, comparison: Comparison, findings: Findings) -> list[Judgement]:
    """The rows of a comparison and what was found by it."""
    from fallow.comparison.findings import at_first_look
    from fallow.core.record import versions
    from fallow.models import starts_trained

    data = next(iter(comparison.loaded.values()))
    shape = data.shape
    known: dict[str, Any] = {
        "data": site.data,
        "labels": data.describe()["sizes"]["train"],
        "classes": len(data.classes),
        "channels": shape[0] if len(shape) > 1 else 1,
        "values": math.prod(shape[1:] or shape),
        "tuned": comparison.plan.tune,
        "measured": f"fallow {versions()['fallow']}",
    }
    found = []
    for setting in findings.settings:
        start = PRETRAINED if starts_trained(setting.model) else SCRATCH
        first = at_first_look(setting)
        for row in setting.rows:
            against = row.to_control.difference if row.to_control is not None else None
            found.append(
                Judgement(
                    start=start,
                    model=setting.model,
                    method=row.method,
                    verdict=row.verdict,
                    seeds=len(row.scores),
                    mean=row.estimate.mean if row.estimate else None,
                    training=row.training,
                    difference=against.mean if against else None,
                    low=against.low if against else None,
                    high=against.high if against else None,
                    p=row.standing.p if row.standing else None,
                    seconds=row.seconds,
                    first=first.get(row.method),
                    exploratory=row.exploratory,
                    **known,
                )
            )
    for learner in comparison.yardsticks:
        start = SCRATCH if learner.network is None else PRETRAINED
        found.append(
            Judgement(
                start=start,
                model="",
                method=learner.name,
                verdict=YARDSTICK,
                seeds=len(learner.test),
                mean=learner.mean,
                training=None,
                difference=None,
                low=None,
                high=None,
                p=None,
                seconds=None,
                **known,
            )
        )
    return found


def text(rows: Iterable[Judgement]) -> bytes:
    """As CSV; six digits are more than any seed moves."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Judgement)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: round(v, 6) if isinstance(v, float) else v for key, v in asdict(row).items()})
    return out.getvalue().encode()


def read(path: Path) -> list[Judgement]:
    """The rows of a file."""
    kinds = {field.name: str(field.type) for field in fields(Judgement)}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [
                Judgement(
                    **{key: _value(line[key], kind) for key, kind in kinds.items() if key in line or key not in LATER}
                )
                for line in csv.DictReader(file)
            ]
    except (OSError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is not an atlas ({error}): give the atlas.csv of one") from error


def write(path: Path, rows: Sequence[Judgement]) -> None:
    """Write them, whole or not at all."""
    files.write(path, text(rows))


def _value(text: str, kind: str) -> Any:
    if not text and "None" in kind:
        return None
    if kind == "bool":
        return text == "True"
    return int(text) if kind == "int" else float(text) if kind.startswith("float") else text
