"""Slices through the loss along filter-normalised directions (Li, Xu, Taylor, Studer and Goldstein 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.diagnose.checks import chosen, refuse_mismatch, refuse_nonfinite
from fallow.diagnose.intervals import plain
from fallow.diagnose.perturbed import look, restored
from fallow.evaluate.losses import Loss, criterion
from fallow.weights.masks import matrices


@dataclass(frozen=True)
class Slice:
    """Loss and accuracy over a grid around the weights: one axis for each direction."""

    steps: np.ndarray  # along every direction; 0, the weights themselves, is the middle one
    losses: np.ndarray  # one or two dimensions
    accuracies: np.ndarray | None  # where targets are classes
    seed: int

    @property
    def dimensions(self) -> int:
        """One or two."""
        return self.losses.ndim

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        summary = {"dimensions": self.dimensions, "steps": plain(self.steps), "seed": self.seed}
        return summary | {
            "losses": plain(self.losses),
            "accuracies": None if self.accuracies is None else plain(self.accuracies),
        }


@torch.no_grad()
def slices(
    model: nn.Module,
    loss: str | Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    dimensions: int = 1,
    radius: float = 1.0,
    points: int = 21,
    parameters: Sequence[str] | None = None,
    seed: int = 0,
) -> Slice:
    """L(θ + a d), or L(θ + a d + b e), for a and b from −``radius`` to ``radius``.

    Each filter of a random direction (a row of a weight matrix, an output channel of a convolution) has the norm of the
    filter it is added to, so that a network whose weights are scaled up and undone by a norm layer shows the same
    slice; biases and the parameters of norm layers stay, whatever their shape. The model runs in eval mode; its weights
    are restored to the bit. ``points`` should be odd for the weights themselves to be among them.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> x, y = torch.randn(20, 3), torch.arange(20) % 2
    >>> slices(net, "cross_entropy", x, y, dimensions=2, points=5).losses.shape
    (5, 5)
    """
    if dimensions not in (1, 2):
        raise RequestError(f"dimensions={dimensions} cannot be drawn: 1 or 2 can")
    if points < 2 or not 0 < radius < float("inf"):
        raise RequestError(f"points={points}, radius={radius} is no grid: two points and a radius above 0 make one")
    refuse_mismatch(inputs, targets)
    refuse_nonfinite(model)
    function = criterion(loss)
    moving, filters = chosen(model, parameters), matrices(model)
    weights: list[Tensor] = list(moving.values())
    steps = np.linspace(-radius, radius, points)
    directions = [filter_normalised(weights, mix(seed, axis)) for axis in range(dimensions)]
    for direction in directions:
        torch._foreach_mul_(direction, [float(name in filters) for name in moving])
    shape = (points,) * dimensions
    losses, accuracies = np.zeros(shape), np.zeros(shape)
    with restored(weights) as start:
        for place in np.ndindex(shape):
            torch._foreach_copy_(weights, start)
            for direction, index in zip(directions, place, strict=True):
                torch._foreach_add_(weights, direction, alpha=float(steps[index]))
            now = look(model, function, inputs, targets)
            losses[place], accuracies[place] = now.loss, np.nan if now.accuracy is None else now.accuracy
    return Slice(steps, losses, None if np.isnan(accuracies).all() else accuracies, seed)


def filter_normalised(weights: Sequence[Tensor], seed: int) -> list[Tensor]:
    """d_f ← d_f ‖w_f‖ / ‖d_f‖ for every filter f of a Gaussian direction, and 0 for what has no filters."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for weight in weights:
        direction = torch.randn(weight.shape, generator=generator, dtype=weight.dtype).to(weight.device)
        if weight.ndim < 2:
            found.append(torch.zeros_like(direction))
            continue
        own, drawn = (values.detach().flatten(1).norm(dim=1) for values in (weight, direction))
        scale = own / drawn.clamp(min=torch.finfo(weight.dtype).tiny)
        found.append(direction * scale.view(-1, *[1] * (weight.ndim - 1)))
    return found
