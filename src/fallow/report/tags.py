"""Elements of HTML and SVG. Text is always escaped, and numbers are short."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from fallow.report.words import clean

EMPTY = frozenset({"circle", "img", "line", "path", "rect"})  # elements without an inside


def tag(name: str, *inside: str, **attributes: Any) -> Markup:
    """An element; ``class_`` is its class, and an underscore in a name a hyphen.

    >>> tag("text", "a < b", x=1.25, text_anchor="end")
    Markup('<text x="1.2" text-anchor="end">a &lt; b</text>')
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), short(value))
        for key, value in attributes.items()
        if value is not None
    )
    if name in EMPTY:
        return Markup("<{0}{1}/>").format(Markup(name), written)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, joined(inside))


def joined(pieces: Any) -> Markup:
    """Pieces one after another: what is no markup is escaped, and rid of what no format can hold."""
    return Markup("").join(piece if isinstance(piece, Markup) else clean(piece) for piece in pieces)


def short(value: Any) -> str:
    """One digit after the point is finer than a screen.

    >>> short(3.0), short(2.349), short(-0.01), short("x")
    ('3', '2.3', '0', 'x')
    """
    if not isinstance(value, float):
        return clean(value)
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written
