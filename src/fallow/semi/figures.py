"""What is drawn of a study: what was recorded along the training, and the histogram of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fallow.report.charts import Axis, frame
from fallow.report.svg import Drawing, group, path, stroke

BINS = 40


def taken(history: Sequence[dict[str, object]], key: str, scale: float = 1.0) -> list[tuple[float, float]]:
    """(epoch, value) of what was recorded under a key.

    >>> taken([{"epoch": 1, "confident": 0.5}, {"epoch": 2}], "confident", 100)
    [(1, 50.0)]
    """
    rows = [(row["epoch"], row[key]) for row in history if isinstance(row.get(key), float)]
    return [(epoch, scale * value) for epoch, value in rows if math.isfinite(value)]  # type: ignore[operator,arg-type,misc]


def histogram(own: np.ndarray, foreign: np.ndarray) -> Drawing:
    """How many unlabelled images have which weight; the foreign ones as an outline, each kind to its own height."""
    both = np.concatenate([own, foreign])
    low, high = float(both.min()), float(both.max())
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    shares = [np.histogram(kind, edges)[0] / max(1, len(kind)) * 100 for kind in (own, foreign)]
    ends = (low, high), (0.0, 1.05 * float(max(share.max() for share in shares)))
    names = [("of this data", "plain"), ("foreign", "worse")] if len(foreign) else []
    made = frame("Weights of the unlabelled images, share in %", Axis("weight"), Axis(), ends, names)
    steps = []
    for share in shares:
        tops = [
            (made.x(float(edge)), made.y(float(height))) for i, height in enumerate(share) for edge in edges[i : i + 2]
        ]
        steps.append([(made.x(low), made.y.start), *tops, (made.x(high), made.y.start)])
    drawn = [group(path(steps[0], "bar", closed=True), class_="plain")]
    if len(foreign):
        drawn.append(stroke(steps[1], "worse"))
    says = f"Weights from {low:.3g} to {high:.3g}, mean {own.mean():.3g}"
    says += f"; of foreign images {foreign.mean():.3g}" if len(foreign) else ""
    return made.drawing(says, *drawn)
