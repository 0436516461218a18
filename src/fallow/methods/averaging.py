"""What EMA, SWA and FixMatch share: a second model that holds a mean of the weights, and is evaluated."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.weights.layers import copied, is_numeric


class Averaging(Method):
    """Training as usual; subclasses say when to :meth:`take` the present weights into the average, and how much.

    The average starts again with every generation, and waits while a method climbs: what is forgotten must not
    live on in it. As long as it holds nothing, the model itself is evaluated. In the end the model gets the
    average, so that the module that was given is the one that comes back. A method that has other things to do
    besides may hold one of these and pass the hooks on.

    ``torch.optim.swa_utils.AveragedModel`` does the same arithmetic, but asks the device twice in every update
    whether it is the first, which is no matter once in an epoch and a halt in every step.
    """

    def begin(self, ctx: Context) -> None:
        self.model = self.average = ctx.model  # the copy is made when all methods have changed the structure
        self.count = 0  # how many weights the average holds

    def begin_generation(self, ctx: Context) -> None:
        self.count = 0
        if self.average is self.model:
            self.make()

    def make(self) -> None:
        """Make the second model, and note where its tensors and the first one's are."""
        self.average = copied(self.model)
        models = (self.average, self.model)
        self.places = [(list(filter(is_numeric, model.parameters())), _statistics(model)) for model in models]

    @torch.no_grad()
    def take(self, weight: float) -> None:
        """One call for all tensors: average ← average + weight·(model − average), running statistics included."""
        averages, present = (
            [*parameters, *(getattr(module, name) for module, name in statistics)]
            for parameters, statistics in self.places
        )
        torch._foreach_lerp_(averages, present, weight)
        self.count += 1

    @torch.no_grad()
    def end_epoch(self, ctx: Context) -> None:
        """Copy the counters, and give all processes the same statistics: each has seen its share of the data."""
        for mine, theirs in zip(self.average.buffers(), ctx.model.buffers(), strict=True):
            mine.copy_(ctx.engine.all_reduce(mine, reduce_op="mean") if mine.is_floating_point() else theirs)

    def evaluated(self, ctx: Context) -> nn.Module:
        clock = ctx.clock
        # another method may forget, and look at what is left, before this one begins the generation
        beginning = clock.epoch == clock.step == 0 and clock.generation < clock.generations
        return ctx.model if beginning or self.count == 0 else self.average

    def end(self, ctx: Context) -> None:
        ctx.model.load_state_dict(self.evaluated(ctx).state_dict())
        self.average = ctx.model

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "average": self.average.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.make()
        self.average.load_state_dict(state["average"])


def _statistics(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Where the floating-point buffers are; not the tensors, for a forward pass may put in others.

    One that holds infinities is a mask of attention and no statistic: the mean of −∞ and −∞ would come out as NaN.
    """
    held = [(module, name, b) for module in model.modules() for name, b in module._buffers.items() if b is not None]
    return [(module, name) for module, name, buffer in held if is_numeric(buffer)]
