"""A table of a paper with our numbers beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from markupsafe import Markup

from fallow.report.intervals import Bar, forest
from fallow.report.shown import PLAIN
from fallow.report.svg import Drawing


@dataclass
class Cell:
    """One number of the paper and ours: mean and standard deviation over the seeds; ``paper`` may be absent."""

    row: str
    column: str
    paper: float | None
    ours: float
    spread: float
    seeds: int
    agrees: bool | None  # None where there is nothing to agree with

    def shown(self, unit: str) -> str:
        """Ours, with its deviation where there are several seeds."""
        digits = 1 if unit == "%" else 3
        return f"{self.ours:.{digits}f}" + (f" ± {self.spread:.{digits}f}" if self.seeds > 1 else "")


def cell(row: str, column: str, paper: float | None, values: Sequence[float], tolerance: float) -> Cell:
    """A cell from our values; it agrees within the tolerance, or within two standard errors of ours.

    >>> cell("LW", "1.0", 72.3, [70.0, 74.0], tolerance=3).agrees
    True
    """
    ours = statistics.mean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    slack = max(tolerance, 2 * spread / len(values) ** 0.5)
    agrees = None if paper is None else abs(ours - paper) <= slack
    return Cell(row, column, paper, round(ours, 4), round(spread, 4), len(values), agrees)


@dataclass
class Table:
    """The cells of a table, remarks, and the significance tests that belong to it."""

    name: str
    paper: str
    cells: list[Cell]
    unit: str = "%"
    remarks: list[str] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    log: bool = False  # the figure's axis
    failed: dict[str, str] = field(default_factory=dict)  # runs that are missing, and why
    command: str = ""  # what printed it
    measured: str = ""  # with which version
    seconds: float = 0.0  # of all its runs, one after another

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def grid(self) -> list[list[str]]:
        """The head of the table, and its rows."""
        columns = list(dict.fromkeys(c.column for c in self.cells))
        rows = list(dict.fromkeys(c.row for c in self.cells))
        at = {(c.row, c.column): c for c in self.cells}
        return [["", *columns], *([row, *(self._show(at.get((row, column))) for column in columns)] for row in rows)]

    @property
    def said(self) -> str:
        """What a cell says of ours."""
        return "ours ± deviation" if any(c.seeds > 1 for c in self.cells) else "ours, of one seed"

    def __str__(self) -> str:
        grid = self.grid()
        widths = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in grid
        ]
        known = [c for c in self.cells if c.agrees is not None]
        marks = "; = agrees, ≠ does not" if known else ""
        lines += ["", f"{self.paper}: {self.said} (paper), in {self.unit}{marks}"]
        agreed = [f"{sum(bool(c.agrees) for c in known)} of {len(known)} cells agree"] if known else []
        lines += [*agreed, *self.remarks]
        lines += [f"{test['claim']}: p = {test['p']:.2g}, {test['p_holm']:.2g} after Holm" for test in self.tests]
        lines += [f"failed, {name}: {reason}" for name, reason in self.failed.items()]
        return "\n".join(lines)

    def _show(self, found: Cell | None) -> str:
        if found is None:
            return ""
        mark = {None: "", True: " =", False: " ≠"}[found.agrees]
        paper = "" if found.paper is None else f" ({found.paper:g}){mark}"
        return f"{found.shown(self.unit)}{paper}"

    def drawings(self) -> list[Drawing]:
        """A figure for every column: our numbers with their deviation, the paper's as open marks."""
        drawn = []
        for column in dict.fromkeys(c.column for c in self.cells):
            mine = [c for c in self.cells if c.column == column and math.isfinite(c.ours)]
            bars = [
                Bar(
                    c.row, c.ours, c.ours - c.spread, c.ours + c.spread, [],
                    "differs" if c.agrees is False else "plain", self._show(c), c.paper,
                )
                for c in mine
            ]  # fmt: skip
            says = f"{column}, in {self.unit}: " + "; ".join(f"{bar.label} {bar.words}" for bar in bars)
            kind = "log" if self.log else "linear"
            if bars:
                drawn.append(forest(bars, column, f"in {self.unit}", says, shown=PLAIN, kind=kind))
        return drawn

    def more(self) -> list[Markup]:
        """What the page shows besides."""
        return []
