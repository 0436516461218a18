"""How much each unlabelled image would help on validation, without a gradient for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call


@torch.no_grad()
def slopes(model: nn.Module, x: Tensor, label: Tensor, direction: Sequence[Tensor]) -> Tensor:
    """⟨v, ∇_θ ℓ_u⟩ for the cross-entropy ℓ_u of each image, v being ``direction``.

    The derivative of all ℓ_u along v is one forward pass that carries tangents: ⟨v, ∇_θ ℓ_u⟩ = ⟨p_u − y_u, ∂z_u·v⟩.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with forward_ad.dual_level():
        dual = {
            name: forward_ad.make_dual(_outermost(p.detach()), _outermost(v))
            for (name, p), v in zip(named.items(), direction, strict=True)
        }
        output, tangent = forward_ad.unpack_dual(functional_call(model, dual, (_outermost(x),)))
    return (error(output, label) * tangent).sum(1)


def _outermost(tensor: Tensor) -> Tensor:
    """With channels outermost, in its strides too: torch's group norms have no tangents where they are innermost."""
    return tensor.clone(memory_format=torch.contiguous_format)


@torch.no_grad()
def cosines(
    model: nn.Module,
    head: nn.Linear,
    x: Tensor,
    label: Tensor,
    validation: tuple[Tensor, Tensor],
    mean: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> Tensor:
    """cos(∂L_V/∂W, ∂ℓ_u/∂W) for each image, W being the weights and biases of the last layer.

    There ∂ℓ_u/∂W = (p_u − y_u) hᵤᵀ, an outer product with the features h (and a 1 for a bias), so that two forward
    passes are all it takes. Without the norm, images with large gradients would decide, and foreign ones have large
    gradients. ``mean`` averages over processes, of which each has its share of the validation images.
    """
    e, h = _outer(model, head, *validation)
    slope = mean(e.T @ h)  # ∂L_V/∂W, but for the number of images
    slope = slope / slope.norm().clamp(min=1e-12)
    e, h = _outer(model, head, x, label)
    return ((e @ slope) * h).sum(1) / (e.norm(dim=1) * h.norm(dim=1)).clamp(min=1e-12)


def error(output: Tensor, label: Tensor) -> Tensor:
    """∂ℓ/∂z = p − y, the derivative of the cross-entropy by the outputs."""
    return output.softmax(1).scatter_add(1, label[:, None], -torch.ones_like(output[:, :1]))


def _outer(model: nn.Module, head: nn.Linear, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The two factors of ∂ℓ/∂W for each image."""
    seen: list[Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        output = model(x)
    finally:
        hook.remove()
    h = seen[0]
    return error(output, label), h if head.bias is None else torch.cat([h, torch.ones_like(h[:, :1])], 1)
