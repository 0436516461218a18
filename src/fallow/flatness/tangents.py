"""J·v through a tail that is linear but for kinks: the recorded operations once more, on directions instead of values.

Where the tail is a chain of convolutions, linear layers, ReLUs and changes of shape, all directions pass at once, as a
larger batch. Elsewhere J·v is the derivative of Jᵀ·c by c, which is linear in c: right for any graph, but torch's
second derivatives of a convolution take several times as long as the convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from fallow.flatness.graph import RESHAPING, Step, below, derivative, same, trace

Rule = Callable[[Any, Tensor, int], Tensor]  # of a node, directions (k·n, …) and k


def pushed(directions: Tensor, site: GradientEdge, edge: GradientEdge, output: Tensor) -> Tensor:
    """J·v of every direction, (k, n, …); ``directions`` are shaped (k, n, …) like what lies at the site."""
    steps = trace(edge.node, site).steps
    if not _chained(steps, site):
        return torch.stack([_twice(v, site, edge, output) for v in directions])
    k, v = len(directions), directions.flatten(0, 1)
    for step in steps:
        v = _RULES[step.kind](step.node, v, k)
    return v.unflatten(0, (k, -1))


def _chained(steps: list[Step], site: GradientEdge) -> bool:
    """Whether every step takes what the one before gives, and is of a kind that has a rule."""
    ends = [site, *(GradientEdge(step.node, 0) for step in steps)]
    return all(
        step.kind in _RULES and step.linear | (step.kind == "Relu") and len(step.inputs) == 1 and same(below(step), end)
        for step, end in zip(steps, ends, strict=False)
    )


def _twice(v: Tensor, site: GradientEdge, edge: GradientEdge, output: Tensor) -> Tensor:
    dual = torch.zeros_like(output, requires_grad=True)
    (found,) = torch.autograd.grad(derivative(edge, site, dual), dual, v, create_graph=True)
    return found


def _convolution(node: Any, v: Tensor, k: int) -> Tensor:
    how = (node._saved_stride, node._saved_padding, node._saved_dilation, node._saved_transposed)
    return torch.convolution(v, node._saved_weight, None, *how, node._saved_output_padding, node._saved_groups)


def _relu(node: Any, v: Tensor, k: int) -> Tensor:
    return (v.unflatten(0, (k, -1)) * (node._saved_result > 0)).flatten(0, 1)


def _reshaped(node: Any, v: Tensor, k: int) -> Tensor:
    shape = node._input_metadata[0].shape
    return v.reshape(k * shape[0], *shape[1:])


_RULES: dict[str, Rule] = {
    "Convolution": _convolution,
    "Relu": _relu,
    "Addmm": lambda node, v, k: v @ node._saved_mat2,
    "Mm": lambda node, v, k: v @ node._saved_mat2,
} | dict.fromkeys(RESHAPING - {"ToCopy", "Copy"}, _reshaped)
