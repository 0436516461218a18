"""The data sets that come with fallow: nothing to download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.base.names import slug
from fallow.data.parts import Parts, Shares
from fallow.data.sources.digits import digits
from fallow.data.sources.synthetic import synthetic


@dataclass(frozen=True)
class Bundled:
    """A data set by name: one line on what it is, and how to get it."""

    summary: str
    read: Callable[..., Parts]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of its options."""
        return {name: p.default for name, p in list(signature(self.read).parameters.items())[1:]}

    def parts(self, name: str, cut: Shares, options: dict[str, Any]) -> Parts:
        """Its parts, after a check of the options."""
        check_options(name, options, self.options)
        return self.read(cut, **options)


TASKS = ("sinusoid",)  # made on the fly, for methods that learn from tasks

BUNDLED: dict[str, Bundled] = {
    "digits": Bundled("1,797 handwritten digits of 8×8 pixels (scikit-learn)", digits),
    "synthetic": Bundled("a label in 3 of 128 coordinates, noise in the rest: 8 classes, 256 examples", synthetic),
}


def check_options(name: str, options: dict[str, Any], known: dict[str, Any]) -> None:
    """Refuse an option that a source does not have."""
    for key in options:
        if not known:
            raise RequestError(f"{name} has no options: leave {key} out")
        if key not in known:
            raise unknown(f"option of {name}", key, known)


def bundled(source: str) -> bool:
    """Whether a source, with or without settings, is a name of ours and no path.

    >>> bundled("synthetic:alpha=0.5"), bundled("sinusoid"), bundled("images/")
    (True, True, False)
    """
    return source.partition(":")[0] in (*BUNDLED, *TASKS)


def folder_name(source: str) -> str:
    """What a folder of results on this source is called.

    >>> folder_name("synthetic:alpha=0.5"), folder_name("scans/brains.npz")
    ('synthetic_alpha=0.5', 'brains')
    """
    return slug(source if bundled(source) else Path(source).resolve().stem) or "data"
