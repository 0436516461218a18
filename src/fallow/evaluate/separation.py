"""How well one number tells two kinds apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fallow.evaluate.metrics import separation


def auroc(high: Tensor, low: Tensor) -> float:
    """The probability that one of ``high`` is above one of ``low``, ties counting half (Mann–Whitney's U).

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    0.875
    """
    return separation(
        torch.cat([high, low]).detach().cpu().double().numpy(), np.arange(len(high) + len(low)) < len(high)
    )
