"""A figure of a paper: the table it is drawn from, and lines."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.report.charts import Axis, Line, lines
from fallow.report.style import series
from fallow.report.svg import Drawing
from fallow.reproduce.table import Table


@dataclass
class Curves(Table):
    """Rows are curves, columns are the numbers along the axis; deviations are drawn as bands around the curves."""

    along: str = ""  # what the columns are
    log_x: bool = False
    log_y: bool = False

    def drawings(self) -> list[Drawing]:
        """One figure, a line for each row."""
        drawn = []
        for i, row in enumerate(dict.fromkeys(c.row for c in self.cells)):
            mine = [c for c in self.cells if c.row == row]
            points = [(float(c.column.split("×")[-1]), c.ours) for c in mine]
            band = [(c.ours - c.spread, c.ours + c.spread) for c in mine]
            drawn.append(Line(row, points, series(i), band, dotted=True))
        whole = not self.log_x and all(c.column.isdigit() for c in self.cells)
        x = Axis(self.along, "log" if self.log_x else "linear", counts=whole)
        y = Axis(f"in {self.unit}", "log" if self.log_y else "linear")
        made = lines(self.paper, drawn, x, y, size=(640, 340))
        return [made] if made else []
