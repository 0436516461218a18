"""Implicit MAML: no inner step is differentiated (Rajeswaran et al. 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import nn

from fallow.adaptation.implicit import Proximal
from fallow.base.errors import RequestError
from fallow.base.numbers import require_whole
from fallow.data.tasks.recipe import TaskRecipe
from fallow.methods.fewshot.piece import Piece

STEPS, RATE = 16, 0.1  # the paper's steps for 5-way 1-shot tasks; and the largest α that nobody asked for


@dataclass(eq=False)
class IMAML(Piece):
    """The inner loop stays near the initialisation, and the meta-gradient is taken where it ends::

        φ = argmin L_support(φ) + λ/2·‖φ − θ‖²,    dL_query/dθ = (I + H/λ)⁻¹ ∂L_query/∂φ

    (Rajeswaran et al. 2019, lemma 1 and algorithm 2.) The system is solved by ``products`` of conjugate gradients. It
    assumes that φ is the minimum: take many steps.
    """

    name = "imaml"
    summary = "the meta-gradient is taken at the adapted point by the implicit function theorem: no step is kept"
    exclusive = ("the rates of the inner loop", "which steps' losses count")  # neither has a gradient here
    role = "proximal"

    strength: float = 2.0  # λ
    products: int = 5  # with the Hessian

    def __post_init__(self) -> None:
        if not 0 < self.strength < math.inf:
            raise RequestError(f"strength is {self.strength}: it must be above 0")
        require_whole("products", self.products)

    def recipe(self, recipe: TaskRecipe) -> TaskRecipe:
        return replace(recipe, steps=STEPS, rate=min(recipe.rate, RATE), evaluate_steps=None)

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        return Proximal(self.strength, self.products)
