"""Learned rates of the inner loop: for every weight (Meta-SGD), or for every layer and step (MAML++)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fallow.core.errors import RequestError
from fallow.methods.fewshot.piece import Piece
from fallow.weights.layers import layers


class ElementwiseRates(nn.Module):
    """One rate for every weight, the same at all steps."""

    def __init__(self, model: nn.Module, rate: float) -> None:
        super().__init__()
        self.paths = {name.replace(".", "/"): name for name, p in model.named_parameters() if p.requires_grad}
        held = dict(model.named_parameters())
        for mine, path in self.paths.items():
            self.register_parameter(mine, nn.Parameter(torch.full_like(held[path], rate)))

    def forward(self, step: int) -> Mapping[str, Tensor]:
        """The rates at a step."""
        return {path: self._parameters[mine] for mine, path in self.paths.items()}  # type: ignore[misc]


class LayerRates(nn.Module):
    """One rate for every layer and step; more steps than that go on with the last."""

    def __init__(self, model: nn.Module, steps: int, rate: float) -> None:
        super().__init__()
        self.owner: dict[str, int] = {}
        owned = [
            [
                f"{path}.{name}" if path else name
                for name, p in module.named_parameters(recurse=False)
                if p.requires_grad
            ]
            for path, module in layers(model).items()
        ]
        for layer, names in enumerate(names for names in owned if names):
            self.owner |= dict.fromkeys(names, layer)
        first = next(model.parameters())
        shape = (max(1, steps), max(self.owner.values()) + 1)
        self.rate = nn.Parameter(torch.full(shape, rate, dtype=first.dtype, device=first.device))

    def forward(self, step: int) -> Mapping[str, Tensor]:
        """The rates at a step."""
        row = self.rate[min(step, len(self.rate) - 1)]
        return {name: row[layer] for name, layer in self.owner.items()}


@dataclass(eq=False)
class MetaSGD(Piece):
    """θ' = θ − α ⊙ ∇L, where α has the shape of θ and is learned with it (Li et al. 2017, equation 3).

    ``start`` is α at the beginning; None: MAML's rate.
    """

    name = "meta-sgd"
    summary = "the inner loop's rate of every weight is learned with the initialisation"
    decides = "the rates of the inner loop"
    role = "learned_rates"

    start: float | None = None

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        return ElementwiseRates(model, rate if self.start is None else self.start)


@dataclass(eq=False)
class LearnedRates(Piece):
    """θ' = θ − α_{layer, step}·∇L, the rates learned with the initialisation (MAML++, Antoniou et al. 2019)."""

    name = "learned-rates"
    summary = "the inner loop's rate of every layer and step is learned with the initialisation"
    decides = "the rates of the inner loop"
    role = "learned_rates"

    start: float | None = None

    def __post_init__(self) -> None:
        if self.start is not None and self.start <= 0:
            raise RequestError(f"start is {self.start}: a rate is above 0")

    def build(self, model: nn.Module, steps: int, rate: float) -> nn.Module:
        return LayerRates(model, steps, rate if self.start is None else self.start)
