"""Some examples at a time, where all together would not fit into memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def by_chunks(function: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Tensor:
    """function(x), for so many rows at a time; in a graph that is exported at once, for its batches have any size.

    >>> by_chunks(lambda rows: rows + 1, torch.arange(5), 2)
    tensor([1, 2, 3, 4, 5])
    """
    if torch.compiler.is_exporting():
        return function(x)
    return torch.cat([function(part) for part in x.split(size)])
