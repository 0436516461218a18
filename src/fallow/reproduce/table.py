"""A table of a paper with our numbers beside it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


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

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def __str__(self) -> str:
        columns = list(dict.fromkeys(c.column for c in self.cells))
        rows = list(dict.fromkeys(c.row for c in self.cells))
        at = {(c.row, c.column): c for c in self.cells}
        grid = [["", *columns], *([row, *(self._show(at.get((row, column))) for column in columns)] for row in rows)]
        widths = [max(len(line[i]) for line in grid) for i in range(len(columns) + 1)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in grid
        ]
        known = [c for c in self.cells if c.agrees is not None]
        marks = "; = agrees, ≠ does not" if known else ""
        lines += ["", f"{self.paper}: ours ± deviation (paper), in {self.unit}{marks}"]
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
        digits = 1 if self.unit == "%" else 3
        return f"{found.ours:.{digits}f} ± {found.spread:.{digits}f}{paper}"

    def draw(self, path: Path) -> None:
        """A figure: our numbers with their spread as bars, the paper's as marks."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        columns = list(dict.fromkeys(c.column for c in self.cells))
        rows = list(dict.fromkeys(c.row for c in self.cells))
        figure, axes = pyplot.subplots(figsize=(1.5 + 0.32 * len(self.cells), 3.6), layout="constrained")
        width = 0.8 / len(rows)
        for i, row in enumerate(rows):
            mine = [(columns.index(c.column), c) for c in self.cells if c.row == row]
            places = [place + (i - (len(rows) - 1) / 2) * width for place, _ in mine]
            ours, spread = [c.ours for _, c in mine], [c.spread for _, c in mine]
            axes.bar(places, ours, width * 0.9, yerr=spread, label=row, error_kw={"linewidth": 0.8})
            known = [(place, c.paper) for place, (_, c) in zip(places, mine, strict=True) if c.paper is not None]
            axes.scatter([x for x, _ in known], [y for _, y in known], marker="_", s=90, color="black", zorder=3)
        if self.log:
            axes.set_yscale("log")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_ylabel(f"in {self.unit}")
        axes.set_title(f"{self.paper} (bars: ours, black marks: the paper)", fontsize=9)
        axes.legend(fontsize=7, ncols=2)
        figure.savefig(path)
        pyplot.close(figure)
