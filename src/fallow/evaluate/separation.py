"""How well one number tells two kinds apart."""

from __future__ import annotations

from torch import Tensor


def auroc(high: Tensor, low: Tensor) -> float:
    """The probability that one of ``high`` is above one of ``low``, ties counting half (Mann–Whitney's U).

    >>> import torch
    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    0.875
    """
    from scipy.stats import rankdata

    values = [*high.tolist(), *low.tolist()]
    ranks = rankdata(values)[: len(high)]
    return float((ranks.sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))
