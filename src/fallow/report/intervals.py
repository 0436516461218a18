"""Interval plots: a mean, its interval and the seeds behind it, in the rows of a table and as a figure of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from fallow.report.shown import ACCURACY, Shown
from fallow.report.svg import EM, Drawing, Scale, group, line, path, text
from fallow.report.tags import tag
from fallow.report.words import clean

CELL, ROW, TICKS = 210.0, 32.0, 4  # the plot in a row of a table


class Bar(NamedTuple):
    """A mean with its interval, the seeds behind it, and what kind of thing it is: a verdict, or what it stands for."""

    label: str
    mean: float
    low: float | None
    high: float | None
    seeds: list[float]
    kind: str
    words: str  # the numbers, for a reader
    theirs: float | None = None  # what another found, as an open mark


def domain(bars: Sequence[Bar], *always: float, shown: Shown = ACCURACY) -> tuple[float, float]:
    """The values to show. One method far off must not press the others together: it gets an arrow at the edge."""
    values = sorted(v for bar in bars for v in (bar.low, bar.high, bar.mean, *bar.seeds) if v is not None)
    lower, upper = values[len(values) // 4], values[(3 * len(values)) // 4]
    least = 0.004 if shown.share else 0.004 * max(map(abs, values)) or 1.0
    span = max(upper - lower, least)
    low = min(max(values[0], lower - 3 * span), *always, lower)
    high = max(min(values[-1], upper + 3 * span), *always, upper)
    pad = max(0.05 * (high - low), least / 2)
    return low - pad, high + pad


def cell(bar: Bar, scale: Scale, y: float = ROW / 2, filled: bool = False) -> Markup:
    """One row of an interval plot: seeds as faint dots, the interval as a line, the mean as a mark or a bar."""
    if filled:
        size = {"width": max(1.0, scale.inside(bar.mean) - scale.start), "height": 14.0}
        drawn = tag("rect", x=scale.start, y=y - 7, **size, class_="bar")
        return group(tag("title", f"{bar.label}: {bar.words}"), drawn, class_=colour(bar.kind))
    pieces = [
        tag("circle", cx=scale(v), cy=y + 8, r=2, class_="seed") for v in bar.seeds if scale.low <= v <= scale.high
    ]
    if bar.low is not None and bar.high is not None:
        ends = scale.inside(bar.low), scale.inside(bar.high)
        pieces.append(line(ends[0], y, ends[1], y, "whisker"))
        if ends[0] < ends[1]:
            shown = [x for x, v in zip(ends, (bar.low, bar.high), strict=True) if scale.low <= v <= scale.high]
            pieces += [line(x, y - 4, x, y + 4, "whisker") for x in shown]
    if scale.low <= bar.mean <= scale.high:
        pieces.append(mark(scale(bar.mean), y, bar.kind))
    else:  # beyond the edge
        x, tip = (scale.start + 7, -6) if bar.mean < scale.low else (scale.end - 7, 6)
        pieces.append(path([(x, y - 4), (x + tip, y), (x, y + 4)], "mark", closed=True))
    if bar.theirs is not None:
        pieces.append(group(mark(scale.inside(bar.theirs), y, "baseline"), class_="quiet"))
    return group(tag("title", f"{bar.label}: {bar.words}"), *pieces, class_=colour(bar.kind))


def mark(x: float, y: float, kind: str) -> Markup:
    """A point whose shape tells the verdict: up, down, round; hollow for what is only compared with."""
    if kind == "better":
        return path([(x - 5, y + 4), (x, y - 5), (x + 5, y + 4)], "mark", closed=True)
    if kind == "worse":
        return path([(x - 5, y - 4), (x, y + 5), (x + 5, y - 4)], "mark", closed=True)
    if kind == "control":
        return tag("rect", x=x - 4, y=y - 4, width=8, height=8, class_="mark open")
    if kind == "baseline":
        return path([(x - 5.5, y), (x, y - 5.5), (x + 5.5, y), (x, y + 5.5)], "mark open", closed=True)
    return tag("circle", cx=x, cy=y, r=4, class_="mark")


def colour(kind: str) -> str:
    """The class that colours a kind."""
    known = {"better": "better", "worse": "worse", "differs": "worse", "control": "quiet", "baseline": "quiet"}
    return known.get(kind, "plain")


def rows(bars: Sequence[Bar], scale: Scale, zero: float | None) -> list[Markup]:
    """The plots of a table's rows, with the lines of the axis behind them so that they read as one figure."""
    behind = [line(scale(t), 0, scale(t), ROW, "rule") for t in scale.ticks(TICKS)]
    if zero is not None:
        behind.append(line(scale(zero), 0, scale(zero), ROW, "zero"))
    return [Drawing(CELL, ROW, Markup("").join([*behind, cell(bar, scale)])).inline("cell") for bar in bars]


def axis(scale: Scale, shown: Shown, differences: bool) -> Markup:
    """The numbers of the axis, for the head of the column."""
    marks = [
        text(min(max(scale(t), 12), CELL - 12), 11, number, "soft", "middle")
        for t, number in shown.marks(scale, TICKS, differences)
    ]
    return Drawing(CELL, 14, Markup("").join(marks)).inline("cell")


def column(bars: Sequence[Bar], shown: Shown, *always: float) -> Scale:
    """The scale of a table's plots."""
    return Scale(*domain(bars, *always, shown=shown), 6.0, CELL - 6.0)


def forest(
    bars: Sequence[Bar],
    head: str,
    unit: str,
    says: str,
    *,
    shown: Shown = ACCURACY,
    zero: float | None = None,
    kind: str = "linear",
    filled: bool = False,
) -> Drawing:
    """The interval plot as a figure of its own: names at the left, numbers at the right; bars if it is ``filled``."""
    left = min(190.0, 20 + EM * max(len(clean(bar.label)) for bar in bars))
    right = 16 + EM * max(len(bar.words) for bar in bars)
    width, top = max(left + 320 + right, 16 + EM * len(clean(head))), 34.0 if head else 8.0
    always = [v for v in (zero, *(bar.theirs for bar in bars)) if v is not None]
    ends = domain(bars, *always, shown=shown) if kind == "linear" else _decades(bars)
    if filled and zero is not None:
        ends = zero, ends[1]
    scale = Scale(*ends, left + 6, left + 314, kind)
    bottom = top + ROW * len(bars)
    pieces = [text(8, 16, head, "name")] if head else []
    for t, number in shown.marks(scale, 5, zero is not None and not filled):
        pieces += [
            line(scale(t), top, scale(t), bottom, "rule"),
            text(scale(t), bottom + 16, number, "soft", "middle"),
        ]
    if zero is not None:
        pieces.append(line(scale(zero), top, scale(zero), bottom, "zero"))
    for i, bar in enumerate(bars):
        y = top + ROW * (i + 0.5)
        pieces += [
            text(left - 8, y + 4, bar.label, None, "end", limit=int((left - 16) / EM)),
            cell(bar, scale, y, filled),
            text(left + 328, y + 4, bar.words, "soft"),
        ]
    pieces.append(text(left + 160, bottom + 34, unit, "soft", "middle"))
    return Drawing(width, bottom + 44, Markup("").join(pieces), says)


def _decades(bars: Sequence[Bar]) -> tuple[float, float]:
    """From the power of ten below the least to the one above the largest."""
    values = [value for bar in bars for value in (bar.mean, bar.low, bar.high, bar.theirs)]
    found = [math.log10(value) for value in values if value is not None and value > 0] or [0.0]
    return 10.0 ** math.floor(min(found) - 0.05), 10.0 ** math.ceil(max(found) + 0.05)
