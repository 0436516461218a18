"""The count that earlier papers made: the top eigenvalues of each batch, and how many of them are negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.diagnose.checks import refuse_mismatch
from fallow.diagnose.lanczos import Lanczos, magnitudes
from fallow.diagnose.products import Hessian
from fallow.evaluate.losses import Loss


@dataclass(frozen=True)
class TopOfBatches:
    """The k eigenvalues of greatest magnitude of every batch's own Hessian (Park and Kim 2022, SEAL's table 6)."""

    eigenvalues: np.ndarray  # a row for each batch, by falling magnitude
    batch_size: int
    converged: bool

    @property
    def largest(self) -> float:
        """The largest of all."""
        return float(self.eigenvalues.max())

    @property
    def negative_share(self) -> float:
        """How many of them are negative: a share of the top, not of the spectrum."""
        return float((self.eigenvalues < 0).mean())

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "largest": self.largest,
            "negative_share": self.negative_share,
            "k": self.eigenvalues.shape[1],
            "batch_size": self.batch_size,
            "batches": len(self.eigenvalues),
            "converged": self.converged,
            "eigenvalues": self.eigenvalues.tolist(),
        }


def top_of_batches(
    model: nn.Module,
    loss: str | Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    k: int = 5,
    batch_size: int = 16,
    mode: str = "eval",
    parameters: Sequence[str] | None = None,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> TopOfBatches:
    """The ``k`` eigenvalues of greatest magnitude of each batch's Hessian, as SEAL's table 6 counts them.

    Power iteration finds eigenvalues by magnitude, so a negative one enters where it outweighs a positive one. A small
    batch has another Hessian than the data set, and the top of it says little of the bulk: :func:`spectrum` measures
    the whole. Batches are drawn from ``seed``; examples that do not fill one are left out.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> top_of_batches(net, "cross_entropy", torch.randn(40, 3), torch.arange(40) % 2).eigenvalues.shape
    (2, 5)
    """
    refuse_mismatch(inputs, targets)
    if k < 1 or batch_size < 1:
        raise RequestError(f"k={k} and batch_size={batch_size} give no eigenvalue: both should be at least 1")
    generator = torch.Generator().manual_seed(seed)
    size = min(batch_size, len(inputs))
    order = torch.randperm(len(inputs), generator=generator)[: len(inputs) // size * size]
    rows, converged = [], True
    for index in order.split(size):
        hessian = Hessian(model, loss, inputs[index], targets[index], mode=mode, parameters=parameters, chunk=size)
        start = torch.randn(hessian.size, generator=generator, dtype=hessian.dtype).to(hessian.device)
        wanted = magnitudes(k)
        found = Lanczos(hessian, start, wanted, tolerance=tolerance)
        converged &= all(found.eigenvalue(i).converged for i in wanted(found.values))
        values = found.values[wanted(found.values)]
        values = np.append(values, np.zeros(min(k, hessian.size) - len(values)))  # a rank below k leaves zeros
        rows.append(values[np.argsort(-np.abs(values), kind="stable")])
    return TopOfBatches(np.stack(rows), size, converged)
