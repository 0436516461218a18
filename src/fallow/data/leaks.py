"""What makes a score worth less than it seems: twins on both sides of a split, rare or absent classes, answers in x."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.data.content import of_files, of_rows
from fallow.data.examples import Examples, Files

WORDS = {"val": "validation", "test": "test"}
UNEVEN = 3  # the largest class is this many times the smallest
RARE = 0.05  # a smaller share is named
NAMED = 3  # classes at most
OFTEN = 10  # rows a value, on average, from which on it is no chance that each goes with one answer
EXACT = 1e-9  # how far a correlation may be from 1, by the rounding of floats
ROUNDED = 1e-4  # and by that of what was written, if this explains all that is left
DIGITS, FLOAT = 12, 1e-12  # after the point at most; by which a float may miss what was written, as a share


def leaks(parts: dict[str, Any]) -> list[str]:
    """A sentence for each of validation and test that shares identical examples with training."""
    found = []
    for key, words in WORDS.items():
        part = parts.get(key)
        if part is not None and (count := shared(parts["train"], part)):
            are = "are" if count > 1 else "is"
            found.append(
                f"{count} of {len(part)} {words} examples {are} in training too, identical to the last bit: such "
                "scores say nothing about new data; leave them out, or keep related examples together (groups)."
            )
    return found


def shared(train: Any, other: Any) -> int:
    """How many examples of the other part have a twin in training; 0 for Datasets, which are not gone through."""
    if isinstance(train, Examples) and isinstance(other, Examples):
        known = set(of_rows(_told(train.x)))
        return sum(row in known for row in of_rows(_told(other.x)))
    if isinstance(train, Files) and isinstance(other, Files):
        sizes = [[path.stat().st_size for path in part.paths] for part in (train, other)]
        both = set(sizes[0]) & set(sizes[1])  # only these have to be read
        first, second = (
            of_files(path for path, size in zip(part.paths, own, strict=True) if size in both)
            for part, own in zip((train, other), sizes, strict=True)
        )
        known = set(first)
        return sum(content in known for content in second)
    return 0


def _told(x: Tensor) -> Tensor:
    """Examples, but texts that are empty: that these are alike is no leak."""
    return x[x.flatten(1).any(1)] if x.dtype == torch.int8 else x


def absent(parts: dict[str, Any], classes: Sequence[str]) -> list[str]:
    """A sentence for each of validation and test that lacks some of the classes."""
    found = []
    for key, words in WORDS.items():
        if isinstance(part := parts.get(key), Examples | Files):
            held = set(part.y.unique().tolist())
            lacking = [name for place, name in enumerate(classes) if place not in held]
            if lacking:
                others = f" and {len(lacking) - 1} more classes have" if len(lacking) > 1 else " has"
                them = "them" if len(lacking) > 1 else "it"
                found.append(f"{lacking[0]!r}{others} no {words} examples: scores there do not cover {them}.")
    return found


def uneven(y: Tensor, classes: Sequence[str]) -> str:
    """The shares of classes of very different sizes, in words; nothing where they are even.

    >>> import torch
    >>> uneven(torch.tensor([0] * 95 + [1] * 5), ["well", "ill"])
    "'well' has 95.0 % of the training examples, 'ill' 5.0 %"
    """
    counts = y.bincount(minlength=len(classes))
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < UNEVEN * counts[least]:
        return ""
    rare = [i for i in counts.argsort(stable=True).tolist() if counts[i] < RARE * len(y) and i != least]
    rare = [i for i in rare if counts[i] * 2 * len(classes) < len(y)][: NAMED - 1]  # of many classes, each is small
    shares = ", ".join(f"{classes[i]!r} {100 * int(counts[i]) / len(y):.1f} %" for i in (least, *rare))
    return f"{classes[most]!r} has {100 * int(counts[most]) / len(y):.1f} % of the training examples, {shares}"


def telling(columns: Mapping[str, Sequence[str]], values: Mapping[str, NDArray[Any]], y: NDArray[Any]) -> list[str]:
    """A sentence for each column of a table that says the answer by itself, in all rows.

    ``values`` are the columns of numbers. An answer that is a number is told by the same number, in whatever unit; a
    class by values that each go with one class alone, if they are not as many as to do so by chance, or by the order of
    numbers, of which a range goes with each class (as row numbers do where rows are sorted).

    >>> grade = np.array([0, 1] * 10)
    >>> telling({"passed": ["no", "yes"] * 10, "id": [str(i) for i in range(20)]}, {}, grade)
    ["The column 'passed' alone gives the target in all rows: if it will not be known for new data, --drop passed."]
    """
    if y.dtype.kind == "f" and y.ndim == 1:
        found = [name for name, column in values.items() if _same_but_for_unit(column, y)]
    elif y.ndim == 1:
        ranged = {name for name, column in values.items() if _in_ranges(column, y)}
        found = [name for name, cells in columns.items() if name in ranged or _goes_with_one(cells, y.tolist())]
    else:
        found = []
    if len(found) > NAMED:
        return [f"Each of {len(found)} columns, {found[0]!r} to {found[-1]!r}, alone gives the target in all rows."]
    return [
        f"The column {name!r} alone gives the target in all rows: if it will not be known for new data, "
        f"--drop {shlex.quote(name)}."
        for name in found
    ]


def _same_but_for_unit(column: NDArray[Any], y: NDArray[Any]) -> bool:
    known = ~np.isnan(column)
    if 2 * known.sum() < len(y):
        return False
    a, b = (each[known] - each[known].mean() for each in (column, y))
    scale = float(np.sqrt((a @ a) * (b @ b)))
    alike = abs(float(a @ b)) / scale if scale > 0 else 0.0
    return alike >= 1 - EXACT or (alike >= 1 - ROUNDED and known.sum() >= OFTEN and _but_for_rounding(a, b, column, y))


def _but_for_rounding(a: NDArray[Any], b: NDArray[Any], column: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether what the best line leaves of ``b`` is below one unit of the last digit of either, as they are written."""
    slope = float(a @ b) / float(a @ a)
    return float(np.abs(b - slope * a).max()) < max(_last_digit(y), abs(slope) * _last_digit(column))


def _last_digit(values: NDArray[Any]) -> float:
    """One unit of the last digit that numbers (NaN: none) are written with.

    >>> _last_digit(np.array([20.5, 3.0, np.nan])), _last_digit(np.array([1200.0]))
    (0.1, 1.0)
    """
    known = values[~np.isnan(values)]
    digits = (d for d in range(DIGITS) if np.allclose(known, known.round(d), rtol=FLOAT, atol=0))
    return float(10.0 ** -next(digits, DIGITS))


def _in_ranges(column: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether the numbers of each class lie in a range of their own."""
    kinds = len(np.unique(y))
    if np.isnan(column).any() or kinds * OFTEN > len(y):
        return False
    order = np.argsort(column, kind="stable")
    borders = np.flatnonzero(y[order][1:] != y[order][:-1])
    return len(borders) == kinds - 1 and bool((np.diff(column[order])[borders] > 0).all())


def _goes_with_one(cells: Sequence[str], y: Sequence[Any]) -> bool:
    kinds = len(set(cells))
    return kinds * OFTEN <= len(y) and len(set(zip(cells, y, strict=True))) == kinds
