"""Centre and scale, by statistics of the training examples."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError

SAMPLE = 2048  # examples to look at for mean and deviation, where each must be fetched
TINY = 1.2e-38  # of smaller numbers float32 has no reciprocal
PIECE = 1 << 20  # values at a time: their float64 copies stay in the cache


def spaced(n: int, sample: int) -> list[int]:
    """At most ``sample`` of ``n`` places, evenly spaced.

    >>> spaced(9, 3)
    [0, 4, 8]
    """
    return torch.linspace(0, n - 1, min(sample, n)).long().tolist()


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over all axes but the second: per channel, or per feature for N×F.

    >>> mean, std = statistics(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> mean.tolist(), std.tolist()
    ([2.0, 5.0], [1.0, 0.0])
    """
    axes = [axis for axis in range(x.ndim) if axis != 1]
    values = x.numel() // x.shape[1]
    rows = max(1, PIECE * len(x) // x.numel())
    mean = sum((some.double().sum(axes) for some in x.split(rows)), torch.zeros(())) / values
    centre = mean.view(-1, *[1] * (x.ndim - 2))
    squares = sum(((some.double() - centre).square().sum(axes) for some in x.split(rows)), torch.zeros(()))
    std = (squares / values).sqrt()
    if 0 < float(std.max()) <= TINY:
        raise RequestError(
            f"x varies by {float(std.max()):.1g} at most, too little to scale in float32: multiply it by a power of ten"
        )
    return mean.float(), std.float()


def normalise(x: Tensor, mean: Tensor | None, std: Tensor | None) -> Tensor:
    """(x − mean) / std as float32, always a new tensor; without statistics just float32.

    What varies by less than a millionth of its mean is constant but for rounding: it is centred, not scaled,
    so that it gives zeros and never infinities. So is what varies by less than float32 can invert.

    >>> normalise(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor([2.0, 5.0]), torch.tensor([1.0, 0.0]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    if x.dtype == torch.int64:  # the numbers of words have no scale
        return x.clone()
    fresh = x.to(torch.float32, copy=True)
    if mean is None or std is None:
        return fresh
    per_channel = (-1, *[1] * (x.ndim - 2))
    scale = torch.where((std > 1e-6 * mean.abs()) & (std > TINY), std, torch.ones_like(std)).reciprocal()
    return fresh.sub_(mean.view(per_channel)).mul_(scale.view(per_channel))


def resized(x: Tensor, size: int | tuple[int, int] | None) -> Tensor:
    """Images of ``size`` pixels a side (or of a height and width); None: as they are.

    A pixel is a weighted mean of those that it covers or lies between.

    >>> resized(torch.tensor([[[[0.0, 4.0]]]]), 4)[0, 0, 0]
    tensor([0., 1., 3., 4.])
    """
    sides = (size, size) if isinstance(size, int) else size
    if sides is None or tuple(x.shape[2:]) == sides:
        return x
    return functional.interpolate(x, sides, mode="bilinear", antialias=True)
