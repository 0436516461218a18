"""Verdicts that stay valid however often one looks: sequential p-values and repeated intervals for paired results.

A test made for one look finds something sooner or later when it is asked again after every few seeds. Here the looks
are fixed in advance. With p_k the paired t-test at look k (corrected for overlapping splits, Nadeau & Bengio 2003)
and w_k its weight,

    q_n = min over looks k ≤ n of p_k / w_k,        sequential p = F(q_n),

where F is the distribution of q over *all* looks when there is no difference. A path of t-statistics does not depend
on the variance, so F depends on the looks and the overlap alone. P(F(q) ≤ α) ≤ α at the last look, and stopping
earlier, for whatever reason, can only miss a rejection: q never rises.

The weights are those of Haybittle (1971) and Peto et al. (1976): a strict level at every look but the last, which
keeps nearly all of its strength. Then F(q) lies between q and 1.35 q for the default looks.

>>> import numpy as np
>>> gain = 0.02 + 0.01 * np.random.default_rng(0).standard_normal(8)
>>> sequential_p(gain)  # at 4, 5, 6 and 8 seeds
array([0.0207..., 0.0103..., 0.0013..., 0.0002...])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtr, stdtrit

from fallow.base.errors import RequestError
from fallow.evaluate.statistics import detectable

LOOKS = (4, 5, 6, 8, 10, 12, 16, 20)
EARLY = 1 / 20  # the weight of every look but the last
PATHS = 400_000  # on which F stands: its relative error at 0.005 is 2 %
FURTHEST = 1_000  # seeds: nobody runs more to settle one question

Floats = NDArray[np.float64]


def looks_until(seeds: int) -> tuple[int, ...]:
    """The looks of a race of at most so many seeds, to be frozen before it starts; the last is at ``seeds``.

    >>> looks_until(10), looks_until(50)
    ((4, 5, 6, 8, 10), (4, 5, 6, 8, 10, 12, 16, 20, 25, 31, 38, 47, 50))
    """
    looks = list(LOOKS)
    while looks[-1] < seeds:
        looks.append(5 * looks[-1] // 4)
    return (*(k for k in looks if k < seeds), seeds)


class AtLooks(NamedTuple):
    """Paths of paired differences as they stood at each look that was reached (the last axis)."""

    seeds: NDArray[np.int64]
    mean: Floats
    spread: Floats
    error: Floats


class Repeated(NamedTuple):
    """A mean with its repeated interval at each look that was reached (the last axis)."""

    mean: Floats
    low: Floats
    high: Floats


def sequential_p(
    differences: ArrayLike,
    looks: Sequence[int] = LOOKS,
    overlap: float = 0.0,
    *,
    grain: float = 0.0,
    direction: int = 0,
) -> Floats:
    """The p-value at each look that is reached, valid at whichever look one stops.

    ``differences`` (…, seeds) are ours − theirs in the order of the seeds; a seed with a value that is not finite
    (a run that failed) is left out. ``overlap`` and ``grain`` are as in :func:`~fallow.evaluate.statistics.paired`.
    With ``direction`` 1 or −1 only looks at which the mean has that sign count: the two-sided p-value of a verdict
    in that direction, which both controls must support.
    """
    path = _at_looks(differences, looks, overlap, grain)
    sure = np.where(path.mean == 0, 0.0, np.copysign(np.inf, path.mean))  # differences all equal, and no grain
    t = np.divide(path.mean, path.error, out=sure, where=path.error > 0)
    p = 2 * stdtr(path.seeds - 1, -np.abs(t))
    if direction:
        p = np.where(np.sign(t) == direction, p, 1.0)
    q = np.minimum(p / _weights(looks)[: len(path.seeds)], 1.0)
    return _null(tuple(looks), round(overlap, 3)).probability(np.minimum.accumulate(q, axis=-1))


def repeated_interval(
    differences: ArrayLike,
    looks: Sequence[int] = LOOKS,
    overlap: float = 0.0,
    *,
    grain: float = 0.0,
    level: float = 0.95,
) -> Repeated:
    """The differences that :func:`sequential_p` does not reject at 1 − ``level``, at each look that is reached.

    Each look's own interval has the level that its weight leaves to it; what all looks so far agree on is the
    repeated interval, which covers the truth with probability ``level`` at whichever look one stops. Where they agree
    on nothing (as seldom as a miss) the interval is this look's own.
    """
    path = _at_looks(differences, looks, overlap, grain)
    half = edges(looks, overlap, 1 - level)[: len(path.seeds)] * path.error
    low = np.maximum.accumulate(path.mean - half, axis=-1)
    high = np.minimum.accumulate(path.mean + half, axis=-1)
    agreed = low <= high
    return Repeated(path.mean, np.where(agreed, low, path.mean - half), np.where(agreed, high, path.mean + half))


def chance_better(
    differences: ArrayLike,
    looks: Sequence[int] = LOOKS,
    overlap: float = 0.0,
    *,
    grain: float = 0.0,
    level: float = 0.05,
) -> Floats:
    """The predictive chance (…, looks reached, looks) that a later look rejects for "better" at this level.

    Given n differences with mean d̄ and deviation s and nothing else known, the mean of the first N > n is
    d̄ + s √((N − n) / (n N)) t with t of n − 1 degrees of freedom; the overlap does not enter, because all seeds of
    one pool share what it adds. The look at N rejects where that mean exceeds its edge · s √(1/N + overlap).
    """
    path = _at_looks(differences, looks, overlap, grain)
    return _later(path, looks, 1 - _below(path, looks, _half_width(path, looks, overlap, level)))


def chance_same(
    differences: ArrayLike,
    same: float,
    looks: Sequence[int] = LOOKS,
    overlap: float = 0.0,
    *,
    grain: float = 0.0,
    level: float = 0.05,
) -> Floats:
    """The predictive chance (…, looks reached, looks) that a later look's interval lies within ± ``same``."""
    path = _at_looks(differences, looks, overlap, grain)
    room = np.maximum(same - _half_width(path, looks, overlap, level), 0.0)
    return _later(path, looks, _below(path, looks, room) - _below(path, looks, -room))


