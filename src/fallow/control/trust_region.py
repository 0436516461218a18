"""Trust-region policy optimisation: the natural gradient by Fisher products, and a line search (Schulman et al. 2015).

The parameters may be anything that the outputs depend on, also through an inner loop: for MAML's initialisation, the
Fisher matrix is that of the adapted policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.control.policy import metric
from fallow.hypergradients.products import Operator, flat, shaped
from fallow.hypergradients.solvers import CG


def fisher(output: Tensor, params: Sequence[Tensor], share: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Products v ↦ F·v with F = mean over states of Jᵀ·M·J, J the Jacobian of a policy's output, M its metric.

    F is the Hessian of the mean KL divergence from the policy at the present parameters, exactly: the divergence is 0
    there, and so are its first derivatives. J·v comes from two backward passes: Jᵀ·u is linear in u, and its derivative
    along v is J·v. The graph of ``output`` is kept. ``share`` scales the mean, for processes of unequal shares.
    """
    zero = torch.zeros_like(output, requires_grad=True)
    rows = torch.autograd.grad(output, params, zero, create_graph=True, allow_unused=True, materialize_grads=True)
    moving = [i for i, row in enumerate(rows) if row.requires_grad]
    states = output[..., 0].numel()
    held = output.detach()

    def product(v: Tensor) -> Tensor:
        along = shaped(v, params)
        (change,) = torch.autograd.grad(
            [rows[i] for i in moving], zero, [along[i] for i in moving], retain_graph=True
        )  # fmt: skip
        weighted = metric(held, change) * (share / states)
        found = torch.autograd.grad(output, params, weighted, retain_graph=True, allow_unused=True)
        return flat(found, params)

    return product


class Region(NamedTuple):
    """How far an update may go, and how it is sought."""

    max_kl: float = 0.01  # mean KL divergence from the policy that acted
    iterations: int = 10  # of conjugate gradients
    damping: float = 0.01  # of the Fisher matrix
    backtracks: int = 15  # of the line search
    shrink: float = 0.8


class TrustRegionStep(NamedTuple):
    """What a line search ended with; a share of 0: nowhere was it better."""

    share: float
    loss: float
    kl: float


def natural_step(product: Callable[[Tensor], Tensor], gradient: Tensor, region: Region) -> Tensor:
    """√(2δ / xᵀFx)·x with F·x = g by conjugate gradients: as far as the quadratic model of the divergence allows.

    The residual of conjugate gradients is orthogonal to x, so that xᵀFx = xᵀg takes no product.
    """
    x = CG(region.iterations, region.damping)(Operator(product), gradient).x
    return x * torch.sqrt(2 * region.max_kl / torch.dot(x, gradient).clamp(min=torch.finfo(x.dtype).tiny))


@torch.no_grad()
def line_search(
    params: Sequence[Tensor],
    step: Tensor,
    measure: Callable[[], tuple[float, float]],
    before: float,
    region: Region,
) -> TrustRegionStep:
    """Move the parameters by −step, or by the largest share of it that lowers the loss inside the region.

    ``measure`` gives loss and divergence at the present parameters. Without such a share they stay as they were.
    """
    start = [p.clone() for p in params]
    along = shaped(step, params)
    share = 1.0
    for _ in range(region.backtracks):
        torch._foreach_copy_(list(params), torch._foreach_sub(start, torch._foreach_mul(along, share)))
        loss, kl = measure()
        if loss < before and kl <= region.max_kl:
            return TrustRegionStep(share, loss, kl)
        share *= region.shrink
    torch._foreach_copy_(list(params), start)
    return TrustRegionStep(0.0, before, 0.0)
