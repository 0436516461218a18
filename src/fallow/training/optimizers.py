"""The optimiser of a training: one of two by name, or the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fallow.base.errors import RequestError, unknown
from fallow.core.settings import Settings
from fallow.training.layout import is_sharded
from fallow.weights.layers import layer_of

OWN = ("lr", "momentum", "nesterov", "weight_decay")  # settings that an optimiser of the user's has itself
OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def optimizer_of(
    model: nn.Module, given: torch.optim.Optimizer | OptimizerFactory | None, settings: Settings
) -> torch.optim.Optimizer:
    """The optimiser over what is trained of a model."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise RequestError("the model has no parameters to train")
    if isinstance(given, torch.optim.Optimizer):
        held = {id(p) for group in given.param_groups for p in group["params"]}
        if not held & {id(p) for p in parameters}:
            raise RequestError("the optimizer holds none of the model's parameters: make it from model.parameters()")
        return one_step(given)
    if callable(given):
        return one_step(given(parameters))
    # fused: one kernel for all tensors; on a small network on the CPU a step is an eighth shorter
    options: dict[str, Any] = {"lr": settings.lr, "fused": not is_sharded(model)}
    groups = _by_decay(model, settings.weight_decay)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    return torch.optim.AdamW(groups, **options)


def one_step(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Refuse those that ask for the loss several times in a step."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise RequestError("LBFGS asks for the loss several times a step, which no method here expects: take another")
    return optimizer


def _by_decay(model: nn.Module, decay: float | dict[str, float]) -> list[dict[str, Any]]:
    """A parameter group for every decay: one in all, or one for every layer that is named by its path."""
    trained = [(path, p) for path, p in model.named_parameters() if p.requires_grad]
    if not isinstance(decay, dict):
        return [{"params": [p for _, p in trained], "weight_decay": decay}]
    members: dict[str, list[nn.Parameter]] = {name: [] for name in decay}
    for path, parameter in trained:
        inside = [name for name in decay if path.startswith(f"{name}.") or layer_of(path) == name]
        if not inside:
            raise RequestError(f"weight_decay names no layer that holds {path}: give it a decay too, or 0 for none")
        members[max(inside, key=len)].append(parameter)  # the innermost
    for name, parameters in members.items():
        if not parameters:
            raise unknown("layer in weight_decay", name, {layer_of(path) for path, _ in trained})
    return [{"params": parameters, "weight_decay": decay[name]} for name, parameters in members.items()]
