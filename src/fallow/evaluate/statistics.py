"""Is one method better than another? Tests for paired results, corrected for asking many questions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from math import comb
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import nctdtr, ndtri, stdtr, stdtrit


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


def level_means(values: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Each one's mean over all seeds, also those that it did not run: of value = runner + seed, by least squares.

    After a race some have more seeds than others, and a plain mean would mix what a runner is worth with how easy its
    seeds were. With the same seeds for all it is the plain mean.

    >>> level_means({"a": {0: 1.0, 1: 5.0}, "b": {0: 2.0}})
    {'a': 3.0, 'b': 4.0}
    """
    names, seeds = list(values), sorted({seed for each in values.values() for seed in each})
    cells = [(names.index(name), len(names) + seeds.index(seed)) for name, each in values.items() for seed in each]
    design = np.zeros((len(cells), len(names) + len(seeds)))
    design[np.arange(len(cells))[:, None], np.array(cells, dtype=int).reshape(-1, 2)] = 1
    found = np.linalg.lstsq(design, np.array([v for each in values.values() for v in each.values()]), rcond=None)[0]
    easy = found[len(names) :].mean() if seeds else 0.0
    # rounded, as ties must stay ties
    return {name: round(float(found[i] + easy), 12) for i, name in enumerate(names) if values[name]}


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


class Estimate(NamedTuple):
    """A mean with its interval; the ends are None where one value, or one that is not finite, cannot tell."""

    mean: float
    low: float | None
    high: float | None


class Difference(NamedTuple):
    """A paired difference (ours − theirs) with its interval, and what a two-sided t-test says of it."""

    mean: float
    low: float
    high: float
    p: float
    smallest: float  # the difference that this experiment would have seen with 80 % power


def interval(values: Sequence[float], level: float = 0.95, *, overlap: float = 0.0, grain: float = 0.0) -> Estimate:
    """The mean and Student's interval around it; ``overlap`` and ``grain`` as in :func:`paired`.

    >>> interval([0.5, 0.75, 1.0])
    Estimate(mean=0.75, low=0.128..., high=1.371...)
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2 or not math.isfinite(mean):
        return Estimate(mean, None, None)
    spread = max(statistics.stdev(values), grain / math.sqrt(12))  # of a rounded number
    half = float(stdtrit(n - 1, (1 + level) / 2)) * spread * math.sqrt(1 / n + overlap)
    return Estimate(mean, mean - half, mean + half)


def share(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The share of ones among zeros and ones, with Wilson's interval, which is wide also where all are alike.

    >>> share([1.0] * 18)
    Estimate(mean=1.0, low=0.824..., high=1.0)
    """
    n, z = len(values), float(ndtri((1 + level) / 2))
    mean = math.fsum(values) / n
    centre, whole = mean + z**2 / (2 * n), 1 + z**2 / n
    half = z * math.sqrt(mean * (1 - mean) / n + (z / (2 * n)) ** 2)
    return Estimate(mean, max(0.0, (centre - half) / whole), min(1.0, (centre + half) / whole))


def paired(
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    overlap: float = 0.0,
    grain: float = 0.0,
    level: float = 0.05,
    questions: int = 1,
) -> Difference | None:
    """The corrected resampled t-test (Nadeau & Bengio 2003) on pairs.

    None where nothing can be told: of fewer than two pairs, or where one is not finite.

    With d_i = ours_i − theirs_i and s their standard deviation, t = d̄ / (s √(1/n + overlap)) has n − 1
    degrees of freedom. ``overlap`` is test/train size where every seed splits the same pool anew: the parts of
    two seeds then share examples, the differences are correlated, and the plain test (overlap 0, right for a
    test set of its own) finds effects where there are none. ``grain`` is the step in which a score can move, one
    over the test examples: differences that happen to be equal are known no better than that.

    ``smallest`` is the true difference that the test would find with a power of 80 % at level/questions, the
    first and strictest step of Holm's correction over so many questions.

    >>> found = paired([0.93, 0.95, 0.94, 0.96], [0.91, 0.92, 0.93, 0.94])
    >>> round(found.mean, 3), round(found.p, 3), found.low > 0
    (0.02, 0.016, True)
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    n = len(differences)
    if n < 2 or not all(map(math.isfinite, differences)):
        return None
    mean = math.fsum(differences) / n
    spread = max(statistics.stdev(differences), grain / math.sqrt(6))  # of a difference of two rounded numbers
    error = spread * math.sqrt(1 / n + overlap)
    if error == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, 0.0)
    half = float(stdtrit(n - 1, 1 - level / 2)) * error
    p = float(2 * stdtr(n - 1, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, p, detectable(n - 1, level / questions) * error)


def detectable(freedom: float, level: float, power: float = 0.8) -> float:
    """The shift, in standard errors, that a two-sided t-test at this level finds with this power."""
    edge = float(stdtrit(freedom, 1 - level / 2))
    far = 1.5 * edge + 2  # beyond any answer; much further out, nctdtr is NaN
    return float(brentq(lambda shift: nctdtr(freedom, shift, edge) - (1 - power), 0.0, far))
