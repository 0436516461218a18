"""κ by its definition in float64, with normalisations in elementary operations: what everything is checked against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[Any, Any], Tensor]


def by_hand(norm: Any, x: Tensor) -> Tensor:
    """What a normalisation does, operation by operation."""
    channel = [1, -1] + [1] * (x.ndim - 2)
    affine = channel
    if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) and not norm.training:
        mean, variance = norm.running_mean.view(channel), norm.running_var.view(channel)
        centred = x - mean
    else:
        dims = tuple(i for i in range(x.ndim) if i != 1)
        if isinstance(norm, nn.InstanceNorm2d):
            dims = dims[1:]
        if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
            dims = tuple(range(x.ndim - len(norm.normalized_shape), x.ndim))
            affine = list(norm.normalized_shape)
        centred = x if isinstance(norm, nn.RMSNorm) else x - x.mean(dims, keepdim=True)
        variance = (centred**2).mean(dims, keepdim=True)
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    out = centred / torch.sqrt(variance + eps)
    out = out if norm.weight is None else out * norm.weight.view(affine)
    bias = getattr(norm, "bias", None)
    return out if bias is None else out + bias.view(affine)


@contextmanager
def elementary(model: nn.Module) -> Iterator[None]:
    """Inside, the norms of the model (torch's GroupNorm excepted, which is right) compute by hand."""
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.RMSNorm | nn.InstanceNorm2d
    norms = [module for module in model.modules() if isinstance(module, kinds)]
    for norm in norms:
        norm.forward = partial(by_hand, norm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def dense(model: nn.Module, path: str, x: Tensor, y: Any, loss: Loss, simplified: bool = False) -> Tensor:
    """Σ_{s,s'} ⟨w_s, w_s'⟩ Tr H_{s,s'}, H entry by entry."""
    weight = model.get_submodule(path).weight
    with elementary(model), torch.random.fork_rng():
        (first,) = torch.autograd.grad(loss(model(x), y), weight, create_graph=True)
    rows = [torch.autograd.grad(entry, weight, create_graph=True)[0].flatten() for entry in first.flatten()]
    w = weight.flatten(1)
    hessian = torch.stack(rows).view(*w.shape, *w.shape)
    if simplified:
        return w.square().sum() * torch.einsum("stst->", hessian)
    return torch.einsum("stut,su->", hessian, w @ w.T)


def gradients(kappa: Tensor, model: nn.Module) -> list[Tensor]:
    """With respect to every parameter, in one long vector each."""
    found = torch.autograd.grad(kappa, list(model.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, model.parameters(), strict=True)]


def distance(found: Tensor, wanted: Tensor, model: nn.Module) -> float:
    """The largest relative error: of the value, and of the gradient by every parameter.

    Some gradients are 0 but for rounding (a bias before BatchNorm), so a thousandth of the whole gradient is the least
    that an error is measured by.
    """
    mine, theirs = gradients(found, model), gradients(wanted, model)
    whole = torch.cat([g.flatten() for g in theirs]).norm()
    errors = [(a - b).norm() / torch.maximum(b.norm(), 1e-3 * whole) for a, b in zip(mine, theirs, strict=True)]
    value = (found - wanted).abs() / wanted.abs()
    return float(torch.stack([*errors, value.detach()]).max())


def finite_difference(kappa: Callable[[], Tensor], parameter: Tensor, direction: Tensor, h: float = 1e-4) -> float:
    """The slope of κ along a direction of one parameter, by four values."""
    start, values = parameter.detach().clone(), []
    with torch.no_grad():
        for step in (-2, -1, 1, 2):
            parameter.copy_(start + step * h * direction)
            with torch.enable_grad():
                values.append(kappa().item())
        parameter.copy_(start)
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)


smoothed = partial(functional.cross_entropy, label_smoothing=0.1)
