"""Linear heads on features, in closed form: ridge regression and nearest centroids, many problems at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class LinearHead(NamedTuple):
    """A linear head, or a batch of them along the first axes."""

    weight: Tensor  # (…, classes, width)
    bias: Tensor  # (…, classes)

    def __call__(self, x: Tensor) -> Tensor:
        """What the head says of features (…, n, width)."""
        return x.to(self.weight.dtype) @ self.weight.mT + self.bias[..., None, :]


class Axes(NamedTuple):
    """Features in their principal axes: x − mean = z · axesᵀ, and zᵀz is diagonal."""

    mean: Tensor  # (…, 1, width)
    z: Tensor  # (…, n, rank)
    axes: Tensor  # (…, width, rank)
    values: Tensor  # (…, rank): the diagonal of zᵀz

    @property
    def scale(self) -> Tensor:
        """The mean eigenvalue of the scatter matrix (x − mean)ᵀ(x − mean): what a penalty is to be compared with."""
        return self.values.sum(-1) / self.axes.shape[-2]

    def head(self, w: Tensor, b: Tensor) -> LinearHead:
        """The head that says of x what w (…, rank, classes) and b (…, classes) say of z."""
        weight = (self.axes @ w).mT
        return LinearHead(weight, b - (self.mean @ weight.mT).squeeze(-2))


def principal(x: Tensor) -> Axes:
    """Rotate features (…, n, width) into their principal axes, by the smaller of their two product matrices."""
    x = x.double()
    mean = x.mean(-2, keepdim=True)
    c = x - mean
    if x.shape[-2] > x.shape[-1]:
        values, axes = torch.linalg.eigh(c.mT @ c)
        return Axes(mean, c @ axes, axes, values.clamp_(min=0))
    values, vectors = torch.linalg.eigh(c @ c.mT)
    noise = values[..., -1:] * x.shape[-2] * torch.finfo(torch.float64).eps
    values = values.where(values > noise, 0)
    roots = values.sqrt()
    axes = c.mT @ (vectors / roots[..., None, :]).where(roots[..., None, :] > 0, 0)
    return Axes(mean, vectors * roots[..., None, :], axes, values)


def ridge(x: Tensor, targets: Tensor, strengths: Tensor | float, *, axes: Axes | None = None) -> LinearHead:
    """Minimise ‖T − xWᵀ − b‖² + λ‖W‖² for every strength λ: one rotation, and then W = V (Λ + λ)⁻¹ zᵀT.

    ``x`` is (n, width) and shared by ``strengths`` (k,), or (problems, n, width) with a number or one for each.
    ``targets`` holds classes (n,), which become columns of 0 and 1, or numbers (n,) or (n, columns).
    """
    axes = axes or principal(x)
    t = columns(targets).to(axes.z)
    mean = t.mean(-2)
    penalty = torch.as_tensor(strengths, dtype=axes.z.dtype, device=axes.z.device)[..., None, None]
    shrunk = axes.values[..., None] + penalty
    w = (axes.z.mT @ (t - mean[..., None, :]) / shrunk).where(shrunk > 0, 0)  # what does not vary tells nothing
    return axes.head(w, mean)


def nearest(x: Tensor, y: Tensor) -> LinearHead:
    """Nearest centroids (prototypes): −‖x − c‖²/2 is, up to what all classes share, ⟨x, c⟩ − ‖c‖²/2.

    A class without an example has no centroid, and nothing is near it.
    """
    members = functional.one_hot(y).to(x)
    counts = members.sum(-2)
    centroids = members.mT @ x / counts[..., None].clamp(min=1)
    return LinearHead(centroids, (centroids.square().sum(-1) / -2).where(counts > 0, -torch.inf))


def columns(targets: Tensor) -> Tensor:
    """Targets as columns: classes (n,) as 0 and 1, numbers (n,) as one column."""
    if not targets.is_floating_point():
        return functional.one_hot(targets)
    return targets[:, None] if targets.ndim == 1 else targets
