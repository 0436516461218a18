"""A layer on vectors, and a tail that is linear but for kinks: κ by pushing the columns of W forward.

With z = Wφ + b and outputs f of any shape, the Hessian of the loss in z is Jᵀ H_f J, J = ∂f/∂z, so that

    κ = Σ_i ‖φ_i‖² Tr(Wᵀ J_iᵀ H_f,i J_i W) = Σ_i ‖φ_i‖² Σ_k ⟨u_ik, H_f,i u_ik⟩,    u_k = J w_k, w_k the columns of W.

A column goes forward through the tail once, where a product with the Hessian goes forward and back; what the loss does
with it is a product with H_f alone, which has no network in it. WᵀHzW is the Hessian in φ: κ = Σ_i ‖φ_i‖² Δ_φ L.

m passes cannot be fewer. An algorithm that knows the tail by its products A·v alone (A = Jᵀ H_f J, adaptively chosen v)
and has seen fewer than rank W of them cannot know Tr(WᵀAW): some w in the range of W is orthogonal to all v so far, and
A + t·wwᵀ has given the same answers and has the trace + t‖Wᵀw‖². An estimate needs one; so see probe.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.flatness.graph import derivative
from fallow.flatness.observation import Observation
from fallow.flatness.tangents import pushed


def forward(seen: Observation) -> Tensor:
    """κ by a pass for each column of W."""
    rows = seen.rows
    columns = rows.weight.T[:, None, None].expand(-1, rows.n, 1, rows.d)
    return squares(seen, columns)


def squares(seen: Observation, directions: Tensor) -> Tensor:
    """Σ_i ‖φ_i‖² Σ_k ⟨u_ik, H_f,i u_ik⟩ with u_k = J·v_k, for directions v (k, n, 1, d)."""
    rows, edge, output = seen.rows, seen.dense_edge, seen.seen.output
    assert edge is not None
    assert isinstance(output, Tensor)
    u = pushed(torch.stack([rows.back(v) for v in directions]), seen.seen.edge, edge, output)
    slope = derivative(seen.loss, edge)  # ∂L/∂f
    curved = torch.stack([derivative(slope, edge, each, like=slope) for each in u])
    each = (u.to(rows.phi.dtype) * curved.to(rows.phi.dtype)).flatten(2).sum((0, 2))
    return (each * rows.phi.square().sum((1, 2))).sum()
