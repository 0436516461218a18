"""IMP: iterative magnitude pruning with rewinding (Frankle & Carbin 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fallow.base.errors import RequestError
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import linear
from fallow.methods.forget.measure import log_forgetting
from fallow.weights import reset_state
from fallow.weights.masks import check_fraction, check_scope, mask, matrices, smallest


@dataclass(eq=False)
class IMP(Method):
    """The smallest of the remaining weights go for good, the others return to their initial values.

    Frankle & Carbin 2018, section 1, one round a generation.

    In generation g, (1 − fraction)^(g−1) of the weights are left. Removed weights are zero and stay zero;
    biases, norms and their statistics return to their initial values too.
    """

    name = "imp"
    summary = "the smallest fifth of the remaining weights is removed, the rest return to their initial values"
    generational = True
    forgets = frozenset({"early", "late"})
    ranges: ClassVar = {"fraction": linear(0.05, 0.5)}

    fraction: float = 0.2  # of the remaining weights, per generation
    scope: str = "global"  # the smallest of all together, or of each layer: "layer"

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_scope(self.scope)

    def begin(self, ctx: Context) -> None:
        self.weights = {name: p for name, p in matrices(ctx.model).items() if p.requires_grad}
        self.initial = {name: value.detach().clone() for name, value in ctx.model.state_dict().items()}
        self.removed = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in self.weights.items()}
        sizes = {f" of {name}": p.numel() for name, p in self.weights.items()}
        share = self.share(ctx.clock.generations - 1)
        for what, size in sizes.items() if self.scope == "layer" else [("", sum(sizes.values()))]:
            if round(share * size) == size:
                raise RequestError(
                    f"removing {self.fraction:g} {ctx.clock.generations - 1} times leaves no weight{what}: "
                    "take a smaller fraction or fewer generations"
                )

    def share(self, times: int) -> float:
        """Of the weights, what is removed after so many times."""
        return 1 - (1 - self.fraction) ** times

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation == 0:
            return
        magnitudes = {  # what is gone goes again, before a remaining weight that happens to be 0
            name: p.detach().abs().clamp_min(torch.finfo(p.dtype).tiny).masked_fill_(self.removed[name], 0.0)
            for name, p in self.weights.items()
        }
        self.removed = smallest(magnitudes, self.share(ctx.clock.generation), self.scope)
        self.keep()
        ctx.model.load_state_dict(self.initial)
        mask(self.weights, self.kept)
        reset_state(ctx.optimizer, list(ctx.model.parameters()))
        log_forgetting(ctx)

    def keep(self) -> None:
        """Turn the masks round once, for all the steps of a generation."""
        self.kept = {name: ~self.removed[name] for name in self.weights}

    def end_step(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            mask(self.weights, self.kept)

    def state_dict(self) -> dict[str, Any]:
        return {"initial": self.initial, "removed": self.removed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        place = {name: value.device for name, value in self.initial.items()}
        self.initial = {name: value.to(place[name]) for name, value in state["initial"].items()}
        self.removed = {name: value.to(place[name]) for name, value in state["removed"].items()}
        self.keep()
