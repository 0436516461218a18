"""Numbers that may stand for none: −999, 9999 or −1 among those that were measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

NINES = re.compile(r"-?9+(?:\.9+)?")  # -999, 9999, 99.9
AWAY = 0.25  # of the range of the other numbers: so far from them lies a mark
MEASURED = 20  # different numbers above which they are no codes, of which −1 may be one
SAID = 3  # columns that are named for each mark


def marks(columns: Mapping[str, NDArray[Any]]) -> list[str]:
    """A sentence for each number that looks like a mark of missing values in columns of numbers (NaN: none).

    It is the smallest or the largest in two rows or more, and consists of nines and lies far from all others; or it is
    −1 or −9 where all others are 0 or more, and is more frequent than any of them.

    >>> marks({"kilos": np.array([61.5, -999, 70.2, -999, 58.0]), "change": np.array([-1.0, 0, -1, 2, 1])})
    ["-999 in 2 rows of 'kilos' is read as a number: leave those cells empty if it stands for a missing value."]
    """
    found: dict[str, dict[str, int]] = {}
    for name, values in columns.items():
        known = values[~np.isnan(values)]
        for end in (known.min(), known.max()) if len(known) else ():
            if rows := _rows(end, known):
                found.setdefault(f"{end:.10g}", {})[name] = rows
    return [_sentence(mark, rows) for mark, rows in found.items()]


def _rows(mark: float, known: NDArray[Any]) -> int:
    """In how many rows a mark stands; 0 if it is a number like the others."""
    code = mark in (-1, -9)
    if not code and not (abs(mark) > 9.9 and NINES.fullmatch(f"{mark:.10g}")):
        return 0
    others, rows = known[known != mark], int((known == mark).sum())
    if rows < 2 or not len(others):
        return 0
    if abs(others - mark).min() > AWAY * np.ptp(others) and not code:
        return rows
    values, counts = np.unique(others, return_counts=True)
    return rows if mark < 0 and values[0] >= 0 and len(values) > MEASURED and rows > counts.max() else 0


def _sentence(mark: str, rows: Mapping[str, int]) -> str:
    names = list(rows)
    count = sum(rows.values())
    where = f"{count} row{'s' * (count > 1)} of {names[0]!r}"
    if len(names) > 1:
        some = ", ".join(f"{name!r} ({rows[name]} rows)" for name in names[:SAID])
        where = f"{some} and {len(names) - SAID} more columns" if len(names) > SAID else some
    return f"{mark} in {where} is read as a number: leave those cells empty if it stands for a missing value."
