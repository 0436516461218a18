"""What more labels would bring: a power law through the errors at a few sizes of the training set.

Errors fall with the number n of labels as (Hestness et al. 2017; Rosenfeld et al. 2020)

    f(n) = e·[u + (1 − u)·(n/N)⁻ᶜ],    e the error at all N labels, u the share of it that no labels remove, c > 0.

Four sizes do not tell u from c, so no best fit is taken. The forecast is the mean over all u and c, by how well they
fit; its interval holds every value that some u and c would not reject together with the errors that were measured (the
profile of the likelihood). It is that of the mean over the seeds that were run, and it ends at twice the labels:
further out the curves that fit alike here no longer agree.

>>> sizes = [250, 500, 750, 1000]
>>> errors = [[0.4 * (n / 250) ** -0.5 + wobble for wobble in (-0.004, 0.0, 0.004)] for n in sizes]
>>> found = curve(sizes, errors).at(2000)
>>> round(found.mean, 2), found.low < 0.4 * 8**-0.5 < found.high
(0.14, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import stdtrit

from fallow.base.errors import RequestError
from fallow.evaluate.statistics import Estimate

FURTHEST = 2.0  # times the labels there are
POWERS = np.linspace(0.01, 1.5, 150)  # c; measured curves have 0.07 to 0.5, small ones up to 1
SHARES = np.linspace(0.0, 0.99, 100)  # u
ROUGH = 0.005  # of an error, by which curves differ from power laws

Floats = NDArray[np.float64]


class LearningCurve(NamedTuple):
    """All power laws that go through the measured errors, and how well they do."""

    labels: float  # N, the most that were tried
    u: Floats
    c: Floats
    e: Floats  # the error at N that fits each best
    error: Floats  # its standard error
    miss: Floats  # the squared distance of each from the errors, in standard errors, beyond that of the nearest
    weight: Floats  # of each, 1 in all
    noise: float  # the standard error of a mean measured at N
    freedom: float  # the degrees of freedom of the noise

    def at(self, labels: float, level: float = 0.9) -> Estimate:
        """The error at so many labels, with its interval; not beyond twice those that there are."""
        if not 0 < labels <= FURTHEST * self.labels:
            raise RequestError(f"{labels:g} labels are beyond twice the {self.labels:g} that were tried: no forecast")
        shape = self.u + (1 - self.u) * (labels / self.labels) ** -self.c
        width = np.sqrt((self.error * shape) ** 2 + self.noise**2 * shape)
        room = np.maximum(stdtrit(self.freedom, (1 + level) / 2) ** 2 - self.miss, 0.0)
        allowed = room > 0
        reach, middle = (np.sqrt(room) * width)[allowed], (self.e * shape)[allowed]
        low, high = float((middle - reach).min()), float((middle + reach).max())
        mean = float(self.weight @ (self.e * shape))  # may lie beyond, where no power law fits well
        return Estimate(mean, max(0.0, min(low, mean)), max(high, mean))


def curve(labels: Sequence[float], errors: ArrayLike) -> LearningCurve:
    """The power laws for errors (sizes, seeds) at so many labels, of which the largest size is the last."""
    n, y = np.asarray(labels, np.float64), np.asarray(errors, np.float64)
    if len(n) < 3 or y.shape[:1] != n.shape or y.ndim != 2 or y.shape[1] < 2 or (np.diff(n) <= 0).any():
        raise RequestError("a curve needs three sizes or more that rise, and two seeds or more at each")
    least = y[y > 0].min() / y.shape[1] if (y > 0).any() else 1.0  # where all seeds have none, there is still noise
    level = np.maximum(y.mean(1), least)
    size = np.sqrt(level / level[-1])  # the noise of an error grows with its root
    z = y / size[:, None]
    left = z - z.mean(1, keepdims=True) - z.mean(0) + z.mean()  # a seed's luck is the same at every size
    freedom = float((z.shape[0] - 1) * (z.shape[1] - 1))
    variance = float(np.square(left).sum()) / freedom / z.shape[1]  # of a mean over seeds
    variance = max(variance, (ROUGH * float(y[-1].mean())) ** 2, 1e-12)
    c, u = (grid.ravel() for grid in np.meshgrid(POWERS, SHARES))
    shape = (u[:, None] + (1 - u[:, None]) * (n / n[-1]) ** -c[:, None]) / size
    square = np.square(shape).sum(1)
    e = np.maximum(shape @ z.mean(1) / square, 0.0)
    miss = np.square(z.mean(1) - e[:, None] * shape).sum(1) / variance
    weight = (1 + miss / freedom) ** (-(freedom + len(n) - 1) / 2) / np.sqrt(square)  # Student's, e integrated out
    error = np.sqrt(variance / square)
    return LearningCurve(
        float(n[-1]), u, c, e, error, miss - miss.min(), weight / weight.sum(), float(np.sqrt(variance)), freedom
    )


def worth(ours: Floats, labels: Sequence[float], theirs: LearningCurve) -> float | None:
    """How many labels the other method needs for the mean of our errors at all labels; None: more than twice as many.

    By the mean of its curve; 0 gain where ours are no better.
    """
    target = float(np.mean(ours))
    most = FURTHEST * theirs.labels
    if theirs.at(most).mean > target:
        return None
    least = float(min(labels))
    if theirs.at(least).mean <= target:
        return least
    return float(brentq(lambda n: theirs.at(n).mean - target, least, most))
