"""Figures A to C and G of L2F's supplement, from what a :class:`~fallow.diagnose.watch.Onlooker` has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.report.charts import Axis, Line, lines
from fallow.report.style import series
from fallow.report.svg import Drawing, beside

Looks = Sequence[Mapping[str, Any]]  # of one training, each as `Seen.describe` has it

FIGURES = {  # which landscape, and what it is of
    "A": ("train", "fast adaptation to tasks of meta-training"),
    "B": ("val", "fast adaptation to tasks of meta-validation"),
    "C": ("meta", "learning the initialisation"),
}
PANELS = {
    "variation": "variation of the loss",
    "difference": "difference of gradients",
    "smoothness": "effective β-smoothness",
}
ITERATIONS = Axis("meta-iteration", counts=True)


def draw(figures: str, seen: Mapping[str, Looks]) -> list[Drawing]:
    """Figures A, B, C, G, or several of them ("ABCG"), with a line for each of the trainings."""
    for letter in figures:
        if letter not in (*FIGURES, "G"):
            raise unknown("figure", letter, (*FIGURES, "G"))
    if not figures or not seen or not all(seen.values()):
        raise RequestError("nothing has been seen yet: train with observer=Onlooker() first")
    return [_conflict(seen) if letter == "G" else _landscape(seen, *FIGURES[letter]) for letter in figures]


def _landscape(seen: Mapping[str, Looks], which: str, title: str) -> Drawing:
    panels = []
    for measure, label in PANELS.items():
        drawn = []
        for i, (name, looks) in enumerate(seen.items()):
            known = [(float(one["iteration"]), float(one[which][measure])) for one in looks if one[which] is not None]
            if not known:
                raise RequestError(f"{name} saw no tasks of meta-validation: give val_tasks above 0")
            drawn.append(Line(name, known, series(i)))
        most = max(value for line in drawn for _, value in line.points)
        panel = lines(label, drawn, ITERATIONS, Axis(limits=(0.0, 1.05 * most or 1.0)), size=(300, 220), named=False)
        assert panel is not None
        panels.append(panel)
    says = f"{title}: " + ". ".join(panel.says for panel in panels)
    return beside(panels, 3, title, says, [(name, series(i)) for i, name in enumerate(seen)])


def _conflict(seen: Mapping[str, Looks]) -> Drawing:
    drawn = []
    for i, (name, looks) in enumerate(seen.items()):
        for dash, (which, where) in enumerate({"between": "between tasks", "within": "within a task"}.items()):
            found = [(one["iteration"], one["conflict"][which]) for one in looks]
            points = [(float(at), float(conflict["value"])) for at, conflict in found]
            band = [(float(conflict["low"]), float(conflict["high"])) for _, conflict in found]
            drawn.append(Line(f"{name}, {where}", points, series(i, dash), band))
    made = lines("degree of conflict: 1 − mean cosine", drawn, ITERATIONS, size=(640, 300))
    assert made is not None
    return made
