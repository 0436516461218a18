"""probe: logistic regression on what a pretrained network's head looks at (Alain & Bengio 2017), and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.core.context import Batch, Context
from fallow.core.method import Gradients, Method
from fallow.core.settings import Settings
from fallow.evaluate.score import gather
from fallow.models.cut import HEAD
from fallow.models.linear import fitted_head

if TYPE_CHECKING:
    from fallow.data.stream import Stream
    from fallow.problems import Problem

FORWARD = 1 / 3  # of a forward-backward pass


@dataclass(eq=False)
class Probe(Method):
    """The features of every example once, and the linear head that fits them, its penalty chosen on validation.

    Alain & Bengio 2017, section 3, of the last layer alone.

    W, b = argmin Σ cross-entropy + λ/2 ‖W‖², λ = strength × the mean eigenvalue of the features' scatter matrix, solved
    to the minimum for six strengths together; of numbers it is ridge regression.
    """

    name = "probe"
    summary = "a pretrained network stays as it is; only the best linear head on its features is trained"
    pretrained = True
    ignores = frozenset({"lr", "weight_decay"})  # it takes no steps, and its strength is chosen on validation
    alone = "it solves for the head at once, and leaves no step to change"

    strength: float | None = None  # of the penalty; None: as validation likes it

    def __post_init__(self) -> None:
        if self.strength is not None and not self.strength > 0:
            raise RequestError(f"strength is {self.strength}: it must be above 0")

    def refuses(self, problem: Problem) -> str:
        return "fits a linear head, and there is none for every pixel" if problem.target.kind == "dense" else ""

    def arrange(self, settings: Settings, problem: Problem) -> Settings:
        return replace(settings, freeze=HEAD, augment="none")

    def settled(self, history: list[dict[str, Any]]) -> Method:
        return replace(self, strength=history[0]["strength"])

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """Once is enough."""
        return 1, 1

    def steps_of(self, train: Stream, problem: Problem) -> int:
        return 1

    def stream(self, ctx: Context) -> Iterable[Batch]:
        return [()][ctx.clock.step :]

    def update(self, ctx: Context, gradients: Gradients) -> Tensor:
        head = next(iter(ctx.partition.head.modules.values()))
        return solve(ctx, head, nn.Identity(), self.strength)


@torch.no_grad()
def solve(ctx: Context, head: nn.Module, front: nn.Module, strength: float | None = None) -> Tensor:
    """Put into ``head`` the best linear layer for what ``front`` gives, and give its loss."""
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise RequestError(f"the network ends in {head}: a linear head needs a linear layer with a bias there")
    x, y = _all(ctx, ctx.train, front)
    val = None if ctx.val is None else _all(ctx, ctx.val, front)
    known = [None if part is None else (part[0].cpu(), part[1].cpu()) for part in ((x, y), val)]
    assert known[0] is not None
    found, chosen = fitted_head(known[0], known[1], ctx.target, ctx.metric or ctx.target.metric(), strength)
    ctx.log(strength=chosen)
    ctx.spend(ctx.train.steps * FORWARD)
    head.weight.copy_(found.weight)
    head.bias.copy_(found.bias)
    return ctx.criterion(head(x), y)


def _all(ctx: Context, stream: Stream, front: nn.Module) -> tuple[Tensor, Tensor]:
    """What ``front`` gives for all examples of a stream, and their answers, over all processes."""
    x, y = (torch.cat(parts) for parts in zip(*((front(x), y) for x, y in stream.ordered()), strict=True))
    return (x, y) if ctx.engine.world_size == 1 else (gather(x, ctx.engine), gather(y, ctx.engine))
