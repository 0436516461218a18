"""The figures of the page: lines over the training, and the histogram of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fallow.comparison.report.svg import EM, Drawing, Scale, group, line, path, tag, text, window

WIDTH, HEIGHT, LEFT, TOP = 420.0, 230.0, 44.0, 40.0
BINS = 40
COLOURS = {"curve": "plain", "control": "quiet", "third": "worse"}


class Line(NamedTuple):
    """A curve: (epoch, value) and perhaps how far around it others lie."""

    name: str
    points: list[tuple[float, float]]
    kind: str = "curve"  # or "control", dashed; or "third"
    spread: list[float] | None = None


def taken(history: Sequence[dict[str, object]], key: str, scale: float = 1.0) -> list[tuple[float, float]]:
    """(epoch, value) of what was recorded under a key.

    >>> taken([{"epoch": 1, "confident": 0.5}, {"epoch": 2}], "confident", 100)
    [(1, 50.0)]
    """
    rows = [(row["epoch"], row[key]) for row in history if isinstance(row.get(key), float)]
    return [(epoch, scale * value) for epoch, value in rows if math.isfinite(value)]  # type: ignore[operator,arg-type,misc]


def lines(title: str, drawn: Sequence[Line], limits: tuple[float, float] | None = None) -> Drawing | None:
    """Curves over the epochs, named above; None where there is nothing to draw."""
    drawn = [one for one in drawn if one.points]
    if not drawn:
        return None
    low, high = limits or spanned(drawn)
    last = max(epoch for one in drawn for epoch, _ in one.points)
    right, bottom = WIDTH - 10, HEIGHT - 34
    x, y = Scale(0, last, LEFT, right), Scale(low, high, bottom, TOP)
    pieces = [text(8, 15, title, "name", limit=58), *_axes(x, y, right, bottom)]
    ticks = [t for t in x.ticks(5) if t == int(t)]
    pieces += [text(min(x(t), right - 6), bottom + 15, f"{t:g}", "soft", "middle") for t in ticks]
    pieces.append(text((LEFT + right) / 2, HEIGHT - 4, "epoch", "soft", "middle"))
    inside: list[Markup] = []
    bands: list[Markup] = []
    at = LEFT
    for one in drawn:
        points = [(x(epoch), y(value)) for epoch, value in one.points]
        if one.spread is not None:
            around = list(zip(one.points, one.spread, strict=True))
            edge = [(x(e), y(v - s)) for (e, v), s in around] + [(x(e), y(v + s)) for (e, v), s in reversed(around)]
            bands.append(path(edge, "band", closed=True))
        inside.append(_stroke(points, one.kind))
        if len(drawn) > 1:
            pieces += [_stroke([(at, 29), (at + 18, 29)], one.kind), text(at + 23, 33, one.name, "soft")]
            at += 36 + EM * len(one.name)
    pieces.append(window(LEFT, TOP, right - LEFT, bottom - TOP, *bands, *reversed(inside)))  # the first on top
    ends = ", ".join(f"{one.name} from {one.points[0][1]:.3g} to {one.points[-1][1]:.3g}" for one in drawn)
    return Drawing(WIDTH, HEIGHT, Markup("").join(pieces), f"{title}: {ends}, over {last:g} epochs")


def spanned(drawn: Sequence[Line]) -> tuple[float, float]:
    """The values that the curves and their bands reach, and a little more."""
    ends = [
        value + sign * around
        for one in drawn
        for (_, value), around in zip(one.points, one.spread or [0.0] * len(one.points), strict=True)
        for sign in (-1, 1)
    ]
    pad = max(0.06 * (max(ends) - min(ends)), 0.01)
    return min(ends) - pad, max(ends) + pad


def histogram(own: np.ndarray, foreign: np.ndarray) -> Drawing:
    """How many unlabelled images have which weight; the foreign ones as an outline, each kind to its own height."""
    both = np.concatenate([own, foreign])
    low, high = float(both.min()), float(both.max())
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    shares = [np.histogram(kind, edges)[0] / max(1, len(kind)) * 100 for kind in (own, foreign)]
    right, bottom = WIDTH - 10, HEIGHT - 34
    x, y = Scale(low, high, LEFT, right), Scale(0, 1.05 * max(s.max() for s in shares), bottom, TOP)
    pieces = [text(8, 15, "Weights of the unlabelled images, share in %", "name"), *_axes(x, y, right, bottom)]
    for left, end, share in zip(edges[:-1].tolist(), edges[1:].tolist(), shares[0].tolist(), strict=True):
        if share:
            size = {"width": max(0.5, x(end) - x(left) - 0.6), "height": bottom - y(share)}
            pieces.append(tag("rect", x=x(left), y=y(share), **size, class_="right"))
    if len(foreign):
        steps = [(x(edges[0]), bottom)]
        for left, end, share in zip(edges[:-1].tolist(), edges[1:].tolist(), shares[1].tolist(), strict=True):
            steps += [(x(left), y(share)), (x(end), y(share))]
        pieces.append(_stroke([*steps, (x(edges[-1]), bottom)], "third"))
        pieces += [tag("rect", x=LEFT, y=25.0, width=14.0, height=8.0, class_="right")]
        pieces += [text(LEFT + 19, 33, "of this data", "soft"), _stroke([(LEFT + 110, 29), (LEFT + 128, 29)], "third")]
        pieces.append(text(LEFT + 133, 33, "foreign", "soft"))
    for t in x.ticks(5):
        pieces.append(text(min(x(t), right - 8), bottom + 15, f"{t:g}", "soft", "middle"))
    pieces.append(text((LEFT + right) / 2, HEIGHT - 4, "weight", "soft", "middle"))
    says = f"Weights from {low:.3g} to {high:.3g}, mean {own.mean():.3g}"
    says += f"; of foreign images {foreign.mean():.3g}" if len(foreign) else ""
    return Drawing(WIDTH, HEIGHT, Markup("").join(pieces), says)


def _axes(x: Scale, y: Scale, right: float, bottom: float) -> list[Markup]:
    pieces = [line(LEFT, bottom, right, bottom, "zero")]
    for t in y.ticks(5):
        pieces += [line(LEFT, y(t), right, y(t), "rule"), text(LEFT - 6, y(t) + 4, f"{t:g}", "soft", "end")]
    return pieces


def _stroke(points: list[tuple[float, float]], kind: str) -> Markup:
    return group(path(points, "whisker" if kind == "third" else kind), class_=COLOURS[kind])
