"""Implicit MAML: the meta-gradient at the point that a task has adapted to, however it came there.

The inner loop minimises L_support(φ) + λ/2·‖φ − θ‖². At its minimum the implicit function theorem gives
(Rajeswaran et al. 2019, lemma 1)::

    dL_query/dθ = (I + H/λ)⁻¹ ∂L_query/∂φ,    H = ∂²L_support/∂φ²

so that no step is remembered: memory does not grow with the steps, and any optimiser may have taken them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow.hypergradients.inner import Inner
from fallow.hypergradients.products import add, differentiate, flat
from fallow.hypergradients.solvers import CG

if TYPE_CHECKING:
    from fallow.adaptation.learner import Learner, Meta


class Proximal(nn.Module):
    """λ/2·‖φ − θ‖² in the inner loop, and the solver of the meta-gradient."""

    def __init__(self, strength: float, products: int) -> None:
        super().__init__()
        self.strength, self.solver = strength, CG(products, damping="auto")

    def pull(self, found: list[Tensor], point: list[Tensor], start: list[Tensor]) -> list[Tensor]:
        """∇L + λ(φ − θ)."""
        return [g + self.strength * (p - s) for g, p, s in zip(found, point, start, strict=True)]


def implicit_gradient(learner: Learner, meta: Meta, task: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss and meta-gradient of one task, and the losses along the way.

    Parameters that the inner loop leaves alone enter both losses, and have a direct and a mixed derivative; where the
    start depends on other meta-parameters (L2F's γ, a modulation), these get the gradient by way of the start.
    """
    x, y, query_x, query_y = task
    proximal = learner.get_submodule("proximal")
    assert isinstance(proximal, Proximal)
    objective = learner.objective(batched=False)
    with torch.enable_grad():
        path = learner.path(meta, x, y, order=1, batched=False)
        start, losses = next(path)
        trace = [] if losses is None else [losses.mean()]
        end = start
        for end, losses in path:  # noqa: B007 (the last is where the task has adapted to)
            trace.append(losses.mean())  # type: ignore[union-attr]
        knobs = {name: p.detach().requires_grad_() for name, p in start.items()}
        point = {name: end[name].detach().requires_grad_() for name in learner.adapted}
        inner, _ = objective(knobs | point, x, y, learner.statistics_at(learner.steps, x, False))
        held = [(p - knobs[name]).square().sum() for name, p in point.items()]
        query, _ = objective(knobs | point, query_x, query_y, learner.statistics_at(learner.steps, query_x, False))
        by, at = list(knobs.values()), list(point.values())
        slopes = differentiate(query, [*at, *by])
        system = Inner([inner + proximal.strength / 2 * torch.stack(held).sum()], at)
        solved = proximal.solver(system, flat(slopes[: len(at)], at))
        mixed = system.mixed(solved.x, by)
        outer = add(slopes[len(at) :], [None if m is None else -m for m in mixed])
        pairs = [(p, o) for p, o in zip(start.values(), outer, strict=True) if o is not None and p.requires_grad]
        found = torch.autograd.grad(
            [p for p, _ in pairs], [p for held in meta.values() for p in held.values()], [o for _, o in pairs],
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
    return query.detach(), torch.stack([*trace, query.detach()]), list(found)
