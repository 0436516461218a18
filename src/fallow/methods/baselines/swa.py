"""SWA: stochastic weight averaging (Izmailov et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from fallow.base.errors import RequestError
from fallow.core.context import Batch, Context
from fallow.core.ranges import linear, log
from fallow.methods.averaging import Averaging
from fallow.weights.layers import call, modes_kept


@dataclass(eq=False)
class SWA(Averaging):
    """Late in the training the learning rate stays up, and the weights at the ends of epochs are averaged.

    From the share ``start`` of the (generation's) training on, the rate is ``rate`` times the initial one, and
    after every epoch, the n-th since then (Izmailov et al. 2018, algorithm 1, a cycle of one epoch)::

        θ̄ ← (n·θ̄ + θ) / (n + 1),    n = 0, 1, …

    Before θ̄ is evaluated, its batch norms get the statistics of one epoch of training data.
    """

    name = "swa"
    summary = "late in training the rate stays high, and the mean of the weights over those epochs is evaluated"
    ranges: ClassVar = {"start": linear(0.4, 0.9), "rate": log(0.05, 1.0)}

    start: float = 0.75  # of the generation that is done when averaging begins
    rate: float = 0.5  # the learning rate from there on, of the initial one

    def __post_init__(self) -> None:
        if not 0 <= self.start < 1:
            raise RequestError(f"start is {self.start}: it must be from 0 to below 1")
        if self.rate <= 0:
            raise RequestError(f"rate is {self.rate}: it must be above 0")

    def begin(self, ctx: Context) -> None:
        super().begin(ctx)
        self.stale: list[str] = []  # batch norms of the average whose statistics are of other weights

    def before_step(self, ctx: Context) -> None:
        if ctx.clock.progress >= self.start:
            for group in ctx.optimizer.param_groups:
                group["lr"] = group["base_lr"] * self.rate * group.get("scale", 1.0)

    def end_epoch(self, ctx: Context) -> None:
        if ctx.clock.progress >= self.start and not ctx.disturbed:
            self.take(1 / (self.count + 1))
            moving = (path for path, module in ctx.model.named_modules() if is_batch_norm(module) and module.training)
            self.stale = list(moving)  # one that evaluates in training has the statistics it shall have
        super().end_epoch(ctx)

    def evaluated(self, ctx: Context) -> nn.Module:
        model = super().evaluated(ctx)
        if self.stale and model is self.average and not any(part.keeps_statistics for part in ctx.method.parts):
            # always the first epoch's batches: whenever this is done, also after resuming, it gives the same bits
            renew_statistics(model, self.stale, ctx.train.epoch(0))
            super().end_epoch(ctx)  # over all processes
            self.stale = []
        return model

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"stale": self.stale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.stale = state["stale"]


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module keeps running statistics of batches."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


@torch.no_grad()
def renew_statistics(model: nn.Module, paths: Iterable[str], batches: Iterable[Batch]) -> None:
    """Give these batch norms the mean of these batches' statistics.

    ``torch.optim.swa_utils.update_bn`` would also switch dropout on, which is noise here, and draws.
    """
    norms: list[Any] = [model.get_submodule(path) for path in paths]
    momenta = [norm.momentum for norm in norms]
    with modes_kept(model):
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over batches
            norm.train()
        for x, _ in batches:
            call(model, x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
