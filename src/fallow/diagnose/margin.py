"""Softmax margins on the training data (LW, section 4 and figure 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.diagnose.checks import refuse_mismatch, refuse_nonfinite
from fallow.evaluate.features import CHUNK, place
from fallow.weights.layers import untouched

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Margins:
    """The margin of every example, and the smallest of them."""

    values: np.ndarray  # of every example, in the order of the data
    smallest: np.ndarray  # the n smallest, rising
    indices: np.ndarray  # which examples these are

    @property
    def mean(self) -> float:
        """The mean margin."""
        return float(self.values.mean())

    @property
    def negative(self) -> float:
        """The share of examples that are misclassified: their margin is negative."""
        return float((self.values < 0).mean())

    def quantiles(self) -> dict[float, float]:
        """The distribution: below which margin each share of the examples lies."""
        return dict(zip(QUANTILES, np.quantile(self.values, QUANTILES).tolist(), strict=True))

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "examples": len(self.values),
            "mean": self.mean,
            "negative": self.negative,
            "quantiles": {str(share): value for share, value in self.quantiles().items()},
            "smallest": self.smallest.tolist(),
            "indices": self.indices.tolist(),
        }


@torch.no_grad()
def margins(model: nn.Module, inputs: Tensor, targets: Tensor, n: int = 400) -> Margins:
    """γ = p_y − max_{c≠y} p_c, p the softmax of the model's output in eval mode, and the ``n`` smallest.

    LW takes the margins of the training sample, and the 400 smallest for its figure 4. The softmax is of float64, so
    that margins near 1 keep their differences; of equal margins the earlier example comes first.

    >>> logits = torch.tensor([[1.0, 1.0], [4.0, 1.0]]).log()
    >>> margins(nn.Identity(), logits, torch.tensor([0, 0])).values.round(6).tolist()
    [0.0, 0.6]
    """
    refuse_mismatch(inputs, targets)
    refuse_nonfinite(model)
    if n < 1:
        raise RequestError(f"n={n} is not a number of margins: give 1 or more")
    found = []
    with untouched(model):
        model.eval()
        for x, y in zip(inputs.split(CHUNK), targets.split(CHUNK), strict=True):
            output = model(place(model, x))
            if output.ndim != 2 or output.shape[1] < 2 or y.is_floating_point() or y.ndim != 1:
                raise RequestError(
                    f"the output of shape {tuple(output.shape)} and targets of {y.dtype} have no margin: "
                    "one row of class scores and one class index for each example do"
                )
            chance = output.double().softmax(1)
            truth = y.to(output.device)[:, None]
            own = chance.gather(1, truth)
            found.append((own - chance.scatter(1, truth, -1.0).amax(1, keepdim=True)).squeeze(1))
    values = torch.cat(found)
    if not torch.isfinite(values).all():
        raise RequestError("the model gives outputs that are not finite: they have no margin")
    smallest, indices = values.sort(stable=True)
    return Margins(values.cpu().numpy(), smallest[:n].cpu().numpy(), indices[:n].cpu().numpy())
