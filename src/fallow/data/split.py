"""Stratified splits whose totals are exact and whose proportions are as near as whole numbers allow."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Generator, Tensor

from fallow.base.errors import RequestError


def stratified(y: Tensor, carve: int | float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Split into (kept, carved) indices, each ascending: ``carve`` is a number (int) or a fraction (float).

    Classes are carved in proportion (see `apportion`); within a class the choice is random.

    >>> y = torch.tensor([0] * 6 + [1] * 3)
    >>> kept, carved = stratified(y, 3, torch.Generator().manual_seed(0))
    >>> y[carved].tolist(), y[kept].tolist()
    ([0, 0, 1], [0, 0, 0, 0, 1, 1])
    """
    number = int(carve) if isinstance(carve, Integral) else round(carve * len(y))
    _, where, counts = torch.unique(y, return_inverse=True, return_counts=True)
    takes = torch.tensor(apportion(counts.tolist(), number))
    shuffled = torch.randperm(len(y), generator=generator)
    by_class = shuffled[torch.argsort(where[shuffled], stable=True)]  # class after class, random within each
    starts = torch.cumsum(counts, 0) - counts
    rank = torch.arange(len(y)) - starts.repeat_interleave(counts)  # place of an example within its class
    take = rank < takes.repeat_interleave(counts)
    return by_class[~take].sort().values, by_class[take].sort().values


def balanced(strata: Tensor, carve: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """As `stratified` where all strata can keep an example, else at random: strata that help, but are no classes."""
    roomy = carve <= len(strata) - len(strata.unique())
    return stratified(strata if roomy else torch.zeros_like(strata), carve, generator)


def folds(y: Tensor, number: int, generator: Generator, groups: Tensor | None = None) -> Tensor:
    """The fold of every example, from 0: each stratum is dealt out evenly, and a group stays in one fold.

    >>> folds(torch.tensor([0, 0, 0, 0, 1, 1]), 2, torch.Generator().manual_seed(0)).bincount()
    tensor([3, 3])
    """
    if groups is not None:
        from sklearn.model_selection import StratifiedGroupKFold

        draw = int(torch.randint(2**31, (), generator=generator))
        where, parts = (
            torch.empty(len(y), dtype=torch.long),
            StratifiedGroupKFold(number, shuffle=True, random_state=draw),
        )
        for fold, (_, held) in enumerate(parts.split(y, y, groups)):
            where[torch.from_numpy(held)] = fold
        return where
    shuffled = torch.randperm(len(y), generator=generator)
    by_class = shuffled[torch.argsort(y[shuffled], stable=True)]  # class after class, random within each
    where = torch.empty_like(by_class)
    where[by_class] = torch.arange(len(y)) % number
    return where


def apportion(counts: list[int], number: int) -> list[int]:
    """How many to take from each class, ``number`` in all: the largest remainders round up.

    No class is emptied, and none is left out if ``number`` reaches round; within those bounds the result
    is the nearest to exact proportion (least sum of squared differences). Ties go to the earlier class.

    >>> apportion([60, 30, 10], 11)
    [7, 3, 1]
    >>> apportion([98, 2], 10)      # in proportion 9.8 and 0.2
    [9, 1]
    """
    most = [count - 1 for count in counts]
    if not 0 <= number <= sum(most):
        raise RequestError(
            f"cannot carve {number} of {sum(counts)} examples and keep one of each of {len(counts)} classes: "
            f"carve at most {sum(most)}"
        )
    least = [min(1, limit) for limit in most]
    if sum(least) > number:
        least = [0] * len(counts)
    quotas = [number * count / sum(counts) for count in counts]
    takes = [min(max(int(q), low), high) for q, low, high in zip(quotas, least, most, strict=True)]
    while (gap := number - sum(takes)) != 0:
        step = 1 if gap > 0 else -1
        free = [i for i, take in enumerate(takes) if (take < most[i] if gap > 0 else take > least[i])]
        takes[max(free, key=lambda i: step * (quotas[i] - takes[i]))] += step
    return takes
