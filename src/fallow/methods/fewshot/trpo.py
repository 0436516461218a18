"""MAML for policies by trust regions (Finn et al. 2017, section 5.3; Schulman et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.control.trust_region import Region, fisher, line_search, natural_step
from fallow.core.context import Context
from fallow.core.method import Gradients
from fallow.hypergradients.products import flat
from fallow.methods.fewshot.acting import ActingMAML


@dataclass(eq=False)
class MAMLTRPO(ActingMAML):
    """θ moves along the natural gradient of what the adapted policies gain, within a trust region::

        minimise  mean over tasks of −E[π_θ'(a|s)/π_old(a|s)·A],  θ' = θ − α∇L(θ),   with  mean KL(π_old ‖ π_θ') ≤ δ

    F·x = g by conjugate gradients, the step √(2δ / xᵀFx)·x, and a backtracking line search on loss and divergence,
    re-adapting at each point. Gradient and Fisher matrix go through the inner loop. What pieces learn (L2F's γ, rates)
    belongs to θ. Fisher products take the states of every ``thin``-th step only, to adapt by and to act in: a step's
    length is decided by all of them, in the line search. Finn et al. 2017, section 5.3, by the steps of Schulman et al.
    2015, appendix C.
    """

    name = "maml-trpo"
    summary = "MAML for policies: natural gradients through the inner loop, within a trust region"

    max_kl: float = 0.01  # δ
    products: int = 10  # iterations of conjugate gradients
    damping: float = 0.01
    thin: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("products", "thin"):
            if not isinstance(getattr(self, key), int) or getattr(self, key) < 1:
                raise RequestError(f"{key} is {getattr(self, key)}: it must be a whole number from 1")
        if self.max_kl <= 0 or self.damping < 0:
            raise RequestError(
                f"max_kl is {self.max_kl} and damping {self.damping}: the first is above 0, the second not below"
            )

    def update(self, ctx: Context, gradients: Gradients) -> Tensor:
        gradients()
        self.average(ctx)
        region = Region(self.max_kl, self.products, self.damping)
        params = [p for group in ctx.optimizer.param_groups for p in group["params"] if p.requires_grad]
        gradient = flat([p.grad for p in params], params)
        step = natural_step(self.curvature(ctx, params), gradient, region)
        before, _ = self.measure(ctx)
        found = line_search(params, step, lambda: self.measure(ctx), before, region)
        self.note(kl=found.kl, step_share=found.share, gain=before - found.loss)
        return self.outcome(ctx)

    def curvature(self, ctx: Context, params: list[Tensor]) -> Callable[[Tensor], Tensor]:
        """Products with the Fisher matrix of the adapted policies, averaged over all processes."""
        assert self.met is not None
        met = self.met.thinned(self.thin)
        with torch.enable_grad():
            product = fisher(self.again(met, self.order), params, ctx.train.share(ctx.clock.step))
        return lambda v: ctx.engine.all_reduce(product(v), reduce_op="mean")
