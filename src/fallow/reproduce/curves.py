"""A figure of a paper: the table it is drawn from, and lines instead of bars."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fallow.reproduce.table import Table


@dataclass
class Curves(Table):
    """Rows are curves, columns are the numbers along the axis; spreads are drawn as bars around the points."""

    along: str = ""  # what the columns are
    log_x: bool = False
    log_y: bool = False

    def draw(self, path: Path) -> None:
        """A figure: one line a row."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
        marks = "os^Dv<>Pp*X"
        for i, row in enumerate(dict.fromkeys(c.row for c in self.cells)):
            mine = [c for c in self.cells if c.row == row]
            places = [float(c.column.split("×")[-1]) for c in mine]
            axes.errorbar(
                places, [c.ours for c in mine], yerr=[c.spread for c in mine], label=row, linewidth=1.2,
                marker=marks[i % len(marks)], markersize=4,
            )  # fmt: skip
        if self.log_x:
            axes.set_xscale("log")
        if self.log_y:
            axes.set_yscale("log")
        axes.set_xlabel(self.along)
        axes.set_ylabel(f"in {self.unit}")
        axes.set_title(self.paper, fontsize=9)
        axes.legend(fontsize=7, ncols=2)
        figure.savefig(path)
        pyplot.close(figure)
