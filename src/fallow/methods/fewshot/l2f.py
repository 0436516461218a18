"""L2F: learn to forget part of the shared initialisation, for every task and layer (Baik et al. 2020, supplement)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fallow.adaptation.attenuation import GRANULARITIES, Attenuator, owners
from fallow.base.errors import RequestError, unknown
from fallow.methods.fewshot.piece import Piece

GAMMAS = ("task", "constant")


@dataclass(eq=False)
class L2F(Piece):
    """Before the inner loop, each task attenuates what it starts from, layer by layer (Baik et al. 2020, section E.1)::

        γ = g_φ(mean of ∇L_support(θ) in every layer),    θ̄ = γ·θ

    in training and at evaluation; the embedding is a constant to the meta-gradient. θ and φ share one optimiser. The
    defaults are the supplement's; the public code has ``depth=2, per=tensor, norms=False``. ``gamma="constant"`` is the
    control: one γ for every layer, learned, and the same for all tasks, so that what is left of a gain is due to tasks.
    """

    name = "l2f"
    summary = "every task attenuates the shared initialisation, layer by layer, before it adapts"
    exclusive = ("where a task starts from",)
    role = "attenuator"

    depth: int = 3  # linear layers of g_φ
    hidden: int | None = None  # units in between; None: as many as there are γ
    per: str = "layer"  # or "tensor"
    norms: bool = True  # whether parameters of norms are attenuated too
    start: float | None = None  # of γ; None: what the default initialisation gives, about 0.5
    gamma: str = "task"  # γ depends on the task; or "constant"

    def __post_init__(self) -> None:
        if self.per not in GRANULARITIES:
            raise unknown("value for per", self.per, GRANULARITIES)
        if self.gamma not in GAMMAS:
            raise unknown("gamma", self.gamma, GAMMAS)
        if self.depth < 1 or (self.hidden is not None and self.hidden < 1):
            raise RequestError(f"depth is {self.depth} and hidden {self.hidden}: both are whole numbers from 1")
        if self.start is not None and not 0 < self.start < 1:
            raise RequestError(f"start is {self.start}: γ is between 0 and 1")

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        owner = owners(model, self.per, self.norms)
        if not owner:
            raise RequestError("l2f finds no parameters to attenuate: the model has none that are trained")
        return Attenuator(owner, self.depth, self.hidden, self.start, constant=self.gamma == "constant")
