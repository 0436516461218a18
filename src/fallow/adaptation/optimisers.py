"""Optimisers of the inner loop that can be differentiated: from gradients to the directions of the step.

θ' = θ − α·d, with ``sgd``: d = ∇L; ``momentum``: d = v; ``adam``: d = m̂/√(v̂ + ε²). Meta-gradients go through the
moments too. An optimiser is a function of the gradients and of what it remembered of the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.9
BETAS = (0.9, 0.999)
EPSILON = 1e-5

Memory = Any  # None before the first step
Directions = Callable[[Sequence[Tensor], Memory], tuple[Sequence[Tensor], Memory]]


def sgd(found: Sequence[Tensor], memory: Memory) -> tuple[Sequence[Tensor], Memory]:
    """The gradient itself."""
    return found, memory


def momentum(found: Sequence[Tensor], memory: Memory) -> tuple[Sequence[Tensor], Memory]:
    """The velocity v ← μv + g (Polyak's, as torch.optim.SGD has it).

    >>> d, v = momentum([torch.ones(1)], None)
    >>> momentum([torch.ones(1)], v)[0]
    [tensor([1.9000])]
    """
    velocity = list(found) if memory is None else [MOMENTUM * v + g for v, g in zip(memory, found, strict=True)]
    return velocity, velocity


def adam(found: Sequence[Tensor], memory: Memory) -> tuple[Sequence[Tensor], Memory]:
    """The ratio m̂/√(v̂ + ε²) of Adam's moments m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², corrected.

    ε is inside the root, where torch.optim.Adam adds it outside: the root of 0 has no derivative.
    """
    count, first, second = memory or (0, [torch.zeros_like(g) for g in found], [torch.zeros_like(g) for g in found])
    one, two = BETAS
    count += 1
    first = [one * m + (1 - one) * g for m, g in zip(first, found, strict=True)]
    second = [two * v + (1 - two) * g * g for v, g in zip(second, found, strict=True)]
    mild, sharp = 1 - one**count, 1 - two**count
    moved = [(m / mild) / (v / sharp + EPSILON**2).sqrt() for m, v in zip(first, second, strict=True)]
    return moved, (count, first, second)


OPTIMISERS: dict[str, Directions] = {"sgd": sgd, "momentum": momentum, "adam": adam}
