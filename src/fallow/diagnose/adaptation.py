"""Pictures of a meta-training: accuracy (or loss) along the inner steps, and curves before and after adaptation."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch

from fallow.data.tasks import Sinusoid, Tasks
from fallow.data.tasks.sinusoid import SPAN, curve
from fallow.diagnose.figures import INK, styled

BLUE, RED = "#4477aa", "#cc6677"  # legible on white and on black
CURVES = 4


def pictures(result: Any, tasks: Tasks) -> dict[str, str]:
    """SVGs by name: ``steps``, and ``fits`` for sinusoids."""
    found = {"steps": draw(lambda figure: _steps(figure, result.tested))}
    if isinstance(tasks, Sinusoid) and hasattr(result.model, "adapt"):
        found["fits"] = draw(lambda figure: _fits(figure, result.model, tasks))
    return found


def draw(paint: Callable[[Any], None]) -> str:
    """An SVG; the same numbers give the same bytes."""
    from matplotlib import pyplot

    with styled():
        figure = pyplot.figure(figsize=(6.4, 3.4), layout="constrained")
        paint(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return written.getvalue()


def _steps(figure: Any, tested: dict[str, Any]) -> None:
    axes = figure.subplots()
    means = [step["mean"] for step in tested["steps"]]
    axes.plot(means, color=BLUE, marker="o", markersize=3)
    if tested["steps"][0]["low"] is not None:
        axes.fill_between(
            range(len(means)), [s["low"] for s in tested["steps"]], [s["high"] for s in tested["steps"]],
            color=BLUE, alpha=0.2, linewidth=0,
        )  # fmt: skip
    axes.set_xlabel("inner step")
    axes.set_ylabel("query accuracy" if "accuracy" in tested else "query loss")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _fits(figure: Any, learner: Any, tasks: Sinusoid) -> None:
    """Test curves, the points given, and what the network says before and after adaptation (figures D and E)."""
    rows = tasks._rows("test", 0, CURVES, None)
    device = next(learner.parameters()).device
    x, y, _, _ = tasks.batch("test", rows, device)
    grid = torch.linspace(-SPAN, SPAN, 200, device=device).view(1, -1, 1).expand(CURVES, -1, -1)
    truth = curve(rows[0].to(device), grid)
    before, after = learner.adapt(x, y, steps=0)(grid), learner.adapt(x, y)(grid)
    for i, axes in enumerate(figure.subplots(2, CURVES // 2, sharex=True, sharey=True).flat):
        line = grid[i, :, 0].cpu()
        axes.plot(line, truth[i, :, 0].cpu(), color=INK, linewidth=1, label="curve")
        axes.plot(line, before[i, :, 0].cpu(), color=BLUE, linestyle=":", label="before")
        axes.plot(line, after[i, :, 0].cpu(), color=RED, label="after")
        axes.plot(x[i, :, 0].cpu(), y[i, :, 0].cpu(), "^", color=INK, markersize=4, label="given")
    figure.legend(*axes.get_legend_handles_labels(), ncols=4, loc="outside lower center")
