"""The small parts that several families of models are built from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown

CONV: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
POOL: dict[int, type[nn.MaxPool1d] | type[nn.MaxPool2d]] = {1: nn.MaxPool1d, 2: nn.MaxPool2d}
NORMS = ("none", "batch", "layer")
BATCH_NORM = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
RANKS = {1: "a vector (N,)", 2: "a signal (C, L)", 3: "an image (C, H, W)", 4: "a volume (C, D, H, W)"}


def sequential(**modules: nn.Module | None) -> nn.Sequential:
    """A Sequential with named steps; a step that is None is left out.

    >>> sequential(linear=nn.Linear(2, 3), norm=None, relu=nn.ReLU())
    Sequential(
      (linear): Linear(in_features=2, out_features=3, bias=True)
      (relu): ReLU()
    )
    """
    return nn.Sequential(OrderedDict((name, module) for name, module in modules.items() if module is not None))


def norm_layer(kind: str, channels: int, dims: int, *, known: Sequence[str] = NORMS) -> nn.Module:
    """The normalisation ``kind`` after a layer with ``dims`` spatial dimensions.

    ``layer`` is GroupNorm with one group: LayerNorm over channels and space, with an affine per channel,
    so that it fits any image size and does not depend on the batch.
    """
    if kind not in known:
        raise unknown("norm", kind, known)
    if kind == "batch":
        return BATCH_NORM[dims](channels)
    return nn.GroupNorm(1, channels) if kind == "layer" else nn.Identity()


def expect_shape(model: str, shape: Sequence[int], ranks: Sequence[int]) -> None:
    """Refuse an input shape the model cannot take.

    >>> expect_shape("scnn", (64,), ranks=(3,))
    Traceback (most recent call last):
    fallow.base.errors.RequestError: scnn cannot take shape (64,): an image (C, H, W) would fit
    """
    if len(shape) not in ranks or min(shape, default=0) < 1:
        fitting = " or ".join(RANKS[rank] for rank in ranks)
        raise RequestError(f"{model} cannot take shape {tuple(shape)}: {fitting} would fit")


def expect_texts(model: str, shape: Sequence[int]) -> None:
    """Refuse the shape of what is no text: texts are K × L, as many as an example has and the bytes of the longest.

    >>> expect_texts("bag", (1, 28, 28))
    Traceback (most recent call last):
    fallow.base.errors.RequestError: bag reads texts, and these are examples of shape (1, 28, 28)
    """
    if len(shape) != 2:
        raise RequestError(f"{model} reads texts, and these are examples of shape {tuple(shape)}")


class Residual(nn.Module):
    """relu(x + F(x)) with two convolutions, the first of which may halve the sides."""

    def __init__(
        self, dims: int, c_in: int, c_out: int, stride: int, norm: str, kernels: tuple[int, int] = (3, 3)
    ) -> None:
        super().__init__()
        first, second = kernels

        def normed() -> nn.Module:
            return norm_layer(norm, c_out, dims, known=("batch", "layer"))

        self.steps = sequential(
            conv1=CONV[dims](c_in, c_out, first, stride, padding=first // 2, bias=False),
            norm1=normed(),
            relu=nn.ReLU(),
            conv2=CONV[dims](c_out, c_out, second, padding=second // 2, bias=False),
            norm2=normed(),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or c_in != c_out:
            self.shortcut = sequential(conv=CONV[dims](c_in, c_out, 1, stride, bias=False), norm=normed())

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        return torch.relu(self.steps(x) + self.shortcut(x))
