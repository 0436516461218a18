"""ANIL: almost no inner loop; only the head adapts (Raghu et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from fallow.base.errors import RequestError
from fallow.methods.fewshot.piece import Piece
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order


@dataclass(eq=False)
class ANIL(Piece):
    """The inner loop moves the head's parameters only; the body is shared as it is (Raghu et al. 2020, section 4)."""

    name = "anil"
    summary = "only the head adapts in the inner loop; the body is shared by all tasks"
    exclusive = ("what adapts",)

    def adapted(self, model: nn.Module, names: Sequence[str]) -> list[str]:
        head = head_of(model, execution_order(model))
        found = [name for name in names if name.rpartition(".")[0] == head]
        if not found:
            raise RequestError("anil finds no trained head to adapt: the model's last layer has no parameters")
        return found
