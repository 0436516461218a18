"""``fewshot.html`` of a policy: returns along the inner steps and along training, and where it went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fallow.base import files
from fallow.report.charts import Axis, Line, lines
from fallow.report.page import Page, Section
from fallow.report.pieces import figure, figures, paragraph, table
from fallow.report.style import series
from fallow.report.svg import Drawing, beside
from fallow.report.words import count, duration, many, number

KINDS = {"before": "quiet", "after": "plain", "goal": "points"}  # of what is drawn of a task
PANEL = (300.0, 280.0)


def write(folder: Path, result: Any, record: dict[str, Any], command: str = "") -> Path:
    """Write ``steps.svg``, ``training.svg``, for navigation ``trajectories.svg``, and ``fewshot.html``: its path."""
    places, data = result.tested["places"], record["data"]
    drawn = {"steps": along_steps(places), "training": along_training(result.history)}
    if data["name"] == "navigation":
        drawn["trajectories"] = trajectories(result.paths)
    made = {name: drawing for name, drawing in drawn.items() if drawing is not None}
    for name, drawing in made.items():
        files.write(folder / f"{name}.svg", drawing.file())
    rows = [
        [str(step), *(_interval(found[step]) for found in places.values())] for step in range(len(result.returns()))
    ]
    caption = f"Mean return of {count(result.tested['tasks'])} test tasks with its 95 % interval."
    read = "Before every inner step the policy acts, and learns from what it met: step 0 is before."
    sections = [
        Section(
            "Along the inner steps",
            [paragraph(read), figures([made["steps"], made.get("training")]),
             table(caption, ["Inner step", *places], rows)],
        )
    ]  # fmt: skip
    if "trajectories" in made:
        seen = (
            "A few test tasks, a colour for each: a trajectory of the policy before adaptation, one after its last "
            "step, and the goal."
        )
        sections.append(Section("Before and after", [paragraph(seen), figure(made["trajectories"])]))
    page = Page(
        title=f"{data['name']}: learning to act by {record['method']}",
        verb="fallow fewshot",
        sentence=sentence(result, str(record["method"])),
        sections=sections,
        facts=[str(record["model"]), many(result.steps, "iteration"), duration(result.seconds)],
        command=command,
        notes=record["notes"],
        settings=record["settings"],
        versions=record["versions"],
        beside={f"{name}.svg": "the figure" for name in made} | {"result.json": "every number"},
    )
    return page.write(folder / "fewshot.html")


def sentence(result: Any, method: str) -> str:
    """What adaptation brings, in words."""
    steps = result.returns()
    inner = min(result.tested["trained_steps"], len(steps) - 1)
    first, last = steps[0], steps[inner]
    said = f"{method} gets a return of {number(last.mean)} in new tasks after {many(inner, 'inner step')}"
    if last.low is not None:
        said += f" (95 % interval {number(last.low)} to {number(last.high)}, {many(result.tested['tasks'], 'task')})"
    return f"{said}, from {number(first.mean)} before."


def along_steps(places: dict[str, list[dict[str, Any]]]) -> Drawing:
    """Returns in every place along the inner steps."""
    curves = []
    for i, (place, steps) in enumerate(places.items()):
        band = [(step["low"], step["high"]) for step in steps] if steps[0]["low"] is not None else None
        points = [(float(step), found["mean"]) for step, found in enumerate(steps)]
        curves.append(Line(place, points, series(i), band, dotted=True))
    made = lines("Return, mean and 95 % interval", curves, Axis("inner step", counts=True))
    assert made is not None
    return made


def along_training(history: Sequence[dict[str, Any]]) -> Drawing | None:
    """Returns of training and validation tasks along meta-training."""
    names = {
        "val_return": "validation, after",
        "train_return": "training, after",
        "train_return_before": "training, before",
    }
    curves = [
        Line(words, [(float(i), row[key]) for i, row in enumerate(history, 1) if row.get(key) is not None], series(i))
        for i, (key, words) in enumerate(names.items())
    ]
    return lines("Return along meta-training", curves, Axis("look at validation tasks", counts=True))


def trajectories(paths: dict[str, tuple[Tensor, Tensor]]) -> Drawing:
    """A panel for every place: a trajectory of a few tasks before adaptation and after it, and the goal (figure F)."""
    panels = []
    for place, (tasks, seen) in paths.items():
        goals = [Line("goal", [goal], series(i), dotted=True) for i, goal in enumerate(_pairs(tasks[:, :2]))]
        after = [Line("after", _pairs(walked[0]), series(i)) for i, walked in enumerate(seen[-1])]
        before = [Line("before", _pairs(walked[0]), KINDS["before"]) for walked in seen[0]]
        drawn = [*goals, *after, *before]
        values = [value for line in drawn for point in line.points for value in point]
        ends = min(values) - 0.1, max(values) + 0.1
        panel = lines(place, drawn, Axis(limits=ends), Axis(limits=ends), size=PANEL, named=False)
        assert panel is not None
        panels.append(panel)
    head = "Trajectories before and after adaptation"
    return beside(panels, 2, head, f"{head}, in {many(len(paths), 'place')}", list(KINDS.items()))


def _pairs(points: Tensor) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points.tolist()]


def _interval(step: dict[str, Any]) -> str:
    mean = number(step["mean"])
    return mean if step["low"] is None else f"{mean} ({number(step['low'])} to {number(step['high'])})"
