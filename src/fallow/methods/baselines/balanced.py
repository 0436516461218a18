"""Uneven classes, evened out: rare ones weigh more in the loss (King & Zeng 2001), or come up more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError, unknown
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import choice
from fallow.data.targets import Dense
from fallow.evaluate.metrics import NO_LABEL

if TYPE_CHECKING:
    from fallow.problems import Problem

WAYS = ("weights", "sampling")


@dataclass(eq=False)
class Balanced(Method):
    """All C classes count alike, whatever their numbers n_c of training examples (n in all).

    King & Zeng 2001, section 4.2, and sampling::

        by=weights     loss = mean w(y)·L(f(x), y),  w(c) = n / (C·n_c), whose mean over the examples is 1
        by=sampling    an epoch draws n examples with replacement, each class as often as another

    Where examples have several labels, ``weights`` weighs the presence of each by (n − n_l)/n_l; for masks, classes
    are counted in pixels. The mean is over examples and not over weights, so that it is the same in one process and
    in several, in a batch and in its micro-batches.
    """

    name = "balanced"
    summary = "rare classes weigh more in the loss, or are drawn more often"
    ranges: ClassVar = {"by": choice("weights", "sampling")}

    by: str = "weights"

    def __post_init__(self) -> None:
        if self.by not in WAYS:
            raise unknown("value for by", self.by, WAYS)

    def refuses(self, problem: Problem) -> str:
        kind = problem.target.kind
        if kind == "numbers" or (kind != "classes" and self.by == "sampling"):
            return f"{'by=sampling ' if kind != 'numbers' else ''}evens out classes, and these are {kind}"
        if isinstance(problem.target, Dense) and problem.target.objective != "cross-entropy":
            return f"weighs cross-entropy, and the loss is {problem.target.objective}: leave one of the two out"
        return ""

    def begin(self, ctx: Context) -> None:
        if self.by == "sampling":
            y = answers(ctx)
            ctx.train.weigh(1 / y.bincount()[y].double())
            return
        if ctx.criterion is ctx.plain_loss:  # a loss of the user's own
            raise RequestError("balanced weighs the loss that belongs to the target: leave loss out, or by=sampling")
        y, smoothing = answers(ctx), ctx.settings.label_smoothing
        if ctx.target.kind == "labels":
            held = y.double().sum(0)
            presence = ((len(y) - held) / held.clamp(min=1)).float().to(ctx.device)

            def weighted(output: Tensor, y: Tensor) -> Tensor:
                return functional.binary_cross_entropy_with_logits(output.float(), y.float(), pos_weight=presence)

        else:
            weight = class_weights(y, ctx.target.outputs).to(ctx.device)

            def weighted(output: Tensor, y: Tensor) -> Tensor:
                each = functional.cross_entropy(output, y, reduction="none", label_smoothing=smoothing)
                return (weight.to(each.dtype)[y.clamp(min=0)] * each).sum() / (y != NO_LABEL).sum()

        ctx.criterion = weighted


def class_weights(y: Tensor, classes: int) -> Tensor:
    """N / (C·n_c) of every class, C the number of those that occur; 0 for one that does not.

    >>> class_weights(torch.tensor([0, 0, 0, 1]), 2)
    tensor([0.6667, 2.0000])
    """
    counts = y[y != NO_LABEL].bincount(minlength=classes).double()
    return torch.where(counts > 0, counts.sum() / ((counts > 0).sum() * counts), 0).float()


def answers(ctx: Context) -> Tensor:
    """The answers of all training examples, in the order of the data."""
    known = getattr(ctx.data.train, "y", None)
    if isinstance(known, Tensor):
        return known
    if ctx.engine.world_size > 1:
        raise RequestError("balanced must see all answers, and each process sees its share of a Dataset: give arrays")
    return torch.cat([y.cpu() for _, y in ctx.train.ordered()])
