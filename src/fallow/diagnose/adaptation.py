"""``fewshot.html``: what a meta-training gave along the inner steps, and curves before and after adaptation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fallow.base import files
from fallow.data.tasks import Sinusoid, Tasks
from fallow.data.tasks.sinusoid import SPAN, curve
from fallow.report.charts import Axis, Line, lines
from fallow.report.page import Page, Section
from fallow.report.pieces import figure, figures, paragraph, table
from fallow.report.shown import ACCURACY, Shown
from fallow.report.svg import Drawing, beside
from fallow.report.words import capitalised, count, duration, many

CURVES = 4
LOSS = Shown("loss", "loss", share=False, higher=False)
KINDS = {"curve": "quiet", "before": "s3 d2", "after": "plain", "given": "points"}  # of the lines of a fit


def write(folder: Path, result: Any, tasks: Tasks, record: dict[str, Any], command: str = "") -> Path:
    """Write ``steps.svg``, for sinusoids ``fits.svg``, and ``fewshot.html``, whose path is given."""
    drawn = pictures(result, tasks)
    for name, drawing in drawn.items():
        files.write(folder / f"{name}.svg", drawing.file())
    shown, tested = _shown(result.tested), result.tested
    steps = [[str(i), shown.value(step["mean"], 2), _interval(step, shown)] for i, step in enumerate(tested["steps"])]
    unit = f"{capitalised(shown.words)} on the queries of {count(tested['tasks'])} test tasks{shown.unit}."
    if "inductive" in tested:
        alone = tested["inductive"]
        steps.append(["the last, each query on its own", shown.value(alone["mean"], 2), _interval(alone, shown)])
    along = [
        paragraph("Every test task is learned from its support examples alone: step 0 is before."),
        figures([drawn["steps"], _validation(result.history, shown)]),
        table(unit, ["Inner step", "Mean", "95 % interval"], steps),
    ]
    if "inductive" in tested:
        along.append(
            paragraph(
                "The norms take the statistics of all queries of a task together (transductive), as in most published "
                "numbers. In the last row every query is normalised as the support set is (inductive)."
            )
        )
    sections = [Section("Along the inner steps", along)]
    if "fits" in drawn:
        read = "Test curves, the points given, and what the network says before and after adaptation."
        sections.append(Section("Before and after", [paragraph(read), figure(drawn["fits"])]))
    data = record["data"]
    kind = f"{data['ways']}-way {data['shots']}-shot" if "ways" in data else f"{data['shots']}-shot"
    page = Page(
        title=f"{data['name']}: {kind} tasks by {record['method']}",
        verb="fallow fewshot",
        sentence=sentence(tested, str(record["method"])),
        sections=sections,
        facts=[str(record["model"]), many(result.steps, "iteration"), duration(result.seconds)],
        command=command,
        notes=record["notes"],
        settings=record["settings"],
        versions=record["versions"],
        beside={f"{name}.svg": "the figure" for name in drawn} | {"result.json": "every number"},
    )
    return page.write(folder / "fewshot.html")


def sentence(tested: dict[str, Any], method: str) -> str:
    """What adaptation brings, in words."""
    shown = _shown(tested)
    first, last = tested["steps"][0], tested[shown.name]
    said = f"{method} learns new tasks to a test {shown.words} of {shown.full(last['mean'], 2)}"
    if last["low"] is not None:
        said += f" (95 % interval {_interval(last, shown)}, {many(tested['tasks'], 'task')})"
    inner = len(tested["steps"]) - 1
    before = f", from {shown.full(first['mean'], 2)} before its {many(inner, 'inner step')}" if inner else ""
    return said + before + "."


def pictures(result: Any, tasks: Tasks) -> dict[str, Drawing]:
    """By name: ``steps``, and ``fits`` for sinusoids."""
    found = {"steps": _steps(result.tested)}
    if isinstance(tasks, Sinusoid) and hasattr(result.model, "adapt"):
        found["fits"] = _fits(result.model, tasks)
    return found


def _shown(tested: dict[str, Any]) -> Shown:
    return ACCURACY if "accuracy" in tested else LOSS


def _interval(step: dict[str, Any], shown: Shown) -> str:
    return "–" if step["low"] is None else f"{shown.value(step['low'], 2)} to {shown.value(step['high'], 2)}"


def _steps(tested: dict[str, Any]) -> Drawing:
    shown, steps = _shown(tested), tested["steps"]
    points = [(float(i), shown.factor * step["mean"]) for i, step in enumerate(steps)]
    known = all(step["low"] is not None for step in steps)
    band = [(shown.factor * step["low"], shown.factor * step["high"]) for step in steps] if known else None
    title = f"Query {shown.axis()}, mean and 95 % interval"
    made = lines(title, [Line("mean", points, band=band, dotted=True)], Axis("inner step", counts=True))
    assert made is not None
    return made


def _validation(history: list[dict[str, Any]], shown: Shown) -> Drawing | None:
    """What validation tasks said along meta-training."""
    key = f"val_{shown.name}"
    points = [(float(i), shown.factor * row[key]) for i, row in enumerate(history, 1) if row.get(key) is not None]
    axis = Axis("look at validation task", counts=True)
    return lines(f"Validation {shown.axis()} along meta-training", [Line("validation", points)], axis)


def _fits(learner: Any, tasks: Sinusoid) -> Drawing:
    """Test curves, the points given, and what the network says before and after adaptation (figures D and E)."""
    rows = tasks._rows("test", 0, CURVES, None)
    device = next(learner.parameters()).device
    x, y, _, _ = tasks.batch("test", rows, device)
    grid = torch.linspace(-SPAN, SPAN, 100, device=device).view(1, -1, 1).expand(CURVES, -1, -1)
    truth = curve(rows[0].to(device), grid)
    before, after = learner.adapt(x, y, steps=0)(grid), learner.adapt(x, y)(grid)
    panels = []
    for i in range(CURVES):
        found = {"given": (x, y), "after": (grid, after), "before": (grid, before), "curve": (grid, truth)}
        drawn = [Line(name, _pairs(a[i], b[i]), KINDS[name]) for name, (a, b) in found.items()]
        panel = lines("", drawn, Axis(limits=(-SPAN, SPAN)), size=(310, 190), named=False)
        assert panel is not None
        panels.append(panel)
    head = "Test curves before and after adaptation"
    return beside(panels, 2, head, f"{head}: {CURVES} of them, with the points given", list(KINDS.items()))


def _pairs(x: torch.Tensor, y: torch.Tensor) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in torch.cat([x[:, :1], y[:, :1]], 1).tolist()]
