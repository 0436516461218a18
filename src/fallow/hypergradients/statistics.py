"""Batch normalisation as a function of the weights, which it is while they train and is not in evaluation mode.

Weights that training has led to a minimum are at one of the loss with statistics of the *batch*; in evaluation mode,
with running statistics that stand still, they are at none, and the implicit function theorem does not hold (a
hypergradient is then off by a hundred times). Validation is done with the statistics that the weights give on training
examples, so that these move with the weights too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class BatchStatistics:
    """Inside ``with``, batch norms use the statistics of their batch, whatever their mode; no buffer changes.

    ``with statistics.of(x):`` they use those that ``model(x)`` has, as evaluation after training on x would: both are
    part of the graph.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval()
    >>> with BatchStatistics(model) as statistics, statistics.of(torch.randn(9, 2)):
    ...     model(torch.zeros(1, 2)).shape
    torch.Size([1, 3])
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
        self.taken: dict[nn.Module, tuple[Tensor, Tensor]] | None = None
        self.fresh: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> BatchStatistics:
        for norm in self.norms:
            norm.forward = partial(self._forward, norm)  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: Any) -> None:
        for norm in self.norms:
            del norm.forward
        self.taken, self.fresh = None, {}

    @contextmanager
    def of(self, x: Tensor) -> Iterator[None]:
        """Inside, the statistics are those of ``x``."""
        if self.norms:
            self.model(x)
            self.taken = self.fresh
        try:
            yield
        finally:
            self.taken, self.fresh = None, {}

    def _forward(self, norm: _BatchNorm, x: Tensor) -> Tensor:
        if self.taken is not None:
            mean, variance = self.taken[norm]
        else:
            axes = [0, *range(2, x.ndim)]
            mean, variance = x.mean(axes), x.var(axes, correction=0)
            count = x.numel() / x.shape[1]
            self.fresh[norm] = mean, variance * (count / max(1.0, count - 1))  # as running statistics have it
        shape = (1, -1, *[1] * (x.ndim - 2))
        x = (x - mean.view(shape)) * torch.rsqrt(variance.view(shape) + norm.eps)
        return x if norm.weight is None else x * norm.weight.view(shape) + norm.bias.view(shape)
