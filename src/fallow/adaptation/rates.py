"""Learned rates of the inner loop: for every weight (Meta-SGD), or for every layer and step (MAML++)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

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
