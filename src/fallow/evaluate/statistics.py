"""Is one method better than another? Exact tests for paired results, corrected for asking many questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb


def binomial_test(wins: int, trials: int) -> float:
    """P(at least ``wins`` successes in ``trials`` fair coin tosses): the exact one-sided binomial test.

    LW's table 3 tests with it whether a method beats another over data sets and settings.

    >>> binomial_test(5, 5)
    0.03125
    >>> binomial_test(0, 0)
    1.0
    """
    return sum(comb(trials, k) for k in range(wins, trials + 1)) / 2**trials


def sign_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The exact binomial test on pairs: p-value for "ours is larger", ties left out.

    >>> sign_test([3, 4, 5, 6], [1, 2, 5, 7])
    0.5
    """
    wins = sum(a > b for a, b in zip(ours, theirs, strict=True))
    losses = sum(a < b for a, b in zip(ours, theirs, strict=True))
    return binomial_test(wins, wins + losses)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values, to be compared with the level itself.

    The i-th smallest of m is multiplied by m − i + 1, and none is below the one before it.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def significance(results: Mapping[str, Sequence[float]], level: float = 0.05) -> dict[tuple[str, str], str]:
    """LW's table 3: for every ordered pair, whether the second method outperforms the first.

    ``results`` holds each method's accuracies in the same settings, in the same order. A pair maps to "○" when
    it is significant after Holm's correction over all pairs, to "★" when only without, else to "".
    """
    pairs = [(row, column) for row in results for column in results if row != column]
    p_values = [sign_test(results[column], results[row]) for row, column in pairs]
    marks = {}
    for pair, plain, corrected in zip(pairs, p_values, holm(p_values), strict=True):
        marks[pair] = "○" if corrected <= level else "★" if plain <= level else ""
    return marks
