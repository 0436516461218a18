"""The layer that is meant: by its path, by itself, or by its place before the outputs."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from fallow.base.errors import RequestError, unknown
from fallow.flatness.rows import LAYERS, Layer
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order, refuse_compiled

PLACES = ("penultimate", "head")


def find_layer(model: nn.Module, layer: str | nn.Module, inputs: Any) -> tuple[str, Layer]:
    """The path and the module of a linear layer or convolution.

    ``penultimate`` is the last one that runs before the head, ``head`` the last of all; ``inputs`` pass through the
    model once to see the order.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> import torch
    >>> find_layer(net, "penultimate", torch.zeros(1, 2))
    ('2', Linear(in_features=3, out_features=4, bias=True))
    """
    refuse_compiled(model, "relative flatness")
    modules = dict(model.named_modules())
    path = _path(model, layer, inputs)
    found = modules[path]
    fitting = [
        name
        for name, module in modules.items()
        if isinstance(module, LAYERS) and not parametrize.is_parametrized(module, "weight")
    ]
    if not isinstance(found, LAYERS):
        matrix = getattr(found, "weight", None)
        what = "has no weight" if matrix is None else "is no linear layer or convolution of one or two dimensions"
        raise RequestError(f"layer {path!r} ({type(found).__name__}) {what}: name {_some(fitting)}")
    if getattr(found, "groups", 1) != 1:
        raise RequestError(f"layer {path!r} has {found.groups} groups: take a convolution with one group")
    if parametrize.is_parametrized(found, "weight"):
        raise RequestError(f"the weight of layer {path!r} is parametrised, no parameter itself: name {_some(fitting)}")
    if hasattr(found.weight, "to_local"):
        raise RequestError(f"the weight of layer {path!r} is sharded: relative flatness needs it whole, as in DDP")
    for name, module in modules.items():
        if module is not found and any(p is found.weight for p in module._parameters.values()):
            raise RequestError(
                f"layers {path!r} and {name!r} share a weight, which is so used twice in the forward pass: "
                "relative flatness is of one use"
            )
    return path, found


def _path(model: nn.Module, layer: str | nn.Module, inputs: Any) -> str:
    modules = dict(model.named_modules())
    if isinstance(layer, nn.Module):
        for path, module in modules.items():
            if module is layer:
                return path
        raise RequestError(f"the layer given ({type(layer).__name__}) is none of the model's")
    if layer in modules and layer:
        return layer
    if layer not in PLACES:
        named = [path for path, module in modules.items() if isinstance(module, LAYERS)]
        raise unknown("layer", layer, [*named, *PLACES])
    order = execution_order(model, inputs)
    head = head_of(model, order)
    if layer == "head":
        return head
    before = [p for p, m in modules.items() if isinstance(m, LAYERS) and order[p] < min(order[head], len(order))]
    if not before:
        raise RequestError(f"the model has no linear layer or convolution before its head {head!r}: use layer='head'")
    return max(before, key=lambda p: order[p])


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:8]) + (", …" if len(paths) > 8 else "") or "none: it has no linear layer or convolution"
