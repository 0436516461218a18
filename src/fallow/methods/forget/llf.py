"""LLF: later-layer forgetting (Zhou et al. 2022; SEAL's main rival)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import choice
from fallow.methods.forget.measure import log_forgetting


@dataclass(eq=False)
class LLF(Method):
    """At the start of every generation but the first, re-draw all layers from the threshold on, head included.

    Zhou et al. 2022; in the terms of SEAL's equation 1, H_forget are the later layers.

    The threshold is the training's ``split``. Fresh weights come from the model's own initialisation; the
    public code draws them 2.45 times too small and leaves biases and norm layers as they were.
    """

    name = "llf"
    summary = "the later layers are reinitialised at the start of each generation, then all layers train"
    generational = True
    forgets = frozenset({"late"})
    ranges: ClassVar = {"optimizer_state": choice("reset", "keep")}

    biases: bool = True  # re-draw biases too
    norm_affine: bool = True  # reset the weights and biases of normalisations
    norm_buffers: bool = True  # reset running statistics (variance to 1)
    optimizer_state: str = "reset"  # or "keep": the momentum of weights that are gone

    def begin(self, ctx: Context) -> None:
        self.late = ctx.partition.late  # a split that leaves nothing is refused now, not after a generation

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            ctx.redraw(
                self.late,
                biases=self.biases,
                norm_affine=self.norm_affine,
                norm_buffers=self.norm_buffers,
                optimizer_state=self.optimizer_state,
            )
            log_forgetting(ctx)
