"""A small residual network for signals, after Wang, Yan and Oates (2017)."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential

KERNELS = (7, 5, 3)  # of a block's convolutions
PLACES = 4  # that the mean over time keeps apart
SHORTEST = 16  # samples: four in each place after both halvings would be one


class Residual(nn.Module):
    """relu(x + F(x)) with convolutions of 7, 5 and 3 samples, the first of which may halve the length."""

    def __init__(self, c_in: int, c_out: int, stride: int, norm: str) -> None:
        super().__init__()
        steps: OrderedDict[str, nn.Module] = OrderedDict()
        for i, kernel in enumerate(KERNELS, start=1):
            first = i == 1
            steps[f"conv{i}"] = nn.Conv1d(
                c_in if first else c_out, c_out, kernel, stride if first else 1, padding=kernel // 2, bias=False
            )
            steps[f"norm{i}"] = norm_layer(norm, c_out, 1, known=("batch", "layer"))
            if i < len(KERNELS):
                steps[f"relu{i}"] = nn.ReLU()
        self.steps = nn.Sequential(steps)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or c_in != c_out:
            conv = nn.Conv1d(c_in, c_out, 1, stride, bias=False)
            self.shortcut = sequential(conv=conv, norm=norm_layer(norm, c_out, 1, known=("batch", "layer")))

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        return torch.relu(self.steps(x) + self.shortcut(x))


class ResNet1d(Model):
    """Three residual blocks of ``width``, 2 and 2 ``width`` channels, means over four stretches of time, head.

    The paper's has one mean over all of time, which forgets where something happened; and its blocks keep the length,
    which ours halve twice.

    >>> ResNet1d((2, 128), 5).blocks
    ('block1', 'block2', 'block3')
    """

    blocks = ("block1", "block2", "block3")

    def __init__(
        self, shape: tuple[int, ...], classes: int, *, width: int = 16, norm: str = "batch", init: str = "he"
    ) -> None:
        super().__init__(init)
        expect_shape("resnet1d", shape, ranks=(2,))
        if shape[1] < SHORTEST:
            raise RequestError(f"resnet1d cannot take shape {tuple(shape)}: signals should have {SHORTEST} samples")
        self.block1 = Residual(shape[0], width, 1, norm)
        self.block2 = Residual(width, 2 * width, 2, norm)
        self.block3 = Residual(2 * width, 2 * width, 2, norm)
        self.mean = sequential(pool=nn.AdaptiveAvgPool1d(PLACES), flatten=nn.Flatten())
        self.head = nn.Linear(2 * width * PLACES, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of signals."""
        return self.head(self.mean(self.block3(self.block2(self.block1(x)))))
