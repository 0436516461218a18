"""The baseline of every semi-supervised method: the labelled images alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.methods.semi.fixmatch import FixMatch


@dataclass(eq=False)
class Supervised(FixMatch):
    """FixMatch without its second term: the same steps, weak augmentation, schedule and average, on labels alone."""

    name = "supervised"
    summary = "fixmatch's training on the labelled images alone"

    @property
    def passes(self) -> float:  # type: ignore[override]
        """No views, no extra work."""
        return 1.0

    def views(self, seed: int, epoch: int, step: int, order: Tensor) -> tuple[Tensor, ...]:
        """None."""
        return ()

    def end_step(self, ctx: Context) -> None:
        before = ctx.passes
        super().end_step(ctx)
        ctx.passes = before


def supervised(of: Method) -> Supervised:
    """The baseline with the settings of a method."""
    assert isinstance(of, FixMatch)
    return Supervised(
        threshold=of.threshold, weight=of.weight, ratio=of.ratio, steps=of.steps, decay=of.decay, nesterov=of.nesterov
    )
