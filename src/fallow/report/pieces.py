"""What a page is made of: paragraphs, tables, figures, code. Whatever is no markup is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fallow.report.svg import Drawing
from fallow.report.tags import tag
from fallow.report.words import SIGNS, breakable, plain

Column = str | tuple[str, str]  # the head of a table's column, and its kind


def heading(level: int, words: str, anchor: str | None = None) -> Markup:
    """A heading; with an anchor, links lead to it."""
    return tag(f"h{level}", breakable(words), id=anchor)


def paragraph(*words: str, kind: str | None = None) -> Markup:
    """Sentences; ``kind`` is "note" or "soft"."""
    return tag("p", *words, class_=kind)


def box(label: str, inside: str = "", caller: Callable[[], str] | None = None) -> Markup:
    """What may be wider than the page: it scrolls by itself."""
    inside = caller() if caller else inside
    return tag("div", inside, class_="scroll", role="region", tabindex=0, aria_label=label)


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], kind: str | None = None) -> Markup:
    """A table whose first column names the rows. Further columns are numbers, to the right, unless they say otherwise:
    "plot", "reason" (long text) or "" (to the left).
    """
    (first, _), *others = ((column, "num") if isinstance(column, str) else column for column in columns)
    head = [tag("th", breakable(first), scope="col")]
    head += [tag("th", breakable(words), scope="col", class_=kind or None) for words, kind in others]
    body = [
        tag(
            "tr",
            tag("th", breakable(row[0]), scope="row"),
            *(tag("td", cell, class_=kind or None) for cell, (_, kind) in zip(row[1:], others, strict=True)),
        )
        for row in rows
    ]
    inside = [tag("caption", tag("span", caption)), tag("thead", tag("tr", *head)), tag("tbody", *body)]
    return box(caption, tag("table", *inside, class_=kind))


def figures(drawings: Sequence[Drawing | None], wide: bool = True) -> Markup:
    """Drawings side by side where there is room."""
    shown = (tag("figure", drawing.inline()) for drawing in drawings if drawing is not None)
    return tag("div", *shown, class_="panels wide" if wide else "panels")


def figure(drawing: Drawing) -> Markup:
    """One drawing that keeps its size, and scrolls where the page is narrower."""
    return tag("figure", box(drawing.says[:80], drawing.inline(least=0.85)))


def code(text: str, label: str) -> Markup:
    """What to type."""
    return tag("pre", tag("code", text), tabindex=0, aria_label=label)


def definitions(values: Mapping[str, Any]) -> Markup:
    """Settings and their values."""
    pairs = (tag("dt", key) + tag("dd", plain(value)) for key, value in values.items())
    return tag("dl", *pairs, class_="settings")


def bullets(lines: Sequence[str]) -> Markup:
    """A list."""
    return tag("ul", *(tag("li", line) for line in lines))


def said(kind: str, words: str) -> Markup:
    """A verdict: a sign, a colour and words."""
    sign = [tag("span", SIGNS[kind], aria_hidden="true"), " "] if kind in SIGNS else []
    return tag("span", *sign, words, class_=f"v {kind}")
