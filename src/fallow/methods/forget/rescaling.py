"""Rescale: every layer returns to its initial size, nothing is re-drawn (LW, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.methods.forget.measure import log_forgetting
from fallow.weights import matrices, norms, rescale


@dataclass(eq=False)
class Rescale(Method):
    """W ← (s / ‖W‖₂)·W for every layer at the start of every generation but the first, s the norm at initialisation.

    LW, appendix B; step 1 of its algorithm 1, for all layers.
    """

    name = "rescale"
    summary = "every layer is scaled back to its initial norm at the start of each generation"
    generational = True
    forgets = frozenset({"early", "late"})

    def begin(self, ctx: Context) -> None:
        self.layers = matrices(ctx.model)
        self.sizes = norms(self.layers)

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            rescale(list(self.layers.values()), [self.sizes[name] for name in self.layers])
            log_forgetting(ctx)

    def state_dict(self) -> dict[str, Any]:
        return {"sizes": self.sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes = {name: size.to(self.layers[name].device) for name, size in state["sizes"].items()}
