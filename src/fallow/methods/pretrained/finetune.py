"""finetune and lp-ft: all layers of a pretrained network learn on, at small rates, the smaller the nearer the input."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from fallow.base.errors import RequestError
from fallow.base.numbers import is_whole
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import log
from fallow.methods.pretrained.probe import solve
from fallow.models.cut import HEAD, Cut, Head
from fallow.weights import split_groups

if TYPE_CHECKING:
    from fallow.problems import Problem


@dataclass(eq=False)
class Finetune(Method):
    """At first the head alone learns, then all layers do, each at the rate of its depth.

    Block k of 1..K learns at rate · lowest^((K − k)/(K − 1)): discriminative rates (Howard & Ruder 2018, section 3.2),
    geometric between the last block and the first. Batch norms keep the statistics that they have learned from many
    more images.
    """

    name = "finetune"
    summary = "a pretrained network is trained further at small rates: the head first, early layers slowest"
    pretrained = True
    keeps_statistics = True
    ranges: ClassVar = {"rate": log(0.001, 0.03), "lowest": log(0.01, 1.0)}
    ignores = frozenset({"lr"})  # it has a rate of its own

    rate: float = 0.01  # of the last block
    lowest: float = 0.1  # what of it is left for the first block
    head: float = 5.0  # times it, for the head
    first: float = 0.2  # the share of the epochs in which the head learns alone
    epochs: int = 5  # however long others train: it starts from what was learned before

    def __post_init__(self) -> None:
        for key in ("rate", "lowest", "head"):
            if not getattr(self, key) > 0:
                raise RequestError(f"{key} is {getattr(self, key)}: it must be above 0")
        if not 0 <= self.first < 1:
            raise RequestError(f"first is {self.first}: it must be a share of the epochs, from 0 to below 1")
        if not is_whole(self.epochs, 1):
            raise RequestError(f"epochs is {self.epochs}: it must be a whole number from 1")

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """Its own epochs in one generation."""
        return 1, self.epochs

    def begin(self, ctx: Context) -> None:
        self.norms = [m for m in ctx.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        parts, blocks = ctx.partition, ctx.partition.blocks
        own, depth = {id(p) for p in parts.head.parameters}, 0
        depths: dict[str, list[nn.Parameter]] = {str(k): [] for k in range(len(blocks))}
        for path, layer in (parts.early.modules | parts.late.modules).items():  # in order
            # a stem learns with the first block, and a norm after a block with that
            depth = max((k for k, block in enumerate(blocks) if path in block), default=depth)
            depths[str(depth)] += [p for p in layer._parameters.values() if p is not None and id(p) not in own]
        sides = split_groups(ctx.optimizer, depths | {HEAD: parts.head.parameters})
        for k in range(len(blocks)):
            fall = self.lowest ** ((len(blocks) - 1 - k) / max(1, len(blocks) - 1))
            for group in sides[str(k)]:
                group["base_lr"] = self.rate * fall
        for group in sides[HEAD]:
            group["base_lr"] = self.rate * self.head

    def begin_epoch(self, ctx: Context) -> None:
        """The body waits while the head has not learned anything that would be worth its change."""
        waits = ctx.clock.epoch < round(self.first * ctx.clock.epochs)
        for group in ctx.optimizer.param_groups:
            group["scale"] = 0.0 if waits and group.get("side") != HEAD else 1.0

    def forward(self, ctx: Context) -> AbstractContextManager[Any]:
        for norm in self.norms:
            norm.training = False
        return nullcontext()


@dataclass(eq=False)
class LPFT(Finetune):
    """Linear probing, then fine-tuning (Kumar et al. 2022, section 3): a head that fits does not distort features.

    The head starts as :class:`Probe` solves for it; then all layers learn, the head at the rate of the last block.
    """

    name = "lp-ft"
    summary = "from probe's head, a pretrained network is trained further at small rates, early layers slowest"

    ranges: ClassVar = {"rate": log(0.0003, 0.01), "lowest": log(0.01, 1.0)}

    rate: float = 0.003
    head: float = 1.0
    first: float = 0.0
    strength: float | None = None  # of the penalty on probe's head; None: as validation likes it

    def refuses(self, problem: Problem) -> str:
        return "begins with a linear head, and there is none for every pixel" if problem.target.kind == "dense" else ""

    def settled(self, history: list[dict[str, Any]]) -> Method:
        return replace(self, strength=history[0]["strength"])

    def begin_epoch(self, ctx: Context) -> None:
        super().begin_epoch(ctx)
        if ctx.clock.epoch_index > 0:
            return
        path, head = next(iter(ctx.partition.head.modules.items()))
        x, _ = next(iter(ctx.train.ordered()))
        front = nn.Identity() if isinstance(ctx.model, Head) else Cut(ctx.model, path, x[:2]).front
        solve(ctx, head, front, self.strength)
