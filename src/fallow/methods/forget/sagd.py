"""SA-GD: gradient descent with simulated annealing (Cai 2021), as SEAL's section 2 describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fallow.base.errors import RequestError
from fallow.core.context import Context
from fallow.core.method import DECAY, Method
from fallow.core.ranges import linear, log


@dataclass(eq=False)
class SAGD(Method):
    """Each step climbs instead of descending with a probability that falls as the training cools down::

        w ← w + s·η·∇J − η·λ·w    with probability p·(1 − t), t ∈ [0, 1] the progress of the whole training

    A climbing step goes by the gradient of its own batch, past the optimiser: a gradient that enters a momentum of
    0.9 with the other sign only makes the next steps down a little shorter, and the weights hardly ever climb. The
    optimiser's state stays as it is, and the weight decay λ shrinks as ever. SEAL (section 2) describes SA-GD (Cai
    2021) only in words; the linear cooling is ours.
    """

    name = "sagd"
    summary = "every step is an ascent step with a probability that falls to 0 during training"
    exclusive = (DECAY,)
    ranges: ClassVar = {"probability": linear(0.02, 0.3), "scale": log(0.1, 2.0)}

    probability: float = 0.1  # at the start
    scale: float = 1.0  # s, of the learning rate when climbing

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 0.5:
            raise RequestError(f"probability is {self.probability}: from 0 to below 0.5, or it never descends")
        if self.scale <= 0:
            raise RequestError(f"scale is {self.scale}: it must be above 0")

    def before_step(self, ctx: Context) -> None:
        chance = self.probability * (1 - ctx.clock.overall)
        if torch.rand((), generator=ctx.rng).item() < chance:
            climb(ctx.optimizer, self.scale)


@torch.no_grad()
def climb(optimizer: torch.optim.Optimizer, scale: float = 1.0) -> None:
    """One step up the gradients, without momentum; the optimiser finds none left and passes over these weights."""
    for group in optimizer.param_groups:
        moving = [p for p in group["params"] if p.grad is not None]
        if moving:
            torch._foreach_mul_(moving, 1 - group["lr"] * group.get("weight_decay", 0.0))
            torch._foreach_add_(moving, [p.grad for p in moving], alpha=group["lr"] * scale)
        for p in moving:
            p.grad = None
