"""Figures A to C and G of L2F's supplement, from what a :class:`~fallow.diagnose.watch.Watch` has seen."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.diagnose.figures import COLOURS, look, styled

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


def draw(figures: str, seen: Mapping[str, Looks]) -> str:
    """An SVG of figures A, B, C, G, or of several of them ("ABCG"), with a line for each of the trainings.

    The same records give the same bytes.
    """
    from matplotlib import pyplot

    for letter in figures:
        if letter not in (*FIGURES, "G"):
            raise unknown("figure", letter, (*FIGURES, "G"))
    if not figures or not seen or not all(seen.values()):
        raise RequestError("nothing has been seen yet: train with observer=Watch() first")
    with styled():
        size = (6.4 if figures == "G" else 10, 3.2 * len(figures))
        drawn = pyplot.figure(figsize=size, layout="constrained")
        for letter, part in zip(figures, drawn.subfigures(len(figures), 1, squeeze=False)[:, 0], strict=True):
            if letter == "G":
                _conflict(part.subplots(), seen)
                continue
            which, title = FIGURES[letter]
            _landscape(part.subplots(1, len(PANELS)), seen, which)
            part.suptitle(title, fontsize=10)
        written = io.StringIO()
        drawn.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(drawn)
    return written.getvalue()


def _landscape(panels: Any, seen: Mapping[str, Looks], which: str) -> None:
    for axes, (measure, label) in zip(panels, PANELS.items(), strict=True):
        for i, (name, looks) in enumerate(seen.items()):
            known = [(one["iteration"], one[which][measure]) for one in looks if one[which] is not None]
            if not known:
                raise RequestError(f"{name} saw no tasks of meta-validation: give val_tasks above 0")
            axes.plot(*zip(*known, strict=True), label=name, **look(i))
        axes.set_xlabel("meta-iteration")
        axes.set_title(label, fontsize=9)
        axes.set_ylim(bottom=0)
    panels[0].legend()


def _conflict(axes: Any, seen: Mapping[str, Looks]) -> None:
    for i, (name, looks) in enumerate(seen.items()):
        at = [one["iteration"] for one in looks]
        for which, line in (("between", "-"), ("within", "--")):
            found = [one["conflict"][which] for one in looks]
            where = "between tasks" if which == "between" else "within a task"
            axes.plot(at, [f["value"] for f in found], label=f"{name}, {where}", **look(i) | {"linestyle": line})
            low, high = ([f[end] for f in found] for end in ("low", "high"))
            axes.fill_between(at, low, high, color=COLOURS[i % len(COLOURS)], alpha=0.12, lw=0)
    axes.set_xlabel("meta-iteration")
    axes.set_ylabel("degree of conflict: 1 − mean cosine")
    axes.legend()
