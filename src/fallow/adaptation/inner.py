"""The inner loop: gradient descent on the support set, from shared parameters to those of every task.

Plain functions, for anyone's own loop::

    model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
    params = adapt(model, (x, y), functional.mse_loss, steps=5, rate=0.01)     # x (tasks, n, 1): all tasks at once
    losses, outputs = Objective(model, functional.mse_loss, batched=True)(params, query_x, query_y)
    losses.mean().backward()                                                   # the meta-gradient, second order
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fallow.adaptation.objective import Criterion, Objective, Params
from fallow.adaptation.optimisers import OPTIMISERS, Memory
from fallow.base.errors import unknown

Rates = float | Mapping[str, Tensor]


def gradients(
    objective: Objective,
    params: Params,
    names: Sequence[str],
    x: Tensor,
    y: Tensor,
    *,
    order: int = 2,
    pure: bool = False,
    buffers: Params | None = None,
    common: bool = True,
) -> tuple[list[Tensor], Tensor]:
    """∇L of every task with respect to the parameters ``names``, and the losses.

    Of ``order`` 2 they can be differentiated again; of order 1 they are constants, and their graph is gone at once.
    ``pure`` asks torch.func instead of autograd, for torch.compile.
    """

    def losses(chosen: list[Tensor]) -> tuple[Tensor, Tensor]:
        each, _ = objective(params | dict(zip(names, chosen, strict=True)), x, y, buffers, common=common)
        return each.sum(), each.detach()

    point = [params[name] for name in names]
    if pure:
        found, each = torch.func.grad(losses, has_aux=True)(point)
        return (found if order == 2 else [g.detach() for g in found]), each
    if not torch.is_grad_enabled():
        order = 1  # nobody will differentiate them
    with torch.enable_grad():
        if order < 2:
            point = [p.detach().requires_grad_() for p in point]
        total, each = losses(point)
        found = torch.autograd.grad(
            total, point, create_graph=order == 2, allow_unused=True, materialize_grads=True
        )  # a parameter that a task does not use stays where it is
    return list(found), each


def descend(params: Params, names: Sequence[str], found: Sequence[Tensor], rates: Rates, pure: bool = False) -> Params:
    """θ' = θ − α·∇L, with one rate α, or one for every parameter (a number, or a number for every weight).

    ``pure``: without the one call for all tensors, which torch.func.vmap does not know.
    """
    point = [params[name] for name in names]
    if isinstance(rates, Mapping):
        moved = [p - rates[name] * g for name, p, g in zip(names, point, found, strict=True)]
    elif pure:
        moved = [p - rates * g for p, g in zip(point, found, strict=True)]
    else:
        moved = list(torch._foreach_add(point, list(found), alpha=-rates))
    return params | dict(zip(names, moved, strict=True))


def spread(params: Params, tasks: int) -> Params:
    """The same parameters for every task: views (tasks, …) whose gradients add up."""
    return {name: p.expand(tasks, *p.shape) for name, p in params.items()}


def adapt(
    model: nn.Module,
    support: tuple[Tensor, Tensor],
    criterion: Criterion,
    *,
    steps: int = 5,
    rate: Rates | Sequence[Rates] = 0.01,
    optimizer: str = "sgd",
    order: int = 2,
    params: Params | None = None,
    names: Sequence[str] | None = None,
) -> Params:
    """The parameters (tasks, …) after ``steps`` of gradient descent on the support set of every task.

    θ_{i+1} = θ_i − α ∇L_support(θ_i), from ``params`` (tasks, …), or else from the model's own for all tasks alike.
    A sequence of rates is taken step by step. ``order`` 1 treats the gradients as constants (first-order MAML).
    ``optimizer`` "momentum" or "adam" steps along other directions, which the meta-gradient goes through too.

    >>> model = nn.Linear(1, 1)
    >>> x = torch.randn(3, 5, 1)
    >>> {name: tuple(p.shape) for name, p in adapt(model, (x, 2 * x), nn.functional.mse_loss).items()}
    {'weight': (3, 1, 1), 'bias': (3, 1)}
    """
    if optimizer not in OPTIMISERS:
        raise unknown("optimizer", optimizer, OPTIMISERS)
    x, y = support
    memory: Memory = None
    objective = Objective(model, criterion, batched=True)
    if params is None:
        params = spread({name: p for name, p in model.named_parameters() if p.requires_grad}, len(x))
    names = list(params) if names is None else list(names)
    for step in range(steps):
        found, _ = gradients(objective, params, names, x, y, order=order)
        moved, memory = OPTIMISERS[optimizer](found, memory)
        params = descend(params, names, moved, rate[step] if isinstance(rate, Sequence) else rate)
    return params
