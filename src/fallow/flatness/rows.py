"""A layer as a matrix: z = W·φ + b for every row φ of its input, be it a vector or a patch of an image.

Everything that relative flatness needs of a layer is W (d × m) and the rows Φ (n samples × P positions × m); a linear
layer on vectors has one position, a convolution has one for every pixel of its output.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
Layer = nn.Linear | nn.Conv1d | nn.Conv2d


class Rows:
    """The rows that a layer took, and the matrix it multiplied them by, in single precision at least."""

    def __init__(self, layer: Layer, x: Tensor, z: Tensor) -> None:
        self.shape, self.dtype, self.conv = z.shape, z.dtype, not isinstance(layer, nn.Linear)
        wide = torch.promote_types(layer.weight.dtype, torch.float32)
        self.weight = layer.weight.flatten(1).to(wide)
        self.d, self.m = self.weight.shape
        self.layer, self.x = layer, x.to(wide)

    @cached_property
    def phi(self) -> Tensor:
        """Φ, (n, P, m)."""
        return unfold(self.layer, self.x)

    @property
    def n(self) -> int:
        """Samples."""
        return len(self.x)

    @property
    def positions(self) -> int:
        """Rows of one sample."""
        return self.phi.shape[1]

    def of(self, z: Tensor) -> Tensor:
        """What is shaped like the layer's output, as (n, P, d)."""
        z = z.to(self.weight.dtype)
        return z.flatten(2).mT if self.conv else z.reshape(self.n, self.positions, self.d)

    def back(self, rows: Tensor) -> Tensor:
        """What is shaped (n, P, d), like the layer's output."""
        rows = rows.to(self.dtype)
        return (rows.mT if self.conv else rows).reshape(self.shape)


def unfold(layer: Layer, x: Tensor) -> Tensor:
    """Φ, (n, P, m): the vectors of a linear layer's input, the patches of a convolution's.

    >>> unfold(nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 16, 27])
    """
    if isinstance(layer, nn.Linear):
        return x.reshape(len(x), -1, x.shape[-1])
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = functional.pad(x, layer._reversed_padding_repeated_twice, mode=mode)
    if isinstance(layer, nn.Conv2d):
        return functional.unfold(x, layer.kernel_size, dilation=layer.dilation, stride=layer.stride).mT
    flat = {"kernel_size": (1, *layer.kernel_size), "dilation": (1, *layer.dilation), "stride": (1, *layer.stride)}
    return functional.unfold(x.unsqueeze(2), **flat).mT


def check(path: str, layer: Layer, x: Tensor, z: Tensor) -> None:
    """Refuse a layer that does not compute W·φ + b, such as one that something was attached to."""
    batched = x.ndim >= 2 if isinstance(layer, nn.Linear) else x.ndim == len(layer.kernel_size) + 2
    if not batched:
        raise RequestError(f"{path} took a single example of shape {tuple(x.shape)}: give a batch of them")
    with torch.no_grad():
        rows = Rows(layer, x, z)
        wanted = rows.phi @ rows.weight.mT + (0 if layer.bias is None else layer.bias)
        slack = 1e-3 if torch.finfo(z.dtype).eps < 1e-6 else 0.1
        if not torch.allclose(rows.of(z), wanted, rtol=slack, atol=slack * float(wanted.abs().max() + 1e-30)):
            raise RequestError(
                f"{path} does not give W·φ + b with the weight it shows: relative flatness needs a plain "
                "linear layer or convolution"
            )
