"""DSD: dense-sparse-dense (Han et al. 2017), every generation instead of once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import linear
from fallow.methods.forget.measure import log_forgetting
from fallow.weights.masks import check_fraction, check_scope, matrices, smallest


@dataclass(eq=False)
class DSD(Method):
    """The weights of smallest magnitude are re-drawn at the start of every generation but the first.

    w ← (1 − s) ⊙ w + s ⊙ η (LW, equation 1), s the smallest; Han et al. 2017 (algorithm 1) do so once.
    """

    name = "dsd"
    summary = "the smallest fifth of the weights is reinitialised at the start of each generation"
    generational = True
    forgets = frozenset({"early", "late"})
    ranges: ClassVar = {"fraction": linear(0.1, 0.7)}

    fraction: float = 0.2
    scope: str = "layer"  # the smallest of each layer, or of all together: "global"

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        check_scope(self.scope)

    def begin_generation(self, ctx: Context) -> None:
        if ctx.clock.generation > 0:
            trained = {name: weight for name, weight in matrices(ctx.model).items() if weight.requires_grad}
            ctx.redraw("all", where=smallest(trained, self.fraction, self.scope))
            log_forgetting(ctx)