def visible(seeds: int, looks: Sequence[int] = LOOKS, overlap: float = 0.0, *, level: float = 0.05) -> float:
    """The true difference, in standard deviations of the differences, that the look at ``seeds`` finds 4 times in 5.

    With overlapping splits it has a floor that no number of seeds removes.

    >>> round(visible(20, level=0.05 / 10), 2), round(visible(20, overlap=0.25, level=0.05 / 10), 2)
    (0.93, 2.28)
    """
    own = _null(tuple(looks), round(overlap, 3)).quantile(level) * (1.0 if seeds >= looks[-1] else EARLY)
    return detectable(seeds - 1, own) * math.sqrt(1 / seeds + overlap)


class Advice(NamedTuple):
    """What would decide an open question: so many more seeds, or (None) no number of them; a sentence; and how."""

    seeds: int | None
    sentence: str
    verdict: str = ""  # that these seeds would likely bring: "better", "worse" or "no different"


def advice(
    differences: ArrayLike,
    looks: Sequence[int] = LOOKS,
    overlap: float = 0.0,
    *,
    grain: float = 0.0,
    level: float = 0.05,
    same: float = 0.0,
) -> Advice:
    """What would decide a question that is open, if the differences (controls, seeds) are what they seem.

    The smallest N whose look decides with power 0.8: d̄ − z s √(N − n)/N beyond the edge of that look for every
    control, or d̄ with its interval inside ± ``same`` for every control.
    """
    path = _at_looks(np.atleast_2d(np.asarray(differences, float)), looks, overlap, grain)
    if not len(path.seeds):
        return Advice(None, f"{looks[0]} seeds are needed for a first look")
    n, mean, spread = int(path.seeds[-1]), path.mean[:, -1:], path.spread[:, -1:]

    def first(overlap: float) -> tuple[int, str] | None:
        later = np.arange(n + 1, FURTHEST + 1)
        own = _null(tuple(looks), round(overlap, 3)).quantile(level) * np.where(later < looks[-1], EARLY, 1.0)
        half = -stdtrit(later - 1, own / 2) * spread * np.sqrt(1 / later + overlap)
        noise = ndtri(0.8) * spread * np.sqrt(later - n) / later
        decided = {
            "better": mean - noise > half,
            "worse": -mean - noise > half,
            "no different": np.abs(mean) + noise + half < same,
        }
        found = [(int(later[by.all(0).argmax()]) - n, how) for how, by in decided.items() if by.all(0).any()]
        return min(found, default=None)

    if (found := first(overlap)) is not None:
        more, how = found
        return Advice(more, f"about {more} more seed{'s' * (more > 1)} would decide this, likely as {how}", how)
    if overlap and first(0.0) is not None:
        return Advice(None, "more seeds cannot decide this; more test data can")
    if len(set(np.sign(mean).ravel())) > 1:
        return Advice(None, "between the controls; more seeds would not change that")
    return Advice(None, f"the difference is too small to be seen even with {FURTHEST:,} seeds")


def edges(looks: Sequence[int], overlap: float, level: float) -> Floats:
    """The t-statistic beyond which each look rejects at this level: that of p_k = w_k F⁻¹(level)."""
    own = _weights(looks) * _null(tuple(looks), round(overlap, 3)).quantile(level)
    return np.asarray(-stdtrit(np.array(looks) - 1, own / 2))


