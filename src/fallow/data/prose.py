"""Which columns of a table hold texts, and whether texts are all that it has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError
from fallow.data.tables import DATE, FEW, MOST, MOSTLY, NAMES, NUMBERED, SAID, TIME, Cells, close, numbers, present
from fallow.data.texts import count, encoded

SENTENCE, PHRASE = 5, 2  # words of a cell on average from which on a column holds sentences, or phrases, not names
PAIR = 2  # texts of an example at the most


def sentences(cells: Cells) -> list[str]:
    """The columns of sentences, more of them different than categories would be.

    >>> sentences({"review": ["not bad at all, this", "it was quite dull to me"], "by": ["Ann", "Bob"]})
    ['review']
    """
    return [name for name, known in _texts(cells).items() if _long(known, SENTENCE) and _distinct(known, MOST)]


def columns_of_texts(cells: Cells, asked: bool = False) -> list[str]:
    """The columns of sentences; where there is none, of phrases of which most are different.

    If they are asked for, of any words that are, and else of sentences that come again and again.
    """
    words = 1 if asked else PHRASE
    held = _texts(cells)
    return (
        sentences(cells)
        or [name for name, known in held.items() if _long(known, words) and _distinct(known, len(known))]
        or [name for name, known in held.items() if asked and _long(known, SENTENCE)]
    )


def nothing_else(cells: Cells, texts: Sequence[str], learned: Sequence[str]) -> bool:
    """Whether what could be ``learned`` from the other columns of a table only tells its rows apart."""
    return all(name in texts or _tells_rows(name, cells[name]) for name in learned)


def texts_of(cells: Cells, asked: Sequence[str], what: str) -> NDArray[np.bytes_]:
    """The columns as they are written, rows × columns: one text an example, or a pair."""
    if lacking := [name for name in asked if name not in cells]:
        meant = close(lacking[0], cells)
        raise RequestError(f"{what} lacks the column {lacking[0]!r}, whose texts the model was trained with{meant}")
    if not 1 <= len(asked) <= PAIR:
        held = f"texts in {len(asked)} columns ({', '.join(map(repr, asked))})" if asked else "no column of texts"
        raise RequestError(f"{what} has {held}, and an example is one text or two: leave others out (--drop)")
    return np.stack([encoded([cell.strip() for cell in cells[name]]) for name in asked], 1)


def said_of(texts: Sequence[str], cells: Cells) -> list[str]:
    """Sentences on what is read as texts, what is left out for it, and rows that have none."""
    beside = [name for name in cells if name not in texts]
    named = ", ".join(map(repr, beside)) if len(beside) <= SAID else f"{len(beside)} other columns"
    left = f"; {named} left out" if beside else ""
    notes = [f"Examples are the texts in {' and '.join(map(repr, texts))}{left}."]
    empty = sum(not any(row) for row in zip(*([cell.strip() for cell in cells[name]] for name in texts), strict=True))
    return notes + [f"{empty} row{'s have' if empty > 1 else ' has'} no text."] * (empty > 0)


def _texts(cells: Cells) -> dict[str, list[str]]:
    """What columns hold that are neither of numbers nor of dates."""
    found = {}
    for name, column in cells.items():
        known = [cell.strip() for cell in column if present(cell)]
        _, wrong = numbers(known[:FEW])
        if not wrong:  # a table of pixels has millions of cells
            continue
        _, wrong = numbers(known)
        timed = sum(bool(DATE.fullmatch(cell) or TIME.fullmatch(cell)) for cell in known)
        if len(wrong) - timed > (1 - MOSTLY) * len(known):
            found[name] = known
    return found


def _long(known: Sequence[str], words: int) -> bool:
    return sum(map(count, known)) >= words * len(known)


def _distinct(known: Sequence[str], most: int) -> bool:
    """Whether these are more different texts than categories would be."""
    return len(set(known)) > min(most, NAMES * len(known))


def _tells_rows(name: str, column: Sequence[str]) -> bool:
    """Whether a column is called as an identifier is, and every row has its own."""
    called = name.strip().lower()
    return (NUMBERED.fullmatch(called) is not None or called.endswith("id")) and len(set(column)) == len(column)
