"""Solvers for (A + ρI)·x = b, where A is the Hessian of the training loss and b the gradient of the validation loss.

=====================  =====================================================  =======================
``Identity``           x = b                                                  no product
``Neumann(K, α)``      x = α Σ_{j≤K} (I − αA)^j b      (equation 3.5)         K products
``CG(K)``              conjugate gradients             (equation 3.7)         K products
``MINRES(K)``          smallest residual in the same space; A may be          K products
                       indefinite
``Nystrom(r)``         A ≈ U·C⁺·Uᵀ + diagonal, inverted in closed form        r products, whatever b
``Exact``              the dense inverse                                      as many as parameters
=====================  =====================================================  =======================

A solver is called with an :class:`Operator` and b, uses one product per iteration, stops where the residual
relative to ‖b‖ is down to rounding, and reports what it met. ``damping="auto"`` is above an estimate of |λmin|,
made from the same products (see :mod:`fallow.hypergradients.krylov`), and so large that they solve the system.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.hypergradients.krylov import enough, lanczos
from fallow.hypergradients.products import Operator
from fallow.hypergradients.projected import galerkin, least_squares, projected, unrolled
from fallow.hypergradients.solution import (
    CONVERGED,
    USED_UP,
    Solution,
    check_count,
    check_damping,
    falls,
    nothing,
    tell_if_falling,
    tolerance,
    warn,
)

LOOK = 16  # terms of Neumann between two looks at its convergence; its last two are always looked at
PROBE = 10  # products after which Neumann chooses its α
DENSE = 12_000  # parameters of which the dense matrix takes a gigabyte


@dataclass(frozen=True)
class Identity:
    """x = b: as if A were the identity (equation 3.9). Right in its direction only, and where A is nearly so."""

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        return Solution(b.clone(), "no system to solve")


@dataclass(frozen=True)
class Neumann:
    """x = α Σ_{j=0..K} p_j, p_0 = b, p_{j+1} = p_j − α·A·p_j (algorithm 2, times α): K steps of descent, unrolled.

    The sum is computed by Horner's rule, s ← b + (I − αA)·s, and p_j as the difference of two sums. It converges for
    α < 2/λmax and A positive definite. Otherwise the p_j grow, and for a symmetric A what grows once grows for ever:
    the last two tell. ``alpha="auto"`` is 1/λmax, known after the first products, which count. The residual that is
    reported is p_K, that of the sum before its last term: another would take another product.
    """

    terms: int = 10
    alpha: float | str = "auto"
    damping: float | str = 0.0

    def __post_init__(self) -> None:
        check_count("terms", self.terms)
        check_damping(self.damping)
        if self.alpha != "auto" and (isinstance(self.alpha, str) or not 0 < self.alpha < math.inf):
            raise RequestError(f"alpha is {self.alpha!r}: it must be above 0, or 'auto'")

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        if (trivial := nothing(b)) is not None:
            return trivial
        first = norm = float(b.norm())
        alpha, damping, reason = self.alpha, self.damping, USED_UP
        done, curvature, growth = 0, math.inf, 0.0
        if isinstance(alpha, str) or isinstance(damping, str):
            *_, space = lanczos(A, b, min(self.terms, PROBE))
            curvature, low, high = space.extremes()
            damping = enough(low, high) if isinstance(damping, str) else damping
            if high + damping <= 0:
                raise falls(curvature, damping)
            alpha = 1 / (high + damping) if isinstance(alpha, str) else alpha
            p, total, norms = unrolled(space, alpha, damping)
            done, norm, growth = len(space.main), norms[-1], norms[-1] / (norms[-2] or 1.0)
        else:
            p, total = b, b.clone()
        step = A.horner(total, b, alpha, damping)
        for left in range(self.terms - done - 1, -1, -1):
            if norm <= tolerance(b) * first:
                reason = CONVERGED
                break
            look = left % LOOK < 2  # every look reads all of the sum, which a small network's product notices
            before = total.clone() if look else total
            step()
            if look:
                last, p = p, torch.sub(total, before, out=before)
            if left % LOOK == 0:
                size, norm = A.finite(last.norm()), A.finite(p.norm())
                if size > 0:
                    growth = norm / size
                    curvature = min(curvature, (1 - float(last @ p) / size**2) / alpha - damping)
        if growth > 1 + 1e-6 and norm > 1e3 * tolerance(b) * first:
            reason = "the series diverges"
            cause = "alpha is too large" if curvature + damping >= 0 else f"it met the curvature {curvature:.3g}"
            warn(
                f"the Neumann series diverges: its last term is {growth:.3g} times the one before with alpha = "
                f"{alpha:.3g} and damping = {damping:.3g}; {cause}: use alpha='auto' and damping='auto', or CG"
            )
        return Solution(total.mul_(alpha), reason, damping, norm / first, curvature)


@dataclass(frozen=True)
class CG:
    """Conjugate gradients (Hestenes & Stiefel 1952), one product per iteration.

    With a given damping this is the textbook's recurrence, in the memory of four vectors. It stops where the curvature
    p·(A + ρI)·p is not positive: there is no minimum along p. ``damping="auto"`` takes the same steps inside the
    Krylov space, after choosing ρ by its Ritz values, and keeps as many vectors as iterations.
    """

    iterations: int = 10
    damping: float | str = "auto"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        check_damping(self.damping)

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        if (trivial := nothing(b)) is not None:
            return trivial
        if isinstance(self.damping, str):
            return projected(A, b, self.iterations, self.damping, galerkin)
        rho, curvature, reason = self.damping, math.inf, USED_UP
        x, r, p = torch.zeros_like(b), b.clone(), b.clone()
        first = rr = float(r @ r)
        for iteration in range(self.iterations):
            Ap = A(p)
            pp, pAp = float(p @ p), A.finite(p @ Ap)
            curvature = min(curvature, pAp / pp)
            if pAp + rho * pp <= 0:
                if iteration == 0:
                    raise falls(curvature, rho)
                warn(
                    f"conjugate gradients met the curvature {curvature:.3g}, beyond the damping {rho:.3g}, and stopped "
                    f"after {iteration} iterations: use damping above {-curvature:.3g} or 'auto', or MINRES"
                )
                reason = "negative curvature"
                break
            step = rr / (pAp + rho * pp)
            x.add_(p, alpha=step)
            r.sub_(Ap, alpha=step)
            if rho:
                r.sub_(p, alpha=step * rho)
            before, rr = rr, float(r @ r)
            if rr <= tolerance(b) ** 2 * first:
                reason = CONVERGED
                break
            p.mul_(rr / before).add_(r)
        return Solution(x, reason, rho, math.sqrt(rr / first), curvature)


@dataclass(frozen=True)
class MINRES:
    """The smallest residual in the Krylov space (Paige & Saunders 1975), whether A + ρI is definite or not."""

    iterations: int = 10
    damping: float | str = "auto"

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations)
        check_damping(self.damping)

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        if (trivial := nothing(b)) is not None:
            return trivial
        found = projected(A, b, self.iterations, self.damping, least_squares)
        tell_if_falling(found)
        return found


@dataclass(frozen=True)
class Nystrom:
    """A ≈ U·C⁺·Uᵀ + D with U = (A − D)·Ω, C = Ωᵀ·U, Ω of ``rank`` random orthonormal columns, D the known diagonal.

    (D + ρI + U·C⁺·Uᵀ)⁻¹ follows by Woodbury's identity (Hataya & Yamada 2023) from D + ρI > 0. The products do not
    depend on b; at an equal number of them it is less accurate than CG. ``damping="auto"`` takes as many again.
    """

    rank: int = 10
    damping: float | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("rank", self.rank)
        check_damping(self.damping)

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        if (trivial := nothing(b)) is not None:
            return trivial
        draw = torch.Generator().manual_seed(self.seed)  # on the host: the same columns on every device and process
        columns = torch.randn(len(b), min(self.rank, len(b)), generator=draw, dtype=b.dtype).to(b.device)
        omega = torch.linalg.qr(columns).Q
        U = torch.stack([A.without_diagonal(column.contiguous()) for column in omega.T], 1)
        A.finite(U.sum())
        C = omega.T @ U
        C = (C + C.T) / 2
        D = torch.zeros_like(b) if A.diagonal is None else A.diagonal
        curvature = float(torch.linalg.eigvalsh(C + omega.T @ (D[:, None] * omega))[0])
        rho = self.damping
        if isinstance(rho, str):
            *_, space = lanczos(A, b, self.rank)  # random columns hardly see the ends of the spectrum
            least, low, high = space.extremes()
            curvature = min(curvature, least)
            rho = max(enough(low, high), float(torch.linalg.svdvals(U)[-1]))  # no smaller than what it leaves out
        shift = D + rho
        if float(shift.min()) <= 0:
            raise RequestError(f"Nystrom has nothing to invert with damping = {rho:g}: it must be above 0")
        inner = C + U.T @ (U / shift[:, None])
        x = (b - U @ torch.linalg.solve(inner.double(), (U.T @ (b / shift)).double()).to(b.dtype)) / shift
        found = Solution(x, USED_UP, rho, None, curvature)
        tell_if_falling(found)
        return found


@dataclass(frozen=True)
class Exact:
    """The dense matrix, column by column, and its inverse: for small networks, and to measure the others by."""

    damping: float | str = "auto"

    def __post_init__(self) -> None:
        check_damping(self.damping)

    def __call__(self, A: Operator, b: Tensor) -> Solution:
        if (trivial := nothing(b)) is not None:
            return trivial
        n = len(b)
        if n > DENSE:
            raise RequestError(f"Exact needs the {n} × {n} Hessian: that is for up to {DENSE} parameters, CG for more")
        matrix = torch.stack([A(unit) for unit in torch.eye(n, dtype=b.dtype, device=b.device)]).double()
        A.finite(matrix.sum())
        matrix = (matrix + matrix.T) / 2
        values = torch.linalg.eigvalsh(matrix)
        low, high = float(values[0]), float(values[-1])
        rho = enough(low, high) if isinstance(self.damping, str) else self.damping
        sizes = (values + rho).abs()
        if float(sizes.min()) <= n * torch.finfo(b.dtype).eps * float(sizes.max()):
            raise RequestError(f"the Hessian is singular with damping = {rho:g}: give damping='auto', or more")
        matrix.diagonal().add_(rho)
        x = torch.linalg.solve(matrix, b.double())
        residual = float((b.double() - matrix @ x).norm() / b.double().norm())
        found = Solution(x.to(b.dtype), "solved", rho, residual, low)
        tell_if_falling(found)
        return found
