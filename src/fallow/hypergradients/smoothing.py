"""A label smoothing whose strength is learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError


class LabelSmoothing(nn.Module):
    """Cross-entropy with smoothed targets, (1 − ε)·(−log p_y) + ε·mean_c(−log p_c), with ε = sigmoid(raw).

    As torch's ``label_smoothing``, but its one parameter is a hyperparameter for :func:`fallow.hypergradient`::

        smoothing = LabelSmoothing(0.1)
        [gradient], _ = fallow.hypergradient(lambda: smoothing(model(x), y), val_loss, model, smoothing)

    >>> smoothing, output, y = LabelSmoothing(0.1), torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([0])
    >>> torch.allclose(smoothing(output, y), functional.cross_entropy(output, y, label_smoothing=0.1))
    True
    """

    def __init__(self, start: float = 0.1) -> None:
        super().__init__()
        if not 0 < start < 1:
            raise RequestError(f"start is {start}: a strength to learn from must be above 0 and below 1")
        self.raw = nn.Parameter(torch.tensor(math.log(start / (1 - start))))

    @property
    def strength(self) -> Tensor:
        """ε."""
        return torch.sigmoid(self.raw)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch."""
        spread = -functional.log_softmax(output, 1).mean()
        return torch.lerp(functional.cross_entropy(output, target), spread, self.strength.to(output.dtype))
