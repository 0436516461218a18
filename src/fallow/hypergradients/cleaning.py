"""A weight for every training example, learned on clean ones: mislabelled examples lose theirs (data cleaning)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ExampleWeights(nn.Module):
    """Σ_i c_i·ℓ_i / n over a batch of n, with c_i = 2·sigmoid(raw_i), so that all are 1 to begin with.

    ``losses`` is a loss per example (``reduction="none"``), ``index`` says which examples of the data set they are::

        clean = ExampleWeights(len(x))
        loss = lambda: clean(functional.cross_entropy(model(x), y, reduction="none"))
        [gradient], _ = fallow.hypergradient(loss, val_loss, model, clean)

    >>> clean = ExampleWeights(3)
    >>> clean(torch.tensor([1.0, 2.0]), torch.tensor([2, 0])).item()
    1.5
    """

    def __init__(self, examples: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(examples))

    @property
    def weights(self) -> Tensor:
        """c, from 0 to 2."""
        return 2 * torch.sigmoid(self.raw)

    def forward(self, losses: Tensor, index: Tensor | None = None) -> Tensor:
        """The weighted mean of the losses."""
        weights = self.weights if index is None else self.weights[index]
        return (weights.to(losses.dtype) * losses).mean()
