"""BOIL: body only in the inner loop; the head stays (Oh et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from fallow.base.errors import RequestError
from fallow.methods.fewshot.piece import Piece
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order


@dataclass(eq=False)
class BOIL(Piece):
    """The inner loop moves all but the head, so that a task must change its features: the opposite of ANIL.

    (Oh et al. 2021, section 3.)
    """

    name = "boil"
    summary = "everything but the head adapts in the inner loop: the features change with the task"
    exclusive = ("what adapts",)

    def adapted(self, model: nn.Module, names: Sequence[str]) -> list[str]:
        head = head_of(model, execution_order(model))
        found = [name for name in names if name.rpartition(".")[0] != head]
        if not found:
            raise RequestError("boil finds no body to adapt: the model has no layer before its head")
        return found
