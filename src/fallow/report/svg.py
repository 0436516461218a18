"""As much SVG as the figures need. Nothing has an id: a page holds many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fallow.report.style import alone
from fallow.report.tags import short, tag
from fallow.report.words import brief, clean

EVEN = 1e-3  # below it a symlog scale is about linear
EM = 6.8  # the width of a letter of the figures' font, generously


def group(*inside: str, **attributes: Any) -> Markup:
    """Elements together."""
    return tag("g", *inside, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def text(x: float, y: float, words: str, kind: str | None = None, anchor: str | None = None, limit: int = 99) -> Markup:
    """Words; where they are too long the whole is in a tooltip."""
    shown = brief(words, limit)
    whole = (tag("title", words),) if shown != clean(words) else ()
    return tag("text", shown, *whole, x=x, y=y, class_=kind, text_anchor=anchor)


def path(points: Sequence[tuple[float, float]], kind: str, closed: bool = False) -> Markup:
    """A line through points."""
    d = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points) + ("Z" if closed else "")
    return tag("path", d=d, class_=kind)


def window(x: float, y: float, width: float, height: float, *inside: str) -> Markup:
    """A part of the drawing that cuts off what reaches beyond it; the coordinates stay as they are."""
    box = f"{short(x)} {short(y)} {short(width)} {short(height)}"
    return tag("svg", *inside, x=x, y=y, width=width, height=height, viewBox=box)


@dataclass(frozen=True)
class Drawing:
    """A figure with its size in pixels, and what it shows in words."""

    width: float
    height: float
    content: Markup
    says: str = ""  # empty: its numbers are in the text beside it

    def inline(self, kind: str = "", least: float | None = None) -> Markup:
        """For the page, whose style it takes; ``least`` is the share of its size to which it may shrink."""
        named: dict[str, Any] = (
            {"role": "img", "aria_label": clean(self.says)} if self.says else {"aria_hidden": "true"}
        )
        box = f"0 0 {short(self.width)} {short(self.height)}"
        size = {"width": self.width, "height": self.height}
        named["style"] = None if least is None else f"min-width: {least * self.width:.0f}px"
        return tag("svg", self.content, class_=f"fig {kind}".strip(), viewBox=box, **size, **named)

    def file(self) -> bytes:
        """As a file of its own."""
        box = f"0 0 {short(self.width)} {short(self.height)}"
        style = tag("style", Markup(alone()))
        whole = tag(
            "svg", tag("title", self.says), style, self.content, xmlns="http://www.w3.org/2000/svg", class_="fig",
            width=self.width, height=self.height, viewBox=box, role="img",
        )  # fmt: skip
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{whole}\n'.encode()


def legend(names: Sequence[tuple[str, str]], left: float, top: float, right: float) -> tuple[list[Markup], float]:
    """Names with a stroke of their kind each, in as many lines as they need; and where these end."""
    pieces, at, y = [], left, top
    for name, kind in names:
        wide = 36 + EM * len(clean(name))
        if at > left and at + wide > right:
            at, y = left, y + 16
        sample = dots([(at + 9, y + 8)], kind) if kind == "points" else stroke([(at, y + 8), (at + 18, y + 8)], kind)
        pieces += [sample, text(at + 23, y + 12, name, "soft", limit=int((right - at - 23) / EM))]
        at += wide
    return pieces, y + 18 if pieces else top


def stroke(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """A line in the colour and with the dashes of its kind."""
    return group(path(points, "stroke"), class_=kind)


def dots(points: Sequence[tuple[float, float]], kind: str) -> Markup:
    """Points in the colour of their kind."""
    return group(*(tag("circle", cx=x, cy=y, r=2.6, class_="dot") for x, y in points), class_=kind)


def beside(
    drawings: Sequence[Drawing], columns: int, head: str, says: str, names: Sequence[tuple[str, str]] = ()
) -> Drawing:
    """Small multiples as one drawing, with one legend."""
    width, height = max(d.width for d in drawings), max(d.height for d in drawings)
    columns = min(columns, len(drawings))
    placed = [text(8, 17, head, "name", limit=int(columns * width / EM))]
    named, top = legend(names, 8, 26, columns * width)
    placed += named
    for i, drawing in enumerate(drawings):
        x, y = i % columns * width, top + 2 + i // columns * height
        placed.append(group(drawing.content, transform=f"translate({short(x)} {short(y)})"))
    rows = math.ceil(len(drawings) / columns)
    return Drawing(columns * width, top + 2 + rows * height, Markup("").join(placed), says)


@dataclass(frozen=True)
class Scale:
    """From values to pixels, evenly or by powers of ten; ``symlog`` goes through 0, evenly below ``EVEN``.

    >>> Scale(0.0, 10.0, 100.0, 200.0)(5.0)
    150.0
    >>> round(Scale(0.01, 1.0, 0.0, 100.0, "log")(0.1), 9)
    50.0
    """

    low: float
    high: float
    start: float
    end: float
    kind: str = "linear"  # or "log", "symlog"

    def __call__(self, value: float) -> float:
        low, high, at = (self._bent(v) for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def inside(self, value: float) -> float:
        """Like a call, but not beyond the ends."""
        return self(min(self.high, max(self.low, value)))

    def ticks(self, about: int = 5) -> list[float]:
        """Round values on the scale.

        >>> Scale(0.912, 0.981, 0, 1).ticks(4)
        [0.92, 0.94, 0.96, 0.98]
        >>> Scale(0.002, 30, 0, 1, "log").ticks()
        [0.01, 0.1, 1.0, 10.0]
        >>> Scale(0.3, 6, 0, 1, "log").ticks()
        [0.5, 1.0, 2.0, 5.0]
        >>> Scale(-2, 2, 0, 1, "symlog").ticks()
        [-1.0, -0.01, 0.0, 0.01, 1.0]
        """
        if self.kind == "log":
            found = _powers(self.low, self.high, about)
            if len(found) < 3:  # round values between them, too
                found = [m * 10.0**k for k in _decades(self.low, self.high) for m in (1, 2, 5)]
                found = [float(f"{t:.6g}") for t in found if self.low <= t <= self.high]
            if len(found) > 1:
                return found
        if self.kind == "symlog":
            above, below = (_powers(EVEN, end, (about + 1) // 2) for end in (self.high, -self.low))
            return [*(-t for t in reversed(below)), 0.0, *above]
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]

    def _bent(self, value: float) -> float:
        if self.kind == "log":
            return math.log10(max(value, self.low))
        if self.kind == "symlog":
            return math.copysign(math.log1p(abs(value) / EVEN), value)
        return value


def _decades(low: float, high: float) -> range:
    """The powers of ten from below one value to another."""
    return range(math.floor(math.log10(low) + 1e-9), math.floor(math.log10(high) + 1e-9) + 1)


def _powers(low: float, high: float, about: int) -> list[float]:
    """Powers of ten between two values, about so many: the largest, and every so many below it."""
    if high < low:
        return []
    inside = [power for power in _decades(low, high) if power > math.log10(low) - 1e-9]
    return [10.0**power for power in inside[:: -max(1, math.ceil(len(inside) / about))]][::-1]
