"""Knowledge evolution (Taha et al. 2021): WELS, WELSR and KELS re-draw a mask's weights every generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import linear
from fallow.methods.forget.measure import log_forgetting
from fallow.weights.masks import check_fraction, matrices, random_mask
from fallow.weights.slim import kernel_mask


@dataclass(eq=False)
class WELS(Method):
    """A random subset s of the weights, drawn once, is re-drawn in every generation (weight-level splitting).

    w ← (1 − s) ⊙ w + s ⊙ η, η fresh weights (LW, equation 1; Taha et al. 2021).
    """

    name = "wels"
    summary = "a random, fixed fifth of the weights is reinitialised at the start of each generation"
    generational = True
    forgets = frozenset({"early", "late"})
    ranges: ClassVar = {"fraction": linear(0.05, 0.5)}

    fraction: float = 0.2  # of every layer's weights

    def __post_init__(self) -> None:
        check_fraction(self.fraction)

    def begin(self, ctx: Context) -> None:
        self.masks = self.choose(ctx)

    def choose(self, ctx: Context) -> dict[str, Tensor]:
        """The weights to forget."""
        return random_mask(matrices(ctx.model), self.fraction, ctx.rng)

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            ctx.redraw("all", where=self.masks)
            log_forgetting(ctx)

    def state_dict(self) -> dict[str, Any]:
        return {"masks": self.masks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.masks = {name: mask.to(self.masks[name].device) for name, mask in state["masks"].items()}


@dataclass(eq=False)
class WELSR(WELS):
    """As WELS, with a new random subset s in every generation (LW, equation 1; Taha et al. 2021)."""

    name = "welsr"
    summary = "a random fifth of the weights, another each time, is reinitialised at the start of each generation"

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            self.masks = self.choose(ctx)
        super().begin_generation(ctx)


@dataclass(eq=False)
class KELS(WELS):
    """All but the first ⌈r·C_out⌉ × ⌈r·C_in⌉ block of every kernel is re-drawn (kernel-level splitting).

    Taha et al. 2021; in the terms of SEAL's equation 1, H_fit is that block.

    The kept blocks fit together: :func:`fallow.weights.slim` cuts them out as a network of its own.
    """

    name = "kels"
    summary = "all but the first channels of every layer are reinitialised; the kept part is a slim network of its own"
    ranges: ClassVar = {"fraction": linear(0.3, 0.9)}

    fraction: float = 0.5  # r, of every layer's channels that are kept

    def choose(self, ctx: Context) -> dict[str, Tensor]:
        x = next(iter(ctx.train.ordered()))[0][:2]
        return kernel_mask(ctx.model, self.fraction, x)
