"""FC: the fully connected layers, or the head alone, are re-drawn (Zhao et al. 2018, Li et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fallow.base.errors import unknown
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.methods.forget.measure import log_forgetting


@dataclass(eq=False)
class FC(Method):
    """Re-draw the classifier head, or all fully connected layers, at the start of every generation but the first.

    Unlike RIFLE's schedule it never re-draws after the last epoch: what is returned is trained.
    """

    name = "fc"
    summary = "the classifier head (or every fully connected layer) is re-drawn at the start of each generation"
    generational = True

    layers: str = "head"  # or "all": every fully connected layer

    def __post_init__(self) -> None:
        if self.layers not in ("head", "all"):
            raise unknown("layers", self.layers, ("head", "all"))

    @property
    def forgets(self) -> frozenset[str]:  # type: ignore[override]
        """The head is late; other fully connected layers may be anywhere."""
        return frozenset({"late"} if self.layers == "head" else {"early", "late"})

    def begin(self, ctx: Context) -> None:
        head = list(ctx.partition.head.modules)
        connected = [path for path, module in ctx.model.named_modules() if isinstance(module, nn.Linear)]
        self.paths = head if self.layers == "head" else connected or head

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            ctx.redraw(self.paths)
            log_forgetting(ctx)
