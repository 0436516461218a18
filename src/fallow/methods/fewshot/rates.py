"""Rates of the inner loop: per weight (Meta-SGD, Li et al. 2017), per layer and step (MAML++, Antoniou et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fallow.adaptation.rates import ElementwiseRates, LayerRates
from fallow.base.errors import RequestError
from fallow.methods.fewshot.piece import Piece


@dataclass(eq=False)
class MetaSGD(Piece):
    """θ' = θ − α ⊙ ∇L, where α has the shape of θ and is learned with it (Li et al. 2017, equation 3).

    ``start`` is α at the beginning; None: MAML's rate.
    """

    name = "meta-sgd"
    summary = "the inner loop's rate of every weight is learned with the initialisation"
    exclusive = ("the rates of the inner loop",)
    role = "learned_rates"

    start: float | None = None

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        return ElementwiseRates(model, rate if self.start is None else self.start)


@dataclass(eq=False)
class LearnedRates(Piece):
    """θ' = θ − α_{layer, step}·∇L, the rates learned with the initialisation (Antoniou et al. 2019, section 4)."""

    name = "learned-rates"
    summary = "the inner loop's rate of every layer and step is learned with the initialisation"
    exclusive = ("the rates of the inner loop",)
    role = "learned_rates"

    start: float | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.start <= 0:
            raise RequestError(f"start is {self.start}: a rate is above 0")

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        return LayerRates(model, steps, rate if self.start is None else self.start)
