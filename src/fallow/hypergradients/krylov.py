"""Lanczos: what j products with A tell about A along b, before anything has to be decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fallow.hypergradients.products import Operator

FLAT = 1e-3  # of the largest curvature: directions flatter than this are damped, or they would decide everything


@dataclass
class Krylov:
    """A·Q = Q·T + β·q·e_jᵀ: the space of b, A·b, …, A^{j−1}·b, in which A is the tridiagonal T.

    Spaces do not change when A is shifted by ρI, so that damping and step sizes can be chosen when T is known, at no
    further product. The price is the memory of j vectors. Q loses its orthogonality as Ritz values converge, which
    delays solutions in the space as it delays conjugate gradients, and leaves the recurrence itself true.
    """

    norm: float  # ‖b‖
    basis: list[Tensor]  # q_1 … q_j, and q_{j+1} if there is one
    main: list[float] = field(default_factory=list)  # T's diagonal
    side: list[float] = field(default_factory=list)  # T's next diagonal, and last β, which is 0 once A·Q stays in Q

    def matrix(self) -> Tensor:
        """T, in float64 on the host."""
        side = torch.tensor(self.side[:-1], dtype=torch.float64)
        return torch.diag(torch.tensor(self.main, dtype=torch.float64)) + torch.diag(side, 1) + torch.diag(side, -1)

    def extremes(self) -> tuple[float, float, float]:
        """The smallest Ritz value, and where the smallest and the largest eigenvalue are expected to end.

        An eigenvalue lies within β·|s_j| of the Ritz value θ with eigenvector s; the ends are that much further out.
        """
        ritz, vectors = torch.linalg.eigh(self.matrix())
        error = self.side[-1] * vectors[-1].abs()
        return float(ritz[0]), float(ritz[0] - error[0]), float(ritz[-1] + error[-1])

    def combine(self, weights: Tensor) -> Tensor:
        """Q·y."""
        x = torch.zeros_like(self.basis[0])
        for q, weight in zip(self.basis, weights.tolist(), strict=False):
            x.add_(q, alpha=weight)
        return x


def lanczos(A: Operator, b: Tensor, products: int) -> Iterator[Krylov]:
    """The spaces of 1, 2, …, ``products`` products; fewer where the space holds all there is."""
    norm = float(b.norm())
    space = Krylov(norm, [b / norm])
    for j in range(products):
        q = space.basis[j]
        w = A(q)
        space.main.append(A.finite(q @ w))
        w.sub_(q, alpha=space.main[j])
        if j > 0:
            w.sub_(space.basis[j - 1], alpha=space.side[j - 1])
        beta = float(w.norm())
        scale = max(map(abs, [*space.main, *space.side, beta]))
        exhausted = beta <= 10 * torch.finfo(b.dtype).eps * scale
        space.side.append(0.0 if exhausted else beta)
        if not exhausted:
            space.basis.append(w.div_(beta))
        yield space
        if exhausted:
            return


def enough(low: float, high: float) -> float:
    """A damping that leaves no direction flat or falling, for a spectrum from ``low`` to ``high``.

    Twice what the most negative curvature needs, and at least so much that the curvatures differ by 1/FLAT at most;
    nothing where that is so already.

    >>> enough(0.5, 10.0), enough(-0.5, 10.0)
    (0.0, 1.0)
    """
    return max(0.0, -2 * low, FLAT * abs(high) - low)
