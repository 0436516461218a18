"""The report of a comparison: one page to open offline, the numbers as CSV, the figures as SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.base import files
from fallow.comparison.findings import Findings, Outcome
from fallow.comparison.report import page, tables
from fallow.comparison.report.sections import Section, section
from fallow.comparison.report.svg import Drawing

if TYPE_CHECKING:
    from fallow.comparison.best import Best
    from fallow.diagnose.run import Diagnosis

OURS = re.compile(r"(.+-)?(ranking|to-control|to-normal|cost|curves|confusion)\.svg")


@dataclass(frozen=True)
class About:
    """What the report says of the comparison besides its results."""

    title: str
    command: str  # repeats it
    plan: dict[str, Any]
    versions: dict[str, Any]
    notes: list[str]  # sentences on the data: skipped, resized
    budget: str  # what is equal: "passes" or "steps"
    seconds: float  # the whole comparison


def write(
    folder: Path,
    findings: Findings,
    outcomes: Sequence[Outcome],
    best: Best | None,
    about: About,
    diagnosis: Diagnosis | None = None,
) -> Path:
    """Write report.html, results.csv, summary.csv and figures/ into the comparison's folder; the page's path."""
    several = len(findings.settings) > 1
    sections = [
        section(folder, setting, outcomes, f"s{i}" if several else "s")
        for i, setting in enumerate(findings.settings, 1)
    ]
    drawings = {_prefix(made, several) + name: d for made in sections for name, d in made.files.items()}
    if best is not None and (heat := page.heat_map(best)) is not None:
        drawings["confusion"] = heat
    _write_figures(folder / "figures", drawings)
    files.write(folder / "results.csv", tables.results(outcomes))
    files.write(folder / "summary.csv", tables.summary(findings))
    report = folder / "report.html"
    files.write(report, page.render(findings, sections, outcomes, best, about, diagnosis))
    return report


def _prefix(made: Section, several: bool) -> str:
    """The start of a file's name: the number keeps settings apart whose names are alike once they are harmless."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{made.setting.data}-{made.setting.model}").strip("-")[:60]
    return f"{made.anchor[1:]}-{name}-" if several else ""


def _write_figures(folder: Path, drawings: dict[str, Drawing]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        files.write(folder / f"{name}.svg", drawing.file())
    for path in folder.iterdir():  # of an earlier report that had more to show
        if OURS.fullmatch(path.name) and path.stem not in drawings:
            path.unlink()
