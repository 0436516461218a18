"""A small residual network for volumes: scans, shapes, stacks of frames."""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import Residual, expect_shape, norm_layer, sequential

WIDTHS, STRIDES = (1, 2, 4), (1, 2, 2)  # of the blocks
COARSE = 16  # positions along an axis that the first convolution leaves, about
PLACES = 2  # halves of each axis whose means are kept apart
SMALLEST = 4  # voxels a side, of which two halvings leave one


class ResNet3d(Model):
    """A strided convolution, residual blocks of 1, 2, 4 × ``width`` channels, eight means, a dense layer, head.

    The first convolution takes every axis to about 16 positions, by a stride of its own: work grows with the cube of
    the side, and a scan of 128³ voxels costs no more than one of 16³ after it.

    >>> net = ResNet3d((1, 64, 64, 32), 2)
    >>> net.blocks, net.conv1.conv.stride
    (('conv1', 'block1', 'block2', 'block3', 'dense'), (4, 4, 2))
    """

    blocks = ("conv1", "block1", "block2", "block3", "dense")

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
        expect_shape("resnet3d", shape, ranks=(4,))
        if min(shape[1:]) < SMALLEST:
            raise RequestError(
                f"resnet3d cannot take shape {tuple(shape)}: volumes should have {SMALLEST} voxels a side"
            )
        strides = tuple(max(1, round(side / COARSE)) for side in shape[1:])
        kernel = tuple(max(3, stride | 1) for stride in strides)  # odd, and no voxel is stepped over
        padding = tuple(k // 2 for k in kernel)
        self.conv1 = sequential(
            conv=nn.Conv3d(shape[0], width, kernel, strides, padding, bias=False),  # type: ignore[arg-type]
            norm=norm_layer(norm, width, 3, known=("batch", "layer")),
            relu=nn.ReLU(),
        )
        channels = width
        for name, widen, stride in zip(self.blocks[1:-1], WIDTHS, STRIDES, strict=True):
            self.add_module(name, Residual(3, channels, width * widen, stride, norm))
            channels = width * widen
        left = [-(-side // (4 * stride)) for side, stride in zip(shape[1:], strides, strict=True)]
        places = [min(PLACES, side) for side in left]
        sides = tuple(-(-side // part) for side, part in zip(left, places, strict=True))
        apart = tuple(side // part for side, part in zip(left, places, strict=True))
        self.dense = sequential(
            pool=nn.AvgPool3d(sides, apart),  # type: ignore[arg-type]  # adaptive pooling, which ONNX has not
            flatten=nn.Flatten(),
            linear=nn.Linear(channels * prod(places), dense, bias=False),
            norm=norm_layer(norm, dense, 0, known=("batch", "layer")),
            relu=nn.ReLU(),
        )
        self.head = nn.Linear(dense, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of volumes."""
        for block in self.blocks:
            x = self.get_submodule(block)(x)
        return self.head(x)
