"""Gauss-Newton: κ = Σ_i Tr(H_f,i·U_i M_i U_iᵀ), U the Jacobian of the outputs, by one backward pass for each output.

Exact where the tail is linear but for kinks (ReLU, pooling): the second derivatives of the outputs vanish there. For
softmax and a convolution this is κ = mean_i [Σ_c p_c‖WᵀJ_ic‖² − ‖Σ_c p_c WᵀJ_ic‖²], J_ic = ∂f_c(x_i)/∂W. Elsewhere it
is another measure, never negative, and no approximation of κ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.flatness.graph import derivative
from fallow.flatness.observation import Observation
from fallow.flatness.outputs import units


def gauss_newton(seen: Observation) -> Tensor:
    """κ without the curvature of the tail itself."""
    return seen.outputs.contract(jacobian(seen), seen.metric)


def jacobian(seen: Observation) -> Tensor:
    """∂f/∂site, (n, C, P, d)."""
    outputs, zero = seen.outputs, seen.seen.z
    each = [seen.rows.of(derivative(outputs.edge, seen.site, unit, like=zero)) for unit in units(outputs.like)]
    return torch.stack(each, 1)
