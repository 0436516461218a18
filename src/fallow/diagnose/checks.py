"""What every diagnosis checks before it starts: finite weights, a target for every example, names that exist."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.weights.blocks import inside


def chosen(model: nn.Module, names: Sequence[str] | None = None) -> dict[str, nn.Parameter]:
    """The trainable parameters, or those of them that ``names`` (of parameters or modules) name.

    >>> list(chosen(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), ["1", "0.bias"]))
    ['0.bias', '1.weight', '1.bias']
    """
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if names is None:
        found = trainable
    else:
        known = {name for name, _ in model.named_parameters()} | {path for path, _ in model.named_modules() if path}
        for name in names:
            if name not in known:
                raise unknown("parameter or module", name, known)
        found = {name: p for name, p in trainable.items() if any(inside(name, parent) for parent in names)}
    if not found:
        where = "the model" if names is None else ", ".join(names) or "an empty choice"
        raise RequestError(f"{where} has no parameter that requires a gradient: there is nothing to measure")
    return found


def refuse_nonfinite(model: nn.Module) -> None:
    """A weight that is infinite or no number makes every measure of the model meaningless."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            count = int((~torch.isfinite(tensor)).sum())
            raise RequestError(f"{name} is not finite in {count} of {tensor.numel()} places: the model has diverged")


def refuse_mismatch(inputs: Tensor, targets: Tensor) -> None:
    """Every example needs its target, and there must be one at least."""
    if len(inputs) != len(targets):
        raise RequestError(f"there are {len(inputs)} inputs and {len(targets)} targets: give one target for each input")
    if len(inputs) == 0:
        raise RequestError("there are no examples: give at least one")
