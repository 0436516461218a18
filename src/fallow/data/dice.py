"""Losses of masks: cross-entropy, soft Dice, and their sum."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from fallow.evaluate.metrics import NO_LABEL


def dice_loss(output: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """1 − mean (2·Σ_v p_v g_v + 1) / (Σ_v p_v² + Σ_v g_v + 1) over examples and classes but 0 (Milletari et al. 2016).

    p_v is a class's probability at voxel v and g_v whether it is the true one. The ones, one voxel each, let a class
    that an example has not be unlearned there. Voxels without a label are left out. Smoothed labels have no meaning.

    >>> import torch
    >>> y = torch.tensor([[[0, 1], [1, 1]]])
    >>> round(float(dice_loss(20.0 * functional.one_hot(y).movedim(-1, 1), y)), 4)
    0.0
    """
    labelled = (y != NO_LABEL).flatten(1).unsqueeze(1)
    p = output.softmax(1)[:, 1:].flatten(2) * labelled
    g = functional.one_hot(y.clamp(min=0), output.shape[1]).movedim(-1, 1)[:, 1:].flatten(2).to(p.dtype) * labelled
    return 1 - ((2 * (p * g).sum(2) + 1) / (p.square().sum(2) + g.sum(2) + 1)).mean()


def both(output: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Dice, which looks at classes as wholes, and cross-entropy, which looks at every voxel."""
    return dice_loss(output, y) + functional.cross_entropy(output, y, label_smoothing=label_smoothing)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "dice": dice_loss,
    "dice+cross-entropy": both,
}
