"""SA-GD: gradient descent with simulated annealing (Cai 2021), the idea that SEAL builds on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fallow.base.errors import RequestError
from fallow.core.context import Context
from fallow.core.method import Method


@dataclass(eq=False)
class SAGD(Method):
    """Each step climbs instead of descending with a probability that falls as the training cools down.

    At progress t ∈ [0, 1] of the whole training the probability is p·(1 − t). SEAL's authors describe SA-GD
    only in words; the linear cooling is ours.
    """

    name = "sagd"
    summary = "every step climbs with a probability that falls to 0 over the training"

    probability: float = 0.1  # at the start
    scale: float = 1.0  # of the gradient when climbing

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 0.5:
            raise RequestError(f"probability is {self.probability}: from 0 to below 0.5, or it never descends")
        if self.scale <= 0:
            raise RequestError(f"scale is {self.scale}: it must be above 0")

    def before_step(self, ctx: Context) -> None:
        chance = self.probability * (1 - ctx.clock.overall)
        if torch.rand((), generator=ctx.rng).item() < chance:
            gradients = [p.grad for p in ctx.model.parameters() if p.grad is not None]
            torch._foreach_mul_(gradients, -self.scale)  # the optimiser's weight decay still shrinks
