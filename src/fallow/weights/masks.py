"""Which single weights a method forgets: masks by name, True where a weight is to go.

Masks cover the weight matrices and kernels (two dimensions or more); biases and norms stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.weights.layers import is_norm, is_numeric, refuse_lazy

SCOPES = ("layer", "global")


def matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weight matrices and kernels of a model by name; a tied one appears once.

    A layer norm over several dimensions has a scale and a shift of as many, which are no matrices.
    """
    refuse_lazy(model)
    affine = {id(p) for module in model.modules() if is_norm(module) for p in module._parameters.values()}
    return {
        name: p
        for name, p in model.named_parameters()
        if p.ndim >= 2 and id(p) not in affine and "bias" not in name.rpartition(".")[2] and is_numeric(p)
    }


def check_fraction(fraction: float, what: str = "fraction") -> float:
    """The fraction itself, when it is one."""
    if not 0 < fraction < 1:
        raise RequestError(f"{what} is {fraction}: it must be above 0 and below 1")
    return fraction


def check_scope(scope: str) -> None:
    """Refuse a mistyped scope."""
    if scope not in SCOPES:
        raise unknown("scope", scope, SCOPES)


def random_mask(weights: Mapping[str, Tensor], fraction: float, generator: torch.Generator) -> dict[str, Tensor]:
    """A random subset: round(fraction · n) weights of every tensor, all subsets alike (WELS, WELSR)."""
    check_fraction(fraction)
    masks = {}
    for name, weight in weights.items():
        order = torch.randperm(weight.numel(), generator=generator)
        mask = torch.zeros(weight.numel(), dtype=torch.bool)
        mask[order[: round(fraction * weight.numel())]] = True
        masks[name] = mask.view(weight.shape).to(weight.device)
    return masks


def smallest(weights: Mapping[str, Tensor], fraction: float, scope: str = "layer") -> dict[str, Tensor]:
    """The weights of smallest magnitude: of each tensor (``layer``) or of all together (``global``) (DSD, IMP).

    >>> smallest({"w": torch.tensor([[1.0, -0.1], [0.5, -2.0]])}, 0.5)["w"].tolist()
    [[False, True], [True, False]]
    """
    check_fraction(fraction)
    check_scope(scope)
    if scope == "layer":
        return {name: _lowest(weight.detach().abs(), fraction) for name, weight in weights.items()}
    together = torch.cat([weight.detach().abs().flatten() for weight in weights.values()])
    pieces = _lowest(together, fraction).split([weight.numel() for weight in weights.values()])
    return {name: piece.view(weights[name].shape) for name, piece in zip(weights, pieces, strict=True)}


@torch.no_grad()
def mask(weights: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> None:
    """Zero what is not kept, in place, all tensors in one call (IMP: after every step).

    >>> w = {"w": torch.tensor([[1.0, -0.1], [0.5, -2.0]])}
    >>> mask(w, {"w": ~smallest(w, 0.5)["w"]})
    >>> w["w"].tolist()
    [[1.0, -0.0], [0.0, -2.0]]
    """
    torch._foreach_mul_([weights[name] for name in kept], list(kept.values()))


def _lowest(values: Tensor, fraction: float) -> Tensor:
    """True at the round(fraction · n) lowest values; ties go by position, so that the number is exact."""
    count = round(fraction * values.numel())
    mask = torch.zeros(values.numel(), dtype=torch.bool, device=values.device)
    mask[values.flatten().argsort(stable=True)[:count]] = True
    return mask.view(values.shape)
