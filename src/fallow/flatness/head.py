"""The head under softmax: the layer that FAM regularises, at the price of a few small products.

The paper's wˡ lead *from* layer l to the next, so that its "penultimate layer" is the matrix out of the penultimate
neurons: logits f = Wφ + b. Cross-entropy has the Hessian s_i (diag p_i − p_i p_iᵀ) in the logits of sample i, whatever
the targets are (smoothed, mixed, soft), and so

    κ = Σ_i s_i ‖φ_i‖² Σ_c p_ic (e_c − p_i)ᵀ WWᵀ (e_c − p_i) = ½ Σ_i s_i ‖φ_i‖² Σ_{c,c'} p_ic p_ic' ‖w_c − w_c'‖²,

s_i = 1/n for a mean. The second form, a spread of rows about their mean as half the mean of squared distances, needs no
difference of large numbers, so that it holds where the network is sure of a class; and it shows that κ ≥ 0 here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fallow.flatness.metric import Neurons
from fallow.flatness.observation import Observation
from fallow.flatness.outputs import Softmax


def head(seen: Observation) -> Tensor:
    """κ of the layer whose outputs are the logits."""
    outputs, phi = seen.outputs, seen.rows.x
    assert isinstance(outputs, Softmax)
    if seen.simplified or outputs.s.requires_grad:
        return half_distances(phi, outputs.p, seen.neurons.distances, outputs.s)
    return Kappa.apply(phi, outputs.log_p, seen.rows.weight, outputs.s)


def half_distances(phi: Tensor, p: Tensor, distances: Tensor, s: Tensor) -> Tensor:
    """½ Σ_i s_i ‖φ_i‖² Σ_{c,c'} p_ic p_ic' ‖w_c − w_c'‖²."""
    weighed = p * (0.5 * s * phi.square().sum(1)).unsqueeze(1)
    return ((weighed.mT @ p) * distances).sum()


class Kappa(torch.autograd.Function):
    """The same with its gradients written out: with a_i = s_i ‖φ_i‖², M = Σ_i a_i p_i p_iᵀ and D the distances,

    ∂κ/∂φ_i = s_i (p_iᵀ D p_i) φ_i,    ∂κ/∂log p_i = a_i p_i ∘ D p_i,    ∂κ/∂W = 2 (diag(M1) − M) W.
    """

    @staticmethod
    def forward(ctx: Any, phi: Tensor, log_p: Tensor, weight: Tensor, s: Tensor) -> Tensor:
        """κ."""
        p, size = log_p.exp(), torch.linalg.vecdot(phi, phi)
        spread = p * (p @ Neurons(weight, simplified=False).distances)  # p ∘ Dp
        ctx.save_for_backward(phi, log_p, weight, s, p, size, spread)
        return 0.5 * torch.dot(s * size, spread.sum(1))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """The three gradients; by autograd where they are to be differentiated once more."""
        phi, log_p, weight, s, p, size, spread = ctx.saved_tensors
        if torch.is_grad_enabled():
            wanted = [i for i in range(3) if ctx.needs_input_grad[i]]
            value = half_distances(phi, log_p.exp(), Neurons(weight, simplified=False).distances, s)
            found = torch.autograd.grad(value, [(phi, log_p, weight)[i] for i in wanted], slope, create_graph=True)
            each = dict(zip(wanted, found, strict=True))
            return *(each.get(i) for i in range(3)), None
        s = slope * s
        of_phi = phi * (s * spread.sum(1)).unsqueeze(1) if ctx.needs_input_grad[0] else None
        a = (s * size).unsqueeze(1)
        m = (a * p).mT @ p
        of_weight = 2 * (m.sum(1, keepdim=True) * weight - m @ weight) if ctx.needs_input_grad[2] else None
        return of_phi, a * spread, of_weight, None


def is_last(seen: Observation) -> bool:
    """Whether the layer's output is the model's output, in whatever precision."""
    if seen.output_edge is None or seen.normed or seen.seen.z.ndim != 2:
        return False
    return all(step.kind == "ToCopy" for step in seen.inner)


def is_head(seen: Observation) -> bool:
    """Whether the layer's outputs are logits, and the loss is linear in their log-softmax."""
    return seen.found_outputs is not None and seen.found_outputs[0] is Softmax and is_last(seen)
