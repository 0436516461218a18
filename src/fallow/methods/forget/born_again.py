"""Born-again networks (Furlanello et al. 2018): each generation teaches the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.core.context import Batch, Context
from fallow.core.method import Cost, Method
from fallow.core.ranges import linear, log
from fallow.methods.forget.measure import log_forgetting
from fallow.weights.layers import copied

TEACHER = 1 / 3  # a forward pass is a third of forward and backward


@dataclass(eq=False)
class BornAgain(Method):
    """A fresh student learns the labels and the generation before's soft labels (Furlanello et al. 2018, section 3).

    loss = (1 − α) · CE(z, y) + α · T² · KL(softmax(z̄/T) ‖ softmax(z/T)), z̄ the teacher's output.
    """

    name = "born-again"
    summary = "each generation starts afresh and learns from the soft labels of the one before"
    generational = True
    forgets = frozenset({"early", "late"})
    cost = Cost(beside=TEACHER)
    ranges: ClassVar = {"alpha": linear(0.1, 0.9), "temperature": log(1.0, 8.0)}

    alpha: float = 0.5  # the teacher's share of the loss
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise RequestError(f"alpha is {self.alpha}: it must be from 0 to 1")
        if self.temperature <= 0:
            raise RequestError(f"temperature is {self.temperature}: it must be above 0")

    def begin(self, ctx: Context) -> None:
        self.teacher: nn.Module = copied(ctx.model).eval().requires_grad_(False)
        self.taught = False

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            self.teacher.load_state_dict(ctx.model.state_dict())
            self.taught = True
            ctx.redraw("all")
            log_forgetting(ctx)

    def loss(self, ctx: Context, batch: Batch) -> Tensor:
        x, y = batch
        output = ctx.predict(x)
        loss = ctx.criterion(output, y)
        if not self.taught:
            return loss
        wide = torch.promote_types(output.dtype, torch.float32)  # bf16 has too few digits for logarithms
        ctx.spend(TEACHER)
        with torch.no_grad():
            wanted = self.teacher(x).to(wide)
        distance = ctx.target.distance(output.to(wide), wanted, self.temperature)
        return (1 - self.alpha) * loss + self.alpha * self.temperature**2 * distance

    def state_dict(self) -> dict[str, Any]:
        return {"taught": self.taught, "teacher": self.teacher.state_dict() if self.taught else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.taught = state["taught"]
        if self.taught:
            self.teacher.load_state_dict(state["teacher"])
