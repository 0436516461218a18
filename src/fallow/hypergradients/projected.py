"""Solutions inside a Krylov space: a small problem in T on the host, after all products are done."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fallow.hypergradients.krylov import FLAT, Krylov, enough, lanczos
from fallow.hypergradients.products import Operator
from fallow.hypergradients.solution import CONVERGED, USED_UP, Solution, falls, tolerance

SOLVED = 0.03  # the residual that an automatic damping leaves: a cosine above .999 to the damped inverse


def projected(A: Operator, b: Tensor, iterations: int, damping: float | str, small: Small) -> Solution:
    """The solution in the Krylov space: Q·y, with y and its residual from the small problem in T.

    The damping "auto" is above the most negative curvature, and doubled until these products solve the system.
    """
    reason = USED_UP
    for space in lanczos(A, b, iterations):
        curvature, low, high = space.extremes()
        rho = enough(low, high) if isinstance(damping, str) else damping
        if isinstance(damping, str) and low + rho <= 0:
            raise falls(curvature, rho)
        y, residual = small(space, rho)
        if residual <= tolerance(b):
            reason = CONVERGED
            break
    while isinstance(damping, str) and residual > SOLVED:
        rho = max(2 * rho, FLAT * abs(high))
        y, residual = small(space, rho)
    return Solution(space.combine(y), reason, rho, residual, curvature)


class Small(Protocol):
    """Solves the small problem: gives y, and the residual relative to ‖b‖."""

    def __call__(self, space: Krylov, damping: float) -> tuple[Tensor, float]: ...


def galerkin(space: Krylov, damping: float) -> tuple[Tensor, float]:
    """(T + ρI)·y = ‖b‖·e_1: conjugate gradients."""
    T = space.matrix()
    T.diagonal().add_(damping)
    y = torch.linalg.solve(T, _unit(len(T), space.norm))
    return y, space.side[-1] * abs(float(y[-1])) / space.norm


def least_squares(space: Krylov, damping: float) -> tuple[Tensor, float]:
    """The y with the smallest ‖[T + ρI; β·e_jᵀ]·y − ‖b‖·e_1‖: MINRES."""
    T = space.matrix()
    T.diagonal().add_(damping)
    tall = torch.cat([T, _unit(len(T), space.side[-1]).flip(0)[None]])
    wanted = _unit(len(tall), space.norm)
    y = torch.linalg.lstsq(tall, wanted[:, None], driver="gelsd").solution[:, 0]
    return y, float((wanted - tall @ y).norm()) / space.norm


def unrolled(space: Krylov, alpha: float, damping: float) -> tuple[Tensor, Tensor, list[float]]:
    """Neumann's p_j and Σ_{i≤j} p_i after the products in the space, and the norms of p_0 … p_j.

    The powers are taken of T, with a row for q_{j+1}; its own diagonal entry would matter from p_{j+1} on only.
    """
    T = space.matrix()
    if space.side[-1]:
        size = len(T)
        T = torch.nn.functional.pad(T, (0, 1, 0, 1))
        T[size, size - 1] = space.side[-1]
    T.diagonal().add_(damping)
    p = total = _unit(len(T), space.norm)
    norms = [float(p.norm())]
    for _ in space.main:
        p = p - alpha * (T @ p)
        total = total + p
        norms.append(float(p.norm()))
    return space.combine(p), space.combine(total), norms


def _unit(size: int, length: float) -> Tensor:
    unit = torch.zeros(size, dtype=torch.float64)
    unit[0] = length
    return unit
