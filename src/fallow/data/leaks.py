"""What makes a score worth less than it seems: twins on both sides of a split, rare or absent classes, answers in x."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.data.content import of_files, of_rows
from fallow.data.examples import Examples, Files
from fallow.data.targets import Numbers, Target

WORDS = {"val": "validation", "test": "test"}
UNLIKELY, RELATED = 0.01, 2  # twins rarer than this by chance are a leak; related columns make them more frequent
UNEVEN = 3  # the largest class is this many times the smallest
RARE = 0.05  # a smaller share is named
FEW, HEAVY = 0.05, 0.9  # such a share of the examples makes up such a share of the variance: RMSE is theirs
NAMED = 3  # classes at most
OFTEN = 10  # rows a value, on average, from which on it is no chance that each goes with one answer
EXACT = 1e-9  # how far a correlation may be from 1, by the rounding of floats
ROUNDED = 1e-4  # and by that of what was written, if this explains all that is left
DIGITS, FLOAT = 12, 1e-12  # after the point at most; by which a float may miss what was written, as a share


def leaks(parts: dict[str, Any]) -> list[str]:
    """A sentence for each of validation and test that shares identical examples with training; rows before encoding."""
    found = []
    for key, words in WORDS.items():
        part = parts.get(key)
        if part is not None and (count := shared(parts["train"], part)):
            one = count == 1
            found.append(
                f"{count} of {len(part)} {words} examples {'equals' if one else 'equal'} a training example in every "
                "feature, as is to be expected of features with so few different values."
                if likely(count, parts["train"], part)
                else f"{count} of {len(part)} {words} examples {'is' if one else 'are'} in training too, identical to "
                f"the last bit: {'its score says' if one else 'their scores say'} nothing about new data; leave "
                f"{'it' if one else 'them'} out, or keep related examples together (groups)."
            )
    return found


def likely(count: int, train: Any, other: Any) -> bool:
    """Whether so many twins of training rows are no surprise, as in columns of few different values.

    With independent columns, n and m rows have n·m·Π_j c_j pairs of twins on average, where c_j is the share of pairs
    of training rows that are alike in column j. Of related columns twice as many are no surprise either.

    >>> coarse, fine = (Examples(torch.arange(24.0)[:, None] % kinds, torch.zeros(24)) for kinds in (6, 24))
    >>> likely(3, coarse, coarse), likely(3, fine, fine)
    (True, False)
    """
    if not (isinstance(train, Examples) and train.x.ndim == 2 and len(train) > 1):
        return False  # pictures, signals and texts are not alike by chance
    pairs = float(len(other) * len(train))
    for column in train.x.T.numpy(force=True):
        counts = np.unique(column, return_counts=True)[1].astype(float)
        pairs *= float(counts @ (counts - 1)) / (len(train) * (len(train) - 1))
        if pairs < UNLIKELY / RELATED**2:
            return False
    from scipy.special import pdtrc

    return bool(pdtrc(count - 1, RELATED * pairs) > UNLIKELY)


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
                them = "them" if len(lacking) > 1 else "it"
                found.append(f"{_and_others(lacking)} no {words} examples: scores there do not cover {them}.")
    return found


def unlike(target: Target, y: Tensor) -> list[str]:
    """What to say of numbers whose RMSE is mostly that of one of several, or of few training examples."""
    if not isinstance(target, Numbers):
        return []
    found = []
    largest, smallest = (pick(range(target.outputs), key=target.std.__getitem__) for pick in (max, min))
    if target.std[largest] > UNEVEN * target.std[smallest]:
        big, small = (f"{target.std[place]:.3g} ({target.names[place]!r})" for place in (largest, smallest))
        found.append(
            f"RMSE is the mean over {target.outputs} numbers of unlike size, with deviations from {small} to {big}, "
            f"and says most about {target.names[largest]!r}: --metric r2 counts all alike."
        )
    columns = y.double().reshape(len(y), -1).T
    for name, column in zip(target.names, columns, strict=True):
        squares = (column - column.mean()).square().sort(descending=True).values
        few = math.ceil(FEW * len(y))
        share = float(squares[:few].sum() / squares.sum())
        if share > HEAVY and len(y) >= 1 / FEW:
            instead = "its logarithm as the target, or " if bool((column > 0).all()) else ""
            found.append(
                f"{few} of {len(y)} training examples make up {100 * share:.0f} % of the variance of {name!r}, so RMSE "
                f"says little about the others: consider {instead}--metric mae."
            )
    return found


def _and_others(names: Sequence[str]) -> str:
    """The first of the classes and how many more have something: a subject and its verb.

    >>> [_and_others(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])]
    ["'a' has", "'a' and 1 other class have", "'a' and 2 other classes have"]
    """
    more = len(names) - 1
    return f"{names[0]!r}" + (f" and {more} other class{'es' * (more > 1)} have" if more else " has")


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
