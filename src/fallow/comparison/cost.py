"""What a method gives against what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from fallow.report.intervals import Bar, colour, domain, mark
from fallow.report.shown import Shown
from fallow.report.svg import EM, Drawing, Scale, group, line, path, text
from fallow.report.tags import tag
from fallow.report.words import clean, count, duration, number

GAP = 15.0  # between two names


def passes(bars: Sequence[Bar], spent: Sequence[float], shown: Shown) -> Drawing:
    """Against forward-backward passes."""
    return _cost(bars, spent, "passes per run", [f"{count(s)} passes" for s in spent], shown)


def time(bars: Sequence[Bar], seconds: Sequence[float], shown: Shown) -> Drawing:
    """Against time, in a unit that gives short numbers."""
    longest = max(seconds)
    unit, size = ("h", 3600) if longest > 7200 else ("min", 60) if longest > 120 else ("s", 1)
    words = [duration(s) for s in seconds]
    return _cost(bars, [s / size for s in seconds], f"time per run in {unit}", words, shown)


def _cost(bars: Sequence[Bar], spent: Sequence[float], what: str, words: Sequence[str], shown: Shown) -> Drawing:
    """Equal budgets put many points above each other, so names stand beside them, with a line to each."""
    low, high = domain([bar._replace(low=None, high=None, seeds=[]) for bar in bars], shown=shown)
    labels = [b.label if low <= b.mean <= high else f"{shown.full(b.mean, 0)}: {b.label}" for b in bars]  # far off
    room = min(130.0, 14 + EM * max(len(clean(label)) for label in labels))
    width, height, top, left = 360.0, max(230.0, 80 + GAP * len(bars)), 26.0, 40.0
    right, bottom = width - room - 22, height - 38
    x, y = Scale(0.0, 1.04 * max(*spent, 1e-9), left, right), Scale(low, high, bottom, top)
    pieces = []
    for t, written in shown.marks(y, 6):
        pieces += [line(left, y(t), right, y(t), "rule"), text(left - 5, y(t) + 4, written, "soft", "end")]
    for t in x.ticks(4):
        written = count(t) if t == int(t) else number(t)
        pieces += [line(x(t), bottom, x(t), bottom + 4, "zero"), text(x(t), bottom + 16, written, "soft", "middle")]
    pieces += [
        text(left - 30, 11, shown.axis("test"), "soft"),
        line(left, bottom, right, bottom, "zero"),
        text((left + right) / 2, height - 5, what, "soft", "middle"),
    ]
    order = sorted(range(len(bars)), key=lambda i: -bars[i].mean)
    for i, at in zip(order, spread([y.inside(bars[i].mean) for i in order], GAP, top, bottom), strict=True):
        bar, px, py = bars[i], x(spent[i]), y.inside(bars[i].mean)
        tooltip = tag("title", f"{bar.label}: {bar.words}, {words[i]}")
        pieces += [
            path([(px + 6, py), (right + 4, at), (right + 16, at)], "lead"),
            group(tooltip, mark(px, py, bar.kind), class_=colour(bar.kind)),
            text(right + 20, at + 4, labels[i], None, limit=int(room / EM)),
        ]
    found = [f"{bar.label} {shown.full(bar.mean)}, {amount}" for bar, amount in zip(bars, words, strict=True)]
    return Drawing(width, height, Markup("").join(pieces), f"{shown.axis('Test')} against {what}: {'; '.join(found)}")


def spread(wanted: Sequence[float], gap: float, top: float, bottom: float) -> list[float]:
    """Labels as near to their points as they can be without touching, in the same order.

    >>> spread([50, 50, 52], 10, 0, 100)
    [40.666666666666664, 50.666666666666664, 60.666666666666664]
    """
    blocks: list[list[float]] = []  # runs of labels that touch: where each would have its first one
    for i, at in enumerate(wanted):
        blocks.append([at - i * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    firsts = [_mean(block) for block in blocks for _ in block]
    room = max(top, bottom - (len(wanted) - 1) * gap)
    return [min(max(first, top), room) + i * gap for i, first in enumerate(firsts)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
