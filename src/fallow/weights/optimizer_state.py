"""What an optimiser remembers about weights that are no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def reset_state(
    optimizer: torch.optim.Optimizer, params: Iterable[Tensor], where: Sequence[Tensor] | None = None
) -> None:
    """Make ``optimizer`` forget ``params``, or only the elements under the boolean masks ``where``.

    A whole tensor starts exactly as in a new optimiser, step counter included (but for a fused SGD with
    dampening τ, whose first step is 1 − τ as long). Of single elements only what is kept per element is
    reset (momentum, averages of squares). The step counter they share with the others stays, so that Adam
    takes them for well estimated: their first step is (1 − β₁) / √(1 − β₂) times the learning rate, 3.2
    times with the usual β.
    """
    groups = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
    for i, parameter in enumerate(params):
        state = optimizer.state.get(parameter)
        if not state or parameter not in groups:
            continue
        group = groups[parameter]
        if where is None and not _needs_entry(optimizer, group):
            del optimizer.state[parameter]
            continue
        for key, value in state.items():
            if not isinstance(value, Tensor):
                continue
            if where is None:
                value.fill_(_start(key, group))
            elif value.shape == parameter.shape:
                value.masked_fill_(where[i], _start(key, group))


def _needs_entry(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    """Whether a tensor's entry must stay, at its starting values, for the next step to work.

    Adagrad makes its entries only when it is built. The fused SGD fails on a group where some tensors have
    a momentum and others none; zero momentum is a fresh start for any SGD without dampening.
    """
    if isinstance(optimizer, torch.optim.SGD):
        return bool(group["fused"]) or not group["dampening"]
    return isinstance(optimizer, torch.optim.Adagrad)


def _start(key: str, group: dict[str, Any]) -> float:
    """The value at which a per-element state starts: zero, but for Adagrad's sum and Rprop's step size."""
    if key == "sum":
        return float(group.get("initial_accumulator_value", 0))
    return float(group["lr"]) if key == "step_size" else 0.0
