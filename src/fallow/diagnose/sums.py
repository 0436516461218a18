"""What a whole spectrum adds up to: eigenvalues that are known one by one, and quadrature rules for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fallow.diagnose.intervals import Probed, half_width
from fallow.diagnose.lanczos import Array
from fallow.diagnose.quadrature import Rule, Tridiagonal

POINTS = 1001  # of a density's grid


@dataclass(frozen=True)
class Density:
    """Eigenvalues per unit of length, as a share of all: ``values`` integrates to 1 over ``grid``.

    Every eigenvalue is blurred to a Gaussian with the standard deviation ``width``; ``error`` is half the 95 % interval
    at each point.
    """

    grid: Array
    values: Array
    error: Array
    width: float

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        arrays = {"grid": self.grid, "values": self.values, "error": self.error}
        return {"width": self.width} | {name: array.tolist() for name, array in arrays.items()}


class Sums:
    """Sums over ``known`` eigenvalues and over ``rest`` more, for which each probe has left a quadrature rule.

    Eigenvalues below ``rounding`` cannot be told from 0.
    """

    def __init__(self, known: Array, probes: list[Tridiagonal], rest: int, rounding: float = 0.0) -> None:
        self.known, self.probes, self.rest, self.rounding = known, probes, rest, rounding
        self.rules = [probe.gauss() for probe in probes]

    def negative_mass(self) -> Probed:
        """Σ|λ⁻| / Σ|λ|, a ratio of two means.

        A Gauss rule errs where the function has its kink, at 0. A rule with a node just there errs otherwise, so the
        difference of the two is added to the interval.
        """
        lost, whole = _negative(self.known).sum(), np.abs(self.known).sum()
        below = self._each(self.rules, _negative)
        size = self._each(self.rules, np.abs)
        if self.rules:
            lost, whole = lost + below.mean(), whole + size.mean()
        if whole == 0:
            return Probed(0.0, 0.0, 0.0)
        share = lost / whole
        spread = self.rounding * (self.rest + len(self.known)) / whole
        if self.rules:
            other = self._each([probe.radau(0.0) for probe in self.probes], _negative)
            spread += (half_width(below - share * size) + np.abs(other - below).mean()) / whole
        return _between(share, share - spread, share + spread)

    def share_below(self, point: float) -> Probed:
        """How many of all eigenvalues lie below a point.

        The interval spans the bounds that hold for every spectrum with the probes' moments, and the spread of these.
        """
        total, sure = self.rest + len(self.known), int((self.known < point).sum())
        if not self.rules:
            return _between(sure / total, sure / total, sure / total)
        value = np.mean([rule.below(point) for rule in self.rules])
        bounds = np.array([probe.bounds(point) for probe in self.probes])
        least = bounds[:, 0].mean() - half_width(bounds[:, 0])
        most = bounds[:, 1].mean() + half_width(bounds[:, 1])
        shares = (value, min(value, least), max(value, most))
        return _between(*((sure + self.rest * share) / total for share in shares))

    def density(self, width: float) -> Density:
        """The density on a grid from the smallest eigenvalue to the largest, with room for the blur."""
        total = self.rest + len(self.known)
        nodes = np.concatenate([self.known, *(rule.nodes for rule in self.rules)])
        width = width or abs(nodes).max() * 1e-3 or 1.0  # all eigenvalues are one
        grid = np.linspace(nodes.min() - 4 * width, nodes.max() + 4 * width, POINTS)
        values = _blurred(grid, self.known, np.ones(len(self.known)), width) / total
        if not self.rules:
            return Density(grid, values, np.zeros(POINTS), width)
        each = np.stack([_blurred(grid, *rule, width) for rule in self.rules]) * (self.rest / total)
        error = np.array([half_width(column) for column in each.T])
        return Density(grid, values + each.mean(0), error, width)

    def _each(self, rules: list[Rule], function: Callable[[Array], Array]) -> Array:
        """Every probe's estimate of the sum of ``function`` over the rest."""
        return np.array([self.rest * rule.weights @ function(rule.nodes) for rule in rules])


def _negative(values: Array) -> Array:
    return np.maximum(-values, 0)


def _between(value: float, low: float, high: float) -> Probed:
    """A share, which no interval leaves."""
    return Probed(*(float(min(1.0, max(0.0, one))) for one in (value, low, high)))


def _blurred(grid: Array, nodes: Array, weights: Array, width: float) -> Array:
    distance = (grid[:, None] - nodes[None]) / width
    return np.exp(-0.5 * distance**2) @ weights / (width * math.sqrt(2 * math.pi))
