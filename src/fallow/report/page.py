"""A page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from fallow.base import files
from fallow.report import pieces, style, words
from fallow.report.tags import joined

HERE = Path(__file__).parent
FILTERS = (
    words.capitalised, words.percent, words.p_value, words.count, words.duration, words.breakable, words.brief,
)  # fmt: skip
PIECES = ("heading", "box", "table", "said", "definitions", "code", "bullets")


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading."""

    title: str
    body: Sequence[str]  # pieces; what is no markup is escaped
    anchor: str = ""
    short: str = ""  # in the list of contents, where the title is long

    @property
    def place(self) -> str:
        """Where links lead to."""
        return self.anchor or "".join(c if c.isascii() and c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Page:
    """What every page says: what was asked, what was found in one sentence, the evidence, and how to repeat it."""

    title: str
    verb: str  # "fallow tune"
    sentence: str
    sections: Sequence[Section]
    facts: Sequence[str] = ()
    command: str = ""
    notes: Sequence[str] = ()  # on the data
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)  # files in the same folder, and what they hold

    def render(self) -> bytes:
        """The page as bytes: the same page, the same bytes."""
        template = environment(HERE).get_template("base.html.j2")
        light, dark = style.variables(style.LIGHT), style.variables(style.DARK)
        return template.render(page=self, light=light, dark=dark, figure=style.FIGURE).encode()

    def write(self, path: Path) -> Path:
        """Write it, whole or not at all; its path."""
        files.write(path, self.render())
        return path


def environment(folder: Path) -> jinja2.Environment:
    """For the templates of a folder: everything is escaped, nothing may be missing, pieces and words are at hand."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
        finalize=lambda value: words.clean(value) if type(value) is str else value,
    )
    made.filters |= {function.__name__: function for function in FILTERS} | {"joined": joined}
    made.globals |= {name: getattr(pieces, name) for name in PIECES}
    return made
