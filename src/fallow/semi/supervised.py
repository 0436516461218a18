"""The baseline of every semi-supervised method: the labelled images alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fallow.core.method import Cost, Method
from fallow.methods.semi.fixmatch import FixMatch


@dataclass(eq=False)
class Supervised(FixMatch):
    """FixMatch without its second term: the same steps, weak augmentation, schedule and average, on labels alone."""

    name = "supervised"
    summary = "fixmatch's training on the labelled images alone"

    cost = Cost()  # no views, no extra work

    def views(self, seed: int, epoch: int, step: int, order: Tensor) -> tuple[Tensor, ...]:
        """None."""
        return ()


def supervised(of: Method) -> Supervised:
    """The baseline with the settings of a method."""
    assert isinstance(of, FixMatch)
    return Supervised(
        threshold=of.threshold, weight=of.weight, ratio=of.ratio, steps=of.steps, decay=of.decay, nesterov=of.nesterov
    )
