"""Extreme eigenvalues of a symmetric operator: Lanczos with full reorthogonalisation and thick restarts.

The eigenvalues θ of T = VᵀHV over an orthonormal basis V of the Krylov space approach those of H from inside, and with
the residual r = ‖Hy − θy‖ of a Ritz vector y there is an eigenvalue of H within r of θ. (It is mostly within r² / gap,
but a stop by that smaller bound takes two close eigenvalues for one now and then.) Written by hand because scipy's
``eigsh`` gives no residuals, moves every vector to the host, and takes twice the products for one eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm

Array = np.ndarray
Product = Callable[[Tensor], Tensor]
Wanted = Callable[[Array], list[int]]  # ascending Ritz values → the indices of those that must converge


@dataclass(frozen=True)
class Eigenvalue:
    """An eigenvalue, how far off it may be, and whether that is within the tolerance."""

    value: float
    error: float
    converged: bool

    def describe(self) -> dict[str, float | bool]:
        """As plain values."""
        return {"value": self.value, "error": self.error, "converged": self.converged}


def ends(largest: int, smallest: int = 0) -> Wanted:
    """The ``largest`` last and the ``smallest`` first of all Ritz values."""

    def wanted(values: Array) -> list[int]:
        count = len(values)
        low = min(smallest, count)
        return [*range(low), *range(max(low, count - largest), count)]

    return wanted


def magnitudes(count: int) -> Wanted:
    """The ``count`` of greatest magnitude, whatever their sign."""
    return lambda values: sorted(np.argsort(-np.abs(values), kind="stable")[:count].tolist())


class Lanczos:
    """Ritz values of ``product`` over the Krylov space of ``start``, until those that are ``wanted`` have converged.

    An eigenvalue has converged when its residual is at most ``tolerance`` times its magnitude, or as small as the
    number format allows. The products' own rounding, measured by how far the computed VᵀHV is from symmetric, is added
    to the error bar; where it is the larger part, no more products are taken. At most ``steps`` are. When ``basis``
    vectors are full, the half of the Ritz vectors nearest to the wanted ends starts a new basis (Wu and Simon 2000), so
    memory is bounded. An eigenvalue that is repeated exactly is found once.

    >>> matrix = torch.diag(torch.tensor([5.0, 1.0, 0.5, -2.0], dtype=torch.float64))
    >>> found = Lanczos(matrix.mv, torch.ones(4, dtype=torch.float64), ends(1, 1))
    >>> [round(found.eigenvalue(i).value, 6) for i in (-1, 0)]
    [5.0, -2.0]
    """

    def __init__(
        self,
        product: Product,
        start: Tensor,
        wanted: Wanted,
        *,
        tolerance: float = 1e-4,
        steps: int = 300,
        basis: int = 300,
    ) -> None:
        self.tolerance, self.products = tolerance, 0
        size = len(start)
        limit = min(basis, steps, size)
        self._basis = start.new_empty(limit, size)
        projected = np.zeros((limit, limit))  # VᵀHV as computed: what is asymmetric in it is rounding
        self._epsilon = torch.finfo(start.dtype).eps
        vector = start / vector_norm(start)
        used, patience, scale = 0, 0, 0.0
        while True:
            self._basis[used] = vector
            used += 1
            known = self._basis[:used]
            image = product(vector)
            self.products += 1
            overlap = known.mv(image)
            image = torch.addmv(image, known.T, overlap, alpha=-1)
            again = known.mv(image)  # once more: at convergence one pass leaves rounding as large as what remains
            image.addmv_(known.T, again, alpha=-1)
            *column, remainder = torch.cat([overlap + again, vector_norm(image).view(1)]).tolist()
            projected[:used, used - 1] = column
            if used < limit:
                projected[used, used - 1] = remainder
            scale = max(scale, remainder, abs(column[-1]))
            exhausted = remainder <= 8 * self._epsilon * scale * used or used == size
            full, last = used == limit, exhausted or self.products >= steps
            patience -= 1
            if patience <= 0 or full or last:
                self._solve(projected[:used, :used], 0.0 if exhausted else remainder)
                now = wanted(self.values)
                allowed = np.maximum(tolerance * np.abs(self.values[now]), self.rounding)
                if last or (self.residuals[now] <= allowed).all():
                    break
                excess = (self.residuals[now] / allowed).max()
                # the more vectors, the dearer is the check and the less changes; and no step gains three digits
                patience = max(used // 12, int(np.log10(excess) / 3) + 1)
            if full:
                kept = self._nearest(now, limit // 2)
                self._turn(kept)
                used = len(kept)
                projected[:] = 0
                projected[range(used), range(used)] = self.values[kept]
                projected[used, :used] = remainder * self._coordinates[-1, kept]
            vector = image / remainder
        self.used = used

    @property
    def basis(self) -> Tensor:
        """The orthonormal vectors V, as rows."""
        return self._basis[: self.used]

    def eigenvalue(self, index: int) -> Eigenvalue:
        """The Ritz value at ``index`` (ascending), with its error bar."""
        value, residual = float(self.values[index]), float(self.residuals[index])
        allowed = max(self.tolerance * abs(value), min(self.rounding, self._precision))
        return Eigenvalue(value, residual + self.rounding, residual <= allowed)

    def vectors(self, indices: Array | list[int]) -> Tensor:
        """The Ritz vectors at ``indices``, as rows."""
        return self._rotation(indices) @ self.basis

    def _solve(self, projected: Array, remainder: float) -> None:
        symmetric = (projected + projected.T) / 2
        self.values, self._coordinates = np.linalg.eigh(symmetric)
        self.residuals = np.abs(remainder * self._coordinates[-1])
        asymmetry = np.linalg.norm(projected - symmetric)
        scale = self._epsilon * np.abs(self.values).max()
        self.rounding, self._precision = float(max(asymmetry, 8 * scale)), float(64 * scale)

    def _nearest(self, wanted: list[int], count: int) -> Array:
        """The ``count`` indices that lie nearest to a wanted one."""
        distance = np.abs(np.arange(len(self.values))[:, None] - np.array(wanted)).min(1)
        return np.sort(np.argsort(distance, kind="stable")[:count])

    def _turn(self, kept: Array) -> None:
        """Make the first rows of the basis the Ritz vectors at ``kept``, some columns at a time to spare memory."""
        rotation = self._rotation(kept)
        for some in self._basis.split(1 << 16, dim=1):
            some[: len(kept)] = rotation @ some

    def _rotation(self, indices: Array | list[int]) -> Tensor:
        return torch.from_numpy(self._coordinates[:, indices].T.copy()).to(self._basis)
