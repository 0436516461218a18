"""Stochastic Lanczos quadrature: sums over all eigenvalues without knowing any of them.

For a random unit vector v, n vᵀf(H)v has the mean tr f(H), and m steps of Lanczos from v give the Gauss rule with m
nodes for vᵀf(H)v (Golub and Meurant 1994; Ghorbani, Krishnan and Xiao 2019 for networks). Eigenvectors that are known
are taken out first and counted exactly: a few large eigenvalues would otherwise make most of the spread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import LinAlgError, eigh_tridiagonal, solve
from torch import Tensor

from fallow.diagnose.lanczos import Array, Product


class Rule(NamedTuple):
    """Nodes, ascending, and their weights, which sum to 1."""

    nodes: Array
    weights: Array

    def below(self, point: float) -> float:
        """The weight below a point."""
        return float(self.weights[self.nodes < point].sum())


@dataclass(frozen=True)
class Tridiagonal:
    """What m Lanczos steps leave: the diagonal, and what is beside it, the last remainder included."""

    diagonal: Array
    beside: Array

    def gauss(self) -> Rule:
        """The Gauss rule, exact for polynomials of degree 2m − 1."""
        return _rule(self.diagonal, self.beside[:-1])

    def radau(self, point: float) -> Rule:
        """The rule with one more node, at ``point``."""
        remainder = self.beside[-1]
        if remainder == 0:  # the Gauss rule holds all there is
            return self.gauss()
        inner = self.beside[:-1]
        shifted = np.diag(self.diagonal - point) + np.diag(inner, 1) + np.diag(inner, -1)
        try:
            last = solve(shifted, np.eye(len(shifted))[-1], assume_a="sym")[-1]
        except LinAlgError:  # the point is a node already
            return self.gauss()
        return _rule(np.append(self.diagonal, point + remainder**2 * last), self.beside)

    def bounds(self, point: float) -> tuple[float, float]:
        """Between which shares the spectrum below ``point`` lies, whatever spectrum has these moments.

        They are the weights below the point in the rule with a node there, without and with that node's own weight
        (Chebyshev, Markov and Stieltjes).
        """
        rule = self.radau(point)
        if self.beside[-1] == 0:
            return rule.below(point), rule.below(point)
        at = int(np.abs(rule.nodes - point).argmin())
        return float(rule.weights[:at].sum()), float(rule.weights[: at + 1].sum())


def tridiagonal(
    product: Product, start: Tensor, steps: int, *, without: Tensor | None = None, window: int | None = None
) -> Tridiagonal:
    """Lanczos from ``start`` in the complement of the rows of ``without``, orthogonal to the last ``window`` vectors.

    A window shorter than ``steps`` spares memory; the rule then repeats nodes and divides their weight, which hardly
    changes sums.

    >>> rule = tridiagonal(torch.diag(torch.tensor([1.0, 2.0, 4.0])).mv, torch.ones(3), 3).gauss()
    >>> rule.nodes.round(4).tolist(), rule.weights.round(4).tolist()
    ([1.0, 2.0, 4.0], [0.3333, 0.3333, 0.3333])
    """
    known = 0 if without is None else len(without)
    steps = min(steps, len(start) - known)
    window = steps if window is None else max(2, min(window, steps))
    basis = start.new_zeros(known + window, len(start))
    if without is not None:
        basis[:known] = without
    vector = start - (basis[:known] @ start) @ basis[:known]
    vector = vector / vector.norm()
    diagonal: list[float] = []
    beside: list[float] = []
    epsilon = torch.finfo(start.dtype).eps
    for step in range(steps):
        basis[known + step % window] = vector
        orthogonal_to = basis[: known + min(step + 1, window)]
        image = product(vector)
        along = vector @ image
        image = image - (orthogonal_to @ image) @ orthogonal_to
        middle, remainder = torch.stack([along, image.norm()]).tolist()
        diagonal.append(middle)
        beside.append(remainder)
        if (
            remainder <= 8 * epsilon * len(diagonal) * max(map(abs, diagonal + beside))
            or step == len(start) - known - 1
        ):
            beside[-1] = 0.0
            break
        vector = image / remainder
    return Tridiagonal(np.array(diagonal), np.array(beside))


def _rule(diagonal: Array, beside: Array) -> Rule:
    nodes, vectors = eigh_tridiagonal(diagonal, beside)
    return Rule(nodes, vectors[0] ** 2)
