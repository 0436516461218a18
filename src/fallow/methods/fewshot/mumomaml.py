"""MuMoMAML: a task embedding modulates the initialisation before the inner loop (Vuorio et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fallow.adaptation.modulation import KINDS, Modulator
from fallow.base.errors import unknown
from fallow.base.numbers import require_whole
from fallow.methods.fewshot.piece import Piece


@dataclass(eq=False)
class MuMoMAML(Piece):
    """A second network reads the support set, and scales and shifts what every layer but the head gives::

        υ = mean of h(x, y) over the support set,    layer i:  (1 + τ_γ)·z + τ_β,  (τ_γ, τ_β) = g_i(υ)

    (Vuorio et al. 2019, algorithm 1.) It is for tasks of several kinds, for which one initialisation is a compromise.
    The inner loop adapts θ under a modulation that stays. ``kind`` sigmoid and softmax are the paper's attention: τ·z.
    """

    name = "mumomaml"
    summary = "an embedding of the task scales and shifts every layer's output, before and during adaptation"
    exclusive = ("how a task is modulated",)
    role = "modulator"

    kind: str = "film"  # or "sigmoid", "softmax"
    width: int = 64  # of the embedding υ, and of the network that finds it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind", self.kind, KINDS)
        require_whole("width", self.width)

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        return Modulator(model, self.kind, self.width)
