"""A small residual network for signals, after Wang, Yan and Oates (2017)."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import Residual, expect_shape, norm_layer, sequential

WIDTHS, STRIDES = (1, 2, 4, 4), (1, 2, 2, 2)  # of the blocks
KERNELS = (7, 5)  # samples of the two convolutions of a block
PLACES = 8  # stretches of time whose means are kept apart
SHORTEST = 16  # samples, of which three halvings leave two


class ResNet1d(Model):
    """Four residual blocks of 1, 2, 4, 4 × ``width`` channels, means of eight stretches of time, a dense layer, head.

    The paper's three blocks of three convolutions keep the length; these halve it three times, and see further. Its one
    mean over all of time does not tell when something happens.

    >>> ResNet1d((2, 128), 5).blocks
    ('block1', 'block2', 'block3', 'block4', 'dense')
    """

    blocks = ("block1", "block2", "block3", "block4", "dense")

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 16,
        dense: int = 128,
        norm: str = "batch",
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("resnet1d", shape, ranks=(2,))
        if shape[1] < SHORTEST:
            raise RequestError(f"resnet1d cannot take shape {tuple(shape)}: signals should have {SHORTEST} samples")
        channels = shape[0]
        for name, widen, stride in zip(self.blocks[:-1], WIDTHS, STRIDES, strict=True):
            self.add_module(name, Residual(1, channels, width * widen, stride, norm, KERNELS))
            channels = width * widen
        places = min(PLACES, -(-shape[1] // 8))
        self.dense = sequential(
            pool=nn.AdaptiveAvgPool1d(places),
            flatten=nn.Flatten(),
            linear=nn.Linear(channels * places, dense, bias=False),
            norm=norm_layer(norm, dense, 0, known=("batch", "layer")),
            relu=nn.ReLU(),
        )
        self.head = nn.Linear(dense, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of signals."""
        for block in self.blocks:
            x = self.get_submodule(block)(x)
        return self.head(x)
