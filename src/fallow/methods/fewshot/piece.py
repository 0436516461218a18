"""What composes with MAML: each piece decides one thing about the inner loop, and keeps its own meta-parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import nn

from fallow.core.method import Method
from fallow.data.tasks.recipe import TaskRecipe


class Piece(Method):
    """A part of the inner loop; MAML asks it. Alone, it stands for MAML with it."""

    tasks = True
    role: ClassVar[str] = ""  # the name of its module in the learner

    def recipe(self, recipe: TaskRecipe) -> TaskRecipe:
        """The tasks' recipe, where this piece wants another inner loop."""
        return recipe

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module | None:
        """Its meta-parameters, which join the one meta-optimiser."""
        return None

    def adapted(self, model: nn.Module, names: Sequence[str]) -> list[str]:
        """Which of the parameters the inner loop moves."""
        return list(names)

    def weights(self, steps: int, progress: float) -> list[float] | None:
        """How much the query loss after each inner step counts; None: only the last."""
        return None