def _at_looks(differences: ArrayLike, looks: Sequence[int], overlap: float, grain: float) -> AtLooks:
    if looks[0] < 2 or any(after <= before for before, after in pairwise(looks)):
        raise RequestError(f"looks must rise from 2 seeds or more, not {', '.join(map(str, looks))}")
    d = np.asarray(differences, dtype=np.float64)
    d = d[..., np.isfinite(d).all(axis=tuple(range(d.ndim - 1)))]
    seeds = np.array([k for k in looks if k <= d.shape[-1]], dtype=np.int64)
    mean, spread = np.empty((2, *d.shape[:-1], len(seeds)))
    for i, k in enumerate(seeds):
        mean[..., i] = d[..., :k].mean(-1)
        spread[..., i] = d[..., :k].std(-1, ddof=1)
    spread = np.maximum(spread, grain / math.sqrt(6))  # of a difference of two rounded numbers
    return AtLooks(seeds, mean, spread, spread * np.sqrt(1 / seeds + overlap))


def _below(path: AtLooks, looks: Sequence[int], bound: Floats) -> Floats:
    """The predictive chance (…, looks reached, looks) that the mean at each look is at most this bound."""
    n, later = path.seeds[:, None], np.array(looks)
    width = path.spread[..., None] * np.sqrt(np.maximum(later - n, 0) / (n * later))
    gap = bound - path.mean[..., None]
    known = np.where(gap >= 0, np.inf, -np.inf)  # nothing varies: the mean stays where it is
    return np.asarray(stdtr(n - 1, np.divide(gap, width, out=known, where=width > 0)))


def _half_width(path: AtLooks, looks: Sequence[int], overlap: float, level: float) -> Floats:
    """Half of each look's own interval (…, looks reached, looks), if the spread stays what it is."""
    return path.spread[..., None] * edges(looks, overlap, level) * np.sqrt(1 / np.array(looks) + overlap)


def _later(path: AtLooks, looks: Sequence[int], chance: Floats) -> Floats:
    """A chance at the looks still to come, 0 at those that are past."""
    return np.where(np.array(looks) > path.seeds[:, None], chance, 0.0)


def _weights(looks: Sequence[int]) -> Floats:
    return np.array([EARLY] * (len(looks) - 1) + [1.0])


class Null(NamedTuple):
    """F, the distribution of q over all looks without a difference: sorted draws, and Σ w_k.

    Whatever the draws say, q ≤ F(q) ≤ q Σ w_k: the last look alone, and Bonferroni over all of them.
    """

    draws: Floats
    slope: float

    def probability(self, q: Floats) -> Floats:
        """F(q) as a Monte Carlo p-value, which counts itself; beyond the furthest draw the bound is sharper."""
        rank = np.searchsorted(self.draws, q, side="right")
        return np.clip((1 + rank) / (1 + len(self.draws)), q, self.slope * q)

    def quantile(self, level: float) -> float:
        """The q at which F reaches the level."""
        rank = math.floor(level * (1 + len(self.draws))) - 1
        return float(np.clip(self.draws[rank] if rank >= 0 else 0.0, level / self.slope, level))


@lru_cache(maxsize=16)
def _null(looks: tuple[int, ...], overlap: float) -> Null:
    """F from simulated paths d_i = √overlap · c + e_i: the correlation that the corrected t-test assumes.

    The same in every process: the seed is fixed. A p-value is only computed where it can matter (q < 1).
    """
    draw = np.random.default_rng(0)
    weights, size = _weights(looks), 10_000
    minima = []
    for _ in range(PATHS // size):
        d = draw.standard_normal((looks[-1], size), dtype=np.float32)
        if overlap:
            d += math.sqrt(overlap) * draw.standard_normal(size, dtype=np.float32)
        total, square, q = np.zeros(size), np.zeros(size), np.ones(size)
        for start, k, weight in zip((0, *looks), looks, weights, strict=False):
            total += d[start:k].sum(0)
            square += np.einsum("ij,ij->j", d[start:k], d[start:k])
            mean = total / k
            around = np.maximum(square - mean * total, 1e-12)  # rounding may take two equal draws below 0
            t = np.abs(mean) / np.sqrt(around / (k - 1) * (1 / k + overlap))
            near = np.flatnonzero(t > -stdtrit(k - 1, weight / 2))
            q[near] = np.minimum(q[near], 2 * stdtr(k - 1, -t[near]) / weight)
        minima.append(q)
    return Null(np.sort(np.concatenate(minima)), float(weights.sum()))
