"""Lines along an axis: over epochs, over inner steps, over the layers of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from fallow.report.svg import EM, Drawing, Scale, dots, group, legend, line, path, stroke, text, window
from fallow.report.tags import short
from fallow.report.words import clean, number

WIDTH, HEIGHT = 420.0, 230.0
Point = tuple[float, float]


class Axis(NamedTuple):
    """What an axis counts or measures, and how."""

    label: str = ""
    kind: str = "linear"  # or "log", "symlog"
    counts: bool = False  # whole numbers of what the label names
    names: Sequence[str] = ()  # of the places 0, 1, 2, … instead of numbers
    limits: Point | None = None  # else what is drawn


EPOCHS = Axis("epoch", counts=True)


class Line(NamedTuple):
    """A curve, and perhaps a band from low to high around it."""

    name: str
    points: Sequence[Point]
    kind: str = "plain"  # or "quiet", dashed; "worse"; "points", without a line; or one of a `style.series`
    band: Sequence[Point] | None = None
    dotted: bool = False  # a dot at every point


@dataclass
class Frame:
    """The axes of a chart, with what is written around them, and the scales to draw by."""

    x: Scale
    y: Scale
    width: float
    height: float
    pieces: list[Markup]

    def drawing(self, says: str, *inside: Markup) -> Drawing:
        """The chart; what reaches beyond the axes is cut off."""
        x, y = self.x, self.y
        cut = window(x.start, y.end, x.end - x.start, y.start - y.end, *inside)
        return Drawing(self.width, self.height, Markup("").join([*self.pieces, cut]), says)


def frame(
    title: str,
    x: Axis,
    y: Axis,
    ends: tuple[Point, Point],
    names: Sequence[tuple[str, str]] = (),
    size: Point = (WIDTH, HEIGHT),
) -> Frame:
    """Draw the axes from end to end; ``names`` are those of the lines, with their kinds."""
    width, height = size
    (first, last), (low, high) = ends
    marks = [(t, number(t, 3)) for t in Scale(low, high, 0, 1, y.kind).ticks(5)]
    left, right = 14 + EM * max(len(words) for _, words in marks), width - 10
    pieces = [text(8, 15, title, "name", limit=int((width - 16) / EM))] if title else []
    named, top = legend(names, left, 21.0 if title else 2.0, right)
    pieces += named
    if y.label:
        pieces.append(text(8, top + 12, y.label, "soft", limit=int((width - 16) / EM)))
        top += 16
    room = (right - left) / max(1, len(x.names))
    longest = max((len(clean(name)) for name in x.names), default=0)
    turned = EM * longest > room
    below = 18 + (min(70.0, 0.62 * EM * longest) if turned else 0.0) + (16 if x.label else 0)
    top, bottom = top + 6, height - below
    across, up = Scale(first, last, left, right, x.kind), Scale(low, high, bottom, top, y.kind)
    for t, words in marks:
        pieces += [line(left, up(t), right, up(t), "rule"), text(left - 6, up(t) + 4, words, "soft", "end")]
    pieces.append(line(left, bottom, right, bottom, "zero"))
    if x.names:
        for place, name in enumerate(x.names):
            at = across(place)
            limit = int((min(70 / 0.62, at / 0.79) if turned else room) / EM)  # sine and cosine of the turn
            label = text(0, 0, name, "soft", "end" if turned else "middle", limit=limit)
            turn = " rotate(-38)" if turned else ""
            pieces.append(group(label, transform=f"translate({short(at)} {short(bottom + 13)}){turn}"))
    else:
        ticks = [t for t in across.ticks(5) if not x.counts or t == int(t)]
        pieces += [text(min(across(t), right - 6), bottom + 15, number(t, 3), "soft", "middle") for t in ticks]
    if x.label:
        pieces.append(text((left + right) / 2, height - 4, x.label, "soft", "middle"))
    return Frame(across, up, width, height, pieces)


def lines(
    title: str,
    drawn: Sequence[Line],
    x: Axis = EPOCHS,
    y: Axis = Axis(),  # noqa: B008 - a tuple
    *,
    size: Point = (WIDTH, HEIGHT),
    edges: Sequence[float] = (),
    named: bool = True,
) -> Drawing | None:
    """Curves, the first on top, named above where there are several; None where there is nothing to draw.

    ``edges`` end the parts of what the x-axis counts, which are numbered at the top; what is not finite is left out.
    """
    drawn = [kept for one in drawn if (kept := _finite(one, y)).points]
    if not drawn:
        return None
    places = [place for one in drawn for place, _ in one.points]
    ends = x.limits or (min(0.0, *places) if x.counts else min(places), max(places))
    if x.names:
        ends = -0.3, len(x.names) - 0.7
    if ends[0] == ends[1]:
        ends = ends[0] - 0.5, ends[0] + 0.5
    names = [(one.name, one.kind) for one in drawn] if named and len(drawn) > 1 else []
    made = frame(title, x, y, (ends, y.limits or spanned(drawn, y.kind)), names, size)
    bands, inside = [], []
    for one in drawn:
        points = [(made.x(a), made.y(b)) for a, b in one.points]
        if one.band is not None:
            low, high = (
                [(made.x(a), made.y(b[i])) for (a, _), b in zip(one.points, one.band, strict=True)] for i in (0, 1)
            )
            bands.append(group(path([*low, *reversed(high)], "area", closed=True), class_=one.kind))
        if one.kind != "points":
            inside.append(stroke(points, one.kind))
        if one.kind == "points" or one.dotted or len(points) == 1:  # a line of one point cannot be seen
            inside.append(dots(points, one.kind))
    for begin, end in zip([0.0, *edges], edges, strict=False) if len(edges) > 1 else ():
        made.pieces.append(line(made.x(end), made.y.end, made.x(end), made.y.start, "edge"))
        if made.x(edges[0]) - made.x(0) > 16:
            at = (made.x(begin) + made.x(end)) / 2
            made.pieces.append(text(at, made.y.end - 3, str(list(edges).index(end) + 1), "soft", "middle"))
    courses = ", ".join(f"{one.name} from {one.points[0][1]:.3g} to {one.points[-1][1]:.3g}" for one in drawn)
    says = f"{title}: {courses}" + (f", over {max(places):g} {x.label}s" if x.counts else "")
    return made.drawing(says, *bands, *reversed(inside))


def spanned(drawn: Sequence[Line], kind: str = "linear") -> Point:
    """The values that curves and their bands reach, and a little more."""
    values = [value for one in drawn for _, value in one.points]
    bands = [end for one in drawn for pair in one.band or () for end in pair]
    values += [end for end in bands if math.isfinite(end) and (kind != "log" or end > 0)]
    low, high = min(values), max(values)
    if kind != "linear":
        return low * (1.3 if low < 0 else 1 / 1.3), high * (1.3 if high > 0 else 1 / 1.3)
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad


def _finite(one: Line, y: Axis) -> Line:
    kept = [
        i
        for i, (place, value) in enumerate(one.points)
        if math.isfinite(place) and math.isfinite(value) and (y.kind != "log" or value > 0)
    ]
    band = None if one.band is None else [one.band[i] for i in kept]
    return one._replace(points=[one.points[i] for i in kept], band=band)
