"""The curvature of the loss in the model's outputs, which Gauss-Newton carries back to the layer.

Any loss that is linear in log-softmax, L = −Σ t_ic log p_ic, has the Hessian s_i (diag p_i − p_i p_iᵀ) in the logits of
sample i, s_i = Σ_c t_ic. That is cross-entropy with hard or soft targets, label smoothing, class weights and ignored
labels; and t = −∂L/∂log p is read off the graph, so that a user's own function is as good as torch's.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fallow.flatness.graph import SEVERAL, Step, Trace, below, derivative, pulled_back, same, trace
from fallow.flatness.metric import Metric, Neurons

# losses that are sums over single outputs, and so have a diagonal Hessian
SEPARATE = frozenset(["MseLoss", "BinaryCrossEntropyWithLogits", "HuberLoss", "SmoothL1Loss"])


class Outputs(Protocol):
    """The numbers f (n, C) into which the tail runs, and the Hessian of the loss in them, a block for each sample."""

    edge: GradientEdge
    like: Tensor

    def contract(self, u: Tensor, metric: Metric) -> Tensor:
        """Σ_i Tr(H_i·U_i M_i U_iᵀ) for the Jacobian u = ∂f/∂a of shape (n, C, P, d)."""

    def trace(self, neurons: Neurons) -> Tensor:
        """Tr(G·H_i) of each sample, (n,): for a layer whose outputs these are."""


class Softmax:
    """H_i = s_i (diag p_i − p_i p_iᵀ).

    A loss may take the log-softmax of the same outputs several times, as mixup's does: once for each label.
    """

    def __init__(self, loss: Tensor, traced: Trace, *steps: Step) -> None:
        self.edge = below(steps[0])
        self.like = steps[0].node._saved_result  # type: ignore[attr-defined]  # log p, still part of the graph
        wide = torch.promote_types(self.like.dtype, torch.float32)
        self.log_p = self.like.to(wide)
        nodes = [step.node for step in steps]
        constant = all(traced.met.values())  # nothing else that could be learned has a part in the loss
        if constant and not any(step.kind in SEVERAL for step in traced.steps):
            slopes = pulled_back(loss, traced.steps, nodes)
        else:
            edges = [GradientEdge(node, 0) for node in nodes]
            slopes = list(torch.autograd.grad(loss, edges, create_graph=not constant, retain_graph=True))
        self.s = -sum(slope.sum(1) for slope in slopes).to(wide)  # type: ignore[union-attr]

    @cached_property
    def p(self) -> Tensor:
        """P."""
        return self.log_p.exp()

    def contract(self, u: Tensor, metric: Metric) -> Tensor:
        """Σ_i s_i Σ_c p_c ‖u_c − ū‖², ū = Σ_c p_c u_c."""
        mean = torch.einsum("nc,ncpd->npd", self.p, u).unsqueeze(1)
        return (self.s[:, None] * self.p * metric.square(u - mean)).sum()

    def trace(self, neurons: Neurons) -> Tensor:
        """s_i (Σ_c p_c G_cc − pᵀGp)."""
        return self.s * (self.p @ neurons.diagonal - neurons.square(self.p))


class Separate:
    """H_i = diag h_i: squared error, binary cross-entropy, …"""

    def __init__(self, loss: Tensor, output: Tensor, edge: GradientEdge) -> None:
        self.edge, self.like = edge, output
        first = derivative(loss, edge)
        self.h = derivative(first, edge, torch.ones_like(first), like=first)
        self.h = self.h.to(torch.promote_types(output.dtype, torch.float32))

    def contract(self, u: Tensor, metric: Metric) -> Tensor:
        """Σ_ic h_ic ‖u_c‖²."""
        return (self.h * metric.square(u)).sum()

    def trace(self, neurons: Neurons) -> Tensor:
        """Σ_c h_c G_cc."""
        return self.h @ neurons.diagonal


class General:
    """H_i by C products: any loss that is a mean over samples."""

    def __init__(self, loss: Tensor, output: Tensor, edge: GradientEdge) -> None:
        self.edge, self.like = edge, output
        first = derivative(loss, edge)
        rows = [derivative(first, edge, unit, like=first) for unit in units(output)]
        self.h = torch.stack(rows, 1).to(torch.promote_types(output.dtype, torch.float32))

    def contract(self, u: Tensor, metric: Metric) -> Tensor:
        """Σ_cc' H_cc' ⟨u_c, u_c'⟩."""
        return (self.h * (u.flatten(2) @ metric.apply(u).flatten(2).mT)).sum()

    def trace(self, neurons: Neurons) -> Tensor:
        """Tr(G·H_i), as it stands."""
        return (self.h * neurons.g).sum((1, 2))


def units(output: Tensor) -> list[Tensor]:
    """For each output, ones in its column and zeros elsewhere: one backward pass for all samples."""
    columns = torch.eye(output.shape[1], dtype=output.dtype, device=output.device)
    return [column.expand_as(output) for column in columns]


def find_outputs(
    loss: Tensor, output: object, traced: Trace, layer: GradientEdge
) -> tuple[type[Outputs], tuple] | None:
    """How to make the outputs of this loss, or None where there are no (n, C) outputs to go by."""
    tops = _nonlinear_tops(traced)
    if tops and all(_log_softmax(top) and same(below(top), below(tops[0])) for top in tops):
        return Softmax, (loss, traced, *tops)
    if not isinstance(output, Tensor) or output.ndim != 2 or not output.requires_grad:
        return None
    edge = get_gradient_edge(output)
    assert loss.grad_fn is not None
    if not same(edge, layer) and layer.node in trace(loss.grad_fn, edge).met:
        return None  # the loss has another way to the layer than through the outputs
    if len(tops) == 1 and tops[0].kind in SEPARATE and tops[0].inputs == (0,) and same(below(tops[0]), edge):
        return Separate, (loss, output, edge)
    return General, (loss, output, edge)


def _log_softmax(step: Step) -> bool:
    """Over classes, of outputs (n, C)."""
    node: Any = step.node
    return step.kind == "LogSoftmax" and node._saved_result.ndim == 2 and node._saved_dim in (1, 2**64 - 1)


def _nonlinear_tops(traced: Trace) -> list[Step]:
    """The steps through which the loss depends on everything, and in whose results it is linear."""
    steps = {step.node: step for step in traced.steps}
    open_, seen, found = [traced.steps[-1]], set(), []
    while open_:
        step = open_.pop()
        if step.node in seen:
            continue
        seen.add(step.node)
        if step.linear:
            children = [step.node.next_functions[i][0] for i in step.inputs]
            if any(child not in steps for child in children):
                return []  # linear down to the layer: no curvature of the loss in sight
            open_.extend(steps[child] for child in children)  # type: ignore[index]
        else:
            found.append(step)
    return found
