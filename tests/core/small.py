"""The smallest trainings that still have everything: a few points, a network of two layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fallow.data import Data, Examples

TINY: dict[str, Any] = {"generations": 2, "epochs": 2, "batch_size": 8, "lr": 0.05, "seed": 3}
OWN = {name: value for name, value in TINY.items() if name != "lr"}  # with an optimiser that has a rate itself


def points(n: int = 16, classes: int = 2, val: bool = True) -> Data:
    """Points of four coordinates around one centre per class; nothing is normalised."""
    draw = torch.Generator().manual_seed(n)
    centres = 2 * torch.randn(classes, 4, generator=draw)

    def some(count: int) -> Examples:
        y = torch.arange(count) % classes
        return Examples(centres[y] + torch.randn(count, 4, generator=draw), y)

    names = [str(i) for i in range(classes)]
    return Data("points", some(n), some(12) if val else None, some(20), names, (4,))


class Net(nn.Module):
    """Two layers, in whatever precision is asked for."""

    def __init__(self, classes: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Linear(4, 5, dtype=dtype)
            self.second = nn.Linear(5, classes, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x.to(self.first.weight.dtype))))


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
