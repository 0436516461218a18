"""The definition (section 1): κ = Σ_{s,s'} ⟨w_s, w_s'⟩ Tr H_{s,s'}, H the Hessian of the loss with respect to W.

It takes d·m products through the whole layer and is here to check the other forms by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.flatness.observation import Observation


def dense(seen: Observation) -> Tensor:
    """κ by its definition."""
    weight = seen.layer.weight
    if not weight.requires_grad:
        raise RequestError(f"the dense form differentiates by the weight of {seen.path!r}, which is frozen: use tail")
    (first,) = torch.autograd.grad(seen.loss, weight, create_graph=True)
    d, m = seen.rows.weight.shape
    value = seen.rows.weight.new_zeros(())
    for s, row in enumerate(first.reshape(d, m)):
        for t, entry in enumerate(row):
            (second,) = torch.autograd.grad(entry, weight, create_graph=True)
            value = value + seen.neurons.g[s] @ second.reshape(d, m)[:, t]
    return value
