"""As much SVG as the figures need. Text is escaped, numbers are short, and nothing has an id: a page holds many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fallow.comparison.report.style import alone
from fallow.comparison.report.words import brief, clean

EM = 6.8  # the width of a letter of the figures' font, generously


def tag(name: str, *inside: str, **attributes: Any) -> Markup:
    """An element; ``class_`` is its class, and an underscore in a name a hyphen.

    >>> tag("text", "a < b", x=1.25, text_anchor="end")
    Markup('<text x="1.2" text-anchor="end">a &lt; b</text>')
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _short(value))
        for key, value in attributes.items()
        if value is not None
    )
    content = Markup("").join(piece if isinstance(piece, Markup) else clean(piece) for piece in inside)
    if not inside:
        return Markup("<{0}{1}/>").format(Markup(name), written)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, content)


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
    d = "M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in points) + ("Z" if closed else "")
    return tag("path", d=d, class_=kind)


def window(x: float, y: float, width: float, height: float, *inside: str) -> Markup:
    """A part of the drawing that cuts off what reaches beyond it; the coordinates stay as they are."""
    box = f"{_short(x)} {_short(y)} {_short(width)} {_short(height)}"
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
        box = f"0 0 {_short(self.width)} {_short(self.height)}"
        size = {"width": self.width, "height": self.height}
        named["style"] = None if least is None else f"min-width: {least * self.width:.0f}px"
        return tag("svg", self.content, class_=f"fig {kind}".strip(), viewBox=box, **size, **named)

    def file(self) -> bytes:
        """As a file of its own."""
        box = f"0 0 {_short(self.width)} {_short(self.height)}"
        style = tag("style", Markup(alone()))
        whole = tag(
            "svg", tag("title", self.says), style, self.content, xmlns="http://www.w3.org/2000/svg", class_="fig",
            width=self.width, height=self.height, viewBox=box, role="img",
        )  # fmt: skip
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{whole}\n'.encode()


def beside(drawings: Sequence[Drawing], columns: int, head: str, says: str) -> Drawing:
    """Small multiples as one drawing."""
    width, height, top = max(d.width for d in drawings), max(d.height for d in drawings), 28.0
    columns = min(columns, len(drawings))
    placed = [text(8, 17, head, "name", limit=int(columns * width / EM))]
    for i, drawing in enumerate(drawings):
        x, y = i % columns * width, top + i // columns * height
        placed.append(group(drawing.content, transform=f"translate({_short(x)} {_short(y)})"))
    return Drawing(columns * width, top + math.ceil(len(drawings) / columns) * height, Markup("").join(placed), says)


@dataclass(frozen=True)
class Scale:
    """From values to pixels.

    >>> Scale(0.0, 10.0, 100.0, 200.0)(5.0)
    150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def inside(self, value: float) -> float:
        """Like a call, but not beyond the ends."""
        return self(min(self.high, max(self.low, value)))

    def ticks(self, about: int = 5) -> list[float]:
        """Round values on the scale.

        >>> Scale(0.912, 0.981, 0, 1).ticks(4)
        [0.92, 0.94, 0.96, 0.98]
        """
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def _short(value: Any) -> str:
    """One digit after the point is finer than a screen.

    >>> _short(3.0), _short(2.349), _short(-0.01), _short("x")
    ('3', '2.3', '0', 'x')
    """
    if not isinstance(value, float):
        return str(value)
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written
