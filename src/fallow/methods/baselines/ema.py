"""EMA: an exponential moving average of the weights (Polyak & Juditsky 1992; Tarvainen & Valpola 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fallow.base.errors import RequestError
from fallow.core.context import Context
from fallow.core.ranges import choice
from fallow.methods.averaging import Averaging


@dataclass(eq=False)
class EMA(Averaging):
    """What is evaluated is an average of the weights in which older ones fade (Tarvainen & Valpola 2017, section 2).

    After step t = 0, 1, … (of the generation)::

        θ̄ ← d·θ̄ + (1 − d)·θ,    d = min(decay, t / (t + 9))

    so that the average starts at the first step's weights, and covers about the last tenth of the steps until
    there are enough of them for ``decay``. The running statistics of batch norms are averaged like weights.
    """

    name = "ema"
    summary = "a moving average of the weights is evaluated"
    ranges: ClassVar = {"decay": choice(0.9, 0.97, 0.99, 0.997, 0.999)}

    decay: float = 0.999

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise RequestError(f"decay is {self.decay}: it must be from 0 to below 1")

    def end_step(self, ctx: Context) -> None:
        if not ctx.disturbed:
            self.take(1 - min(self.decay, self.count / (self.count + 9)))
