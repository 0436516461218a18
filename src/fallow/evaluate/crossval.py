"""Is one method better than another in k-fold cross-validation, where every example is a test example once?"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from fallow.base.errors import RequestError
from fallow.evaluate.statistics import Difference, detectable


def crossval_difference(
    ours: ArrayLike,
    theirs: ArrayLike,
    folds: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.05,
    questions: int = 1,
) -> Difference:
    """The difference of two methods over repeated k-fold cross-validation, from what each did on every example.

    ``ours`` and ``theirs`` (repeats, examples), or (examples,) for one repeat, hold each example's score as a test
    example, larger is better (1 for right and 0 for wrong, or minus a loss); ``folds`` of the same shape says in
    which fold it was one. ``groups`` are examples that belong together and always share a fold.

    With h_i the difference on example i, averaged over the repeats, √n (h̄ − E h̄) is asymptotically normal with the
    variance of the h_i, for methods that are stable: whose answers one training example more or less hardly changes
    (Bayle et al. 2020, theorems 1 and 5, their all-pairs estimator). Networks are less stable than that, and the
    models of two folds differ by luck also; so to that variance over n comes the part τ² of the variance of the
    folds' means that their examples do not explain, over the number of models:

        Var(h̄) = s²(h) / n + τ² / (k R),    τ² = max(0, mean over repeats of s²(fold means) − s²(within folds) k/n).

    Degrees of freedom by Satterthwaite. What stays out of sight is the luck of the one pool that all folds train on,
    which no estimator sees (Bengio & Grandvalet 2004). Simulated at 0.05 with two equal learners on pools of 300:
    3 to 5 % false alarms where they are stable, 7 to 9 % where a model is mostly luck (24 % without τ²).
    ``smallest`` is as in :func:`~fallow.evaluate.statistics.paired`.

    >>> ours, theirs = [1, 1, 1, 0, 1, 1, 1, 1], [1, 0, 1, 0, 0, 1, 0, 1]
    >>> found = crossval_difference(ours, theirs, [0, 0, 1, 1, 2, 2, 3, 3])
    >>> found.mean, round(found.p, 3)
    (0.375, 0.08)
    """
    d = np.atleast_2d(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64))
    fold = np.atleast_2d(np.asarray(folds))
    if fold.shape != d.shape:
        raise RequestError(f"folds are given for {fold.shape} (repeats, examples), differences for {d.shape}")
    n = d.shape[1]
    h = d.mean(0)
    mean = float(h.mean())
    unit = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    count = int(unit.max()) + 1
    examples = float(_variance_of_means(h, np.zeros(n, int), unit)[0])
    between, explained, freedom = _models(d, fold, unit)
    luck = max(0.0, between - explained)
    variance = examples + luck
    if variance == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, 0.0)
    df = variance**2 / (examples**2 / (count - 1) + (between**2 / freedom if luck else 0.0))
    error = math.sqrt(variance)
    half = float(stdtrit(df, 1 - level / 2)) * error
    p = float(2 * stdtr(df, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, p, detectable(df, level / questions) * error)


def _variance_of_means(
    values: NDArray[np.float64], parts: NDArray[np.int64], unit: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The variance of each part's mean over new units: Σ_u (Σ residuals of u)² / n² · U / (U − 1); s²/n for singles."""
    sizes = np.bincount(parts)
    residuals = values - (np.bincount(parts, weights=values) / sizes)[parts]
    sums, part = np.bincount(unit, weights=residuals), parts[np.unique(unit, return_index=True)[1]]
    units = np.bincount(part)
    found: NDArray[np.float64] = np.bincount(part, weights=sums**2) / sizes**2 * units / np.maximum(units - 1, 1)
    return found


def _models(d: NDArray[np.float64], fold: NDArray[np.generic], unit: NDArray[np.int64]) -> tuple[float, float, int]:
    """The variance of the folds' means and what their examples explain of it, both over the number of models; and
    the degrees of freedom of the first.
    """
    between, explained, models, freedom = [], [], 0, 0
    for differences, labels in zip(d, fold, strict=True):
        parts = np.unique(labels, return_inverse=True)[1]
        means = np.bincount(parts, weights=differences) / np.bincount(parts)
        between.append(means.var(ddof=1))
        explained.append(_variance_of_means(differences, parts, unit).mean())
        models += len(means)
        freedom += len(means) - 1
    return float(np.mean(between)) / models, float(np.mean(explained)) / models, freedom
