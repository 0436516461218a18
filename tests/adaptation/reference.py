"""MAML and its family as one would write them down: a Python loop over tasks and steps, in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call


def naive(
    model: nn.Module,
    criterion: Callable[[Tensor, Tensor], Tensor],
    batch: tuple[Tensor, ...],
    *,
    steps: int,
    rate: Callable[[int, str], Tensor | float],
    order: int = 2,
    gamma: Callable[[list[Tensor]], dict[str, Tensor]] | None = None,
    weights: list[float] | None = None,
    adapted: set[str] | None = None,
    optimizer: str = "sgd",
) -> Tensor:
    """The mean query loss over tasks, with its graph."""
    total = torch.zeros((), dtype=torch.float64)
    for x, y, query_x, query_y in zip(*batch, strict=True):
        params = dict(model.named_parameters())
        if gamma is not None:
            loss = criterion(functional_call(model, params, x), y)
            found = torch.autograd.grad(loss, list(params.values()))
            factors = gamma([g.detach() for g in found])
            params = {name: factors.get(name, 1.0) * p for name, p in params.items()}
        first = {name: torch.zeros_like(p) for name, p in params.items()}
        second = dict(first)
        for step in range(steps):
            names = [name for name in params if adapted is None or name in adapted]
            loss = criterion(functional_call(model, params, x), y)
            found = torch.autograd.grad(loss, [params[name] for name in names], create_graph=order == 2)
            for name, gradient in zip(names, found, strict=True):
                direction = g = gradient if order == 2 else gradient.detach()
                if optimizer == "momentum":
                    direction = first[name] = 0.9 * first[name] + g
                elif optimizer == "adam":
                    first[name] = 0.9 * first[name] + 0.1 * g
                    second[name] = 0.999 * second[name] + 0.001 * g**2
                    m, v = first[name] / (1 - 0.9 ** (step + 1)), second[name] / (1 - 0.999 ** (step + 1))
                    direction = m / torch.sqrt(v + 1e-10)
                params = params | {name: params[name] - rate(step, name) * direction}
            share = (1.0 if step == steps - 1 else 0.0) if weights is None else weights[step]
            if share:
                total = total + share * criterion(functional_call(model, params, query_x), query_y)
    return total / len(batch[0])
