"""Closed forms: the second-order chain rule written out, so that nothing is differentiated more than it must be.

- The last layer: κ = Σ_i ‖φ_i‖² Tr(G·H_f,i); for softmax see head.py.
- A layer that runs elementwise, ψ = h(a), into a linear head V: with slopes D = h'(a) the Hessian in a is
  D Vᵀ H_f V D + diag(h''(a)·∂L/∂ψ), so for softmax κ_i = s_i‖φ_i‖² Σ_c p_c u_cᵀ G u_c, u_c = D(v_c − v̄), and the
  second part vanishes for ReLU. Dropout, BatchNorm in evaluation mode and a smooth h are all elementwise.
- A normalisation right after the layer (see norms.py), and then a tail that is linear but for kinks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from fallow.flatness.gauss_newton import gauss_newton
from fallow.flatness.graph import RESHAPING, Step, below, derivative
from fallow.flatness.head import is_last
from fallow.flatness.observation import Observation


def closed(seen: Observation) -> Tensor:
    """κ in closed form."""
    head = find_head(seen)
    if is_last(seen):
        value = (seen.rows.phi.square().sum((1, 2)) * seen.outputs.trace(seen.neurons)).sum()
    elif head is not None:
        value = _into_head(seen, head)
    else:
        value = gauss_newton(seen)
    if seen.normed:
        value = value + seen.norm.curvature(seen.rows.of(seen.gradient), seen.neurons)
    return value


def why_closed(seen: Observation) -> str:
    """Which closed form applies and what it costs, in words; empty if none does."""
    if seen.coupled or seen.output_edge is None:
        return ""
    norm = f"{type(seen.seen.norm).__name__}, then " if seen.normed else ""
    if is_last(seen):
        return "the layer's output is the model's output"
    if (head := find_head(seen)) is not None:
        kinds = dict.fromkeys(step.kind for step in head.between if step.kind not in RESHAPING)
        classes, (d, m) = len(head.weight), seen.rows.weight.shape
        times = classes * min(d, m) / m
        return f"{norm}{' and '.join(kinds) or 'nothing'}, then a linear head; {times:.3g} times the layer's products"
    if seen.normed and seen.inner and all(step.piecewise_linear for step in seen.inner):
        assert seen.output_like is not None
        return f"{norm}a tail that is linear but for kinks; {seen.output_like.shape[1]} passes back through it"
    return ""


class ClosedHead:
    """A linear layer whose outputs are the model's, and what lies between the site and it."""

    def __init__(self, weight: Tensor, edge: GradientEdge, between: list[Step]) -> None:
        self.weight, self.edge, self.between = weight, edge, between
        self.smooth = not all(step.piecewise_linear for step in between)


def find_head(seen: Observation) -> ClosedHead | None:
    """The linear head that the site runs into number by number."""
    if not seen.inner or seen.rows.positions != 1:
        return None
    top = seen.inner[-1]
    at = {"Addmm": 1, "Mm": 0}.get(top.kind)
    if at is None or top.inputs != (at,):
        return None
    weight = top.node._saved_mat2.mT  # type: ignore[attr-defined]  # part of the graph, as it was used
    between = seen.inner[:-1]
    if weight.shape[1] != seen.rows.d or not all(step.elementwise for step in between):
        return None
    head = ClosedHead(weight, below(top), between)
    return None if head.smooth and seen.metric.diagonal() is None else head


def _into_head(seen: Observation, head: ClosedHead) -> Tensor:
    n, d = seen.rows.n, seen.rows.d
    wide = seen.rows.weight.dtype
    slopes = torch.ones((n, d), dtype=head.weight.dtype, device=head.weight.device)
    if head.between:
        slopes = derivative(head.edge, seen.site, slopes)
    jacobian = seen.rows.of(slopes).unsqueeze(1) * head.weight.to(wide)[:, None]
    value = seen.outputs.contract(jacobian, seen.metric)
    if head.smooth:
        bends = derivative(slopes, seen.site, torch.ones_like(slopes), like=slopes)
        pull = derivative(seen.loss, head.edge).to(wide).reshape(n, 1, d)
        diagonal = seen.metric.diagonal()
        assert diagonal is not None
        value = value + (pull * seen.rows.of(bends) * diagonal).sum()
    return value
