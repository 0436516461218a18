"""How much each unlabelled image would help: one forward-mode product for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call


@torch.no_grad()
def slopes(model: nn.Module, x: Tensor, label: Tensor, direction: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """⟨v, ∇_θ ℓ_u⟩ for the cross-entropy ℓ_u of each image, v being ``direction``; and ‖∂ℓ_u/∂z‖ at the outputs z.

    The derivative of all ℓ_u along v is one forward pass that carries tangents: ⟨v, ∇_θ ℓ_u⟩ = ⟨p_u − y_u, ∂z_u·v⟩.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with forward_ad.dual_level():
        dual = {
            name: forward_ad.make_dual(p.detach(), v) for (name, p), v in zip(named.items(), direction, strict=True)
        }
        output, tangent = forward_ad.unpack_dual(functional_call(model, dual, (x,)))
    error = output.softmax(1)
    error[torch.arange(len(x), device=x.device), label] -= 1
    return (error * tangent).sum(1), error.norm(dim=1)
