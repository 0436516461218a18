"""FAM: relative flatness aware minimization (Adilova et al. 2023, equation 1)."""

from __future__ import annotations

import re
import warnings
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import is_whole
from fallow.core.context import Batch, Context
from fallow.core.method import Method
from fallow.core.ranges import log
from fallow.flatness import FORMS, Watch
from fallow.weights.layers import call, untouched

TRIAL = 8  # training examples that show which form of κ applies


@dataclass(eq=False)
class FAM(Method):
    """The loss and λκ are minimised together, κ the relative flatness of a layer (Adilova et al. 2023, equation 1)::

        L(W) + λ·κ(w),    κ(w) = Σ_{s,s'} ⟨w_s, w_s'⟩ Tr H_{s,s'}

    The paper's w are the weights *from* the penultimate neurons, those of the head, where for softmax

        κ = mean_i ‖φ_i‖² Σ_c p_ic (e_c − p_i)ᵀ WWᵀ (e_c − p_i),    φ_i (m numbers) the inputs of the head W

    is a few small products on the forward pass of the step. The public code divides κ by m = 64, so that its λ = 0.1
    is a ``strength`` of 0.1/64 = 0.0016 here. Other layers by name have the cheapest exact form, which
    :func:`fallow.flatness.explain` names with its cost; where what follows them is smooth or a normalisation κ can be
    negative, and then has no lower bound as a penalty; ``form="gauss-newton"`` is a measure that cannot be.
    """

    name = "fam"
    summary = "adds the relative flatness of a layer to the loss"
    shards = True
    ranges: ClassVar = {"strength": log(1e-4, 0.1)}

    strength: float = 0.001  # λ; the paper's 0.1 is of κ/64
    layer: str = "head"  # a path, "head", "penultimate" (the layer before it), or several with commas between them
    form: str = "auto"  # of κ: the cheapest exact one, or one by name
    simplified: bool = False  # κ̂ = ‖w‖² Tr H
    probes: int = 1  # estimates that form="probe" averages

    def __post_init__(self) -> None:
        if self.strength <= 0:
            raise RequestError(f"strength is {self.strength}: it must be above 0")
        if self.form not in ("auto", *FORMS):
            raise unknown("form", self.form, ("auto", *FORMS))
        if not is_whole(self.probes, 1):
            raise RequestError(f"probes is {self.probes}: it must be a whole number from 1")
        self.layer = ",".join(name for name in re.split(r"[,+\s]+", self.layer) if name)  # a + would add a method

    def begin(self, ctx: Context) -> None:
        x, y = (part[:TRIAL] for part in next(iter(ctx.train.ordered())))
        self.watches = [
            Watch(ctx.model, name, x[:2], form=self.form, simplified=self.simplified, probes=self.probes)
            for name in self.layer.split(",")
        ]
        with untouched(ctx.model):
            ctx.model.train()
            for watch in self.watches:
                watch.look(lambda: ctx.criterion(call(ctx.model, x), y))
        self.total: Tensor | None = None  # κ times examples, of this epoch
        self.count = 0
        self.warned = False

    def forward(self, ctx: Context) -> AbstractContextManager[Any]:
        stack = ExitStack()
        for watch in self.watches:
            stack.enter_context(watch)
        return stack

    def begin_epoch(self, ctx: Context) -> None:
        for watch in self.watches:
            watch.forget()  # what had no effect on the outputs an epoch ago may have one now

    def penalty(self, ctx: Context, batch: Batch) -> Tensor:
        assert ctx.loss is not None
        kappa = reduce(torch.add, [watch.flatness(ctx.loss) for watch in self.watches])
        size = len(batch[1])
        self.total = kappa.detach() * size + (0 if self.total is None else self.total)
        self.count += size
        return self.strength * kappa

    def end_epoch(self, ctx: Context) -> None:
        if self.total is None:
            return
        sums = torch.stack([self.total, self.total.new_tensor(float(self.count))])
        total, count = ctx.engine.all_reduce(sums, reduce_op="sum").tolist()
        self.total, self.count = None, 0
        ctx.log(flatness=total / count)
        if total < 0 and not self.warned and ctx.engine.is_global_zero:
            self.warned = True
            warnings.warn(
                f"the relative flatness is negative ({total / count:.3g}): as a penalty it has no lower bound; "
                "fam:form=gauss-newton cannot fall below 0",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]
