"""What composes with an inner loop: each piece decides one thing about it, and keeps its own meta-parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn


class LearnerPiece(Protocol):
    """A part of the inner loop, as a learner asks it."""

    @property
    def role(self) -> str:
        """The name of its module in the learner."""

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module | None:
        """Its meta-parameters, which join the one meta-optimiser."""

    def adapted(self, model: nn.Module, names: Sequence[str]) -> list[str]:
        """Which of the parameters the inner loop moves."""
