"""MAML++'s multi-step loss: the query losses after all inner steps, later only the last (Antoniou et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.base.errors import RequestError
from fallow.methods.fewshot.piece import Piece


def step_weights(steps: int, progress: float, until: float) -> list[float]:
    """Of the query losses after steps 1 … ``steps``: 1/steps each, annealed linearly to the last alone.

    >>> step_weights(4, 0.0, 0.5), step_weights(4, 0.25, 0.5), step_weights(4, 0.9, 0.5)
    ([0.25, 0.25, 0.25, 0.25], [0.125, 0.125, 0.125, 0.625], [0.0, 0.0, 0.0, 1.0])
    """
    share = max(0.0, 1 - progress / until) / steps if until > 0 else 0.0
    return [share] * (steps - 1) + [1 - share * (steps - 1)]


@dataclass(eq=False)
class MultiStepLoss(Piece):
    """L = Σ_i w_i L_query(θ_i) over the inner steps (MAML++, Antoniou et al. 2019, equation 4).

    The weights reach the last step alone when the share ``until`` of the training is done; until then every inner
    step has a direct gradient, which steadies the beginning. Each inner step costs a pass over the queries.
    """

    name = "multi-step-loss"
    summary = "the query loss after every inner step counts: all steps equally at first, later only the last"
    exclusive = ("which steps' losses count",)

    until: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.until <= 1:
            raise RequestError(f"until is {self.until}: it is a share of the training, above 0 and up to 1")

    def weights(self, steps: int, progress: float) -> list[float] | None:
        return None if progress >= self.until or steps < 2 else step_weights(steps, progress, self.until)
