"""MobileNetV1, the shallow one (Howard et al. 2017, without the five repeated layers of 512 channels)."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential

# (width, stride) of the separable convolutions of each block after the first convolution
BLOCKS = (((2, 1),), ((4, 2), (4, 1)), ((8, 2), (8, 1)), ((16, 2),), ((32, 2),), ((32, 1),))


class MobileNet(Model):
    """A convolution and eight depthwise separable ones in seven blocks, mean over space, head.

    LW counts seven blocks without listing them; here two separable convolutions of one width are one block.
    Images of up to 64 pixels keep their resolution in the first convolution.

    >>> MobileNet((3, 32, 32), 10, width=4).blocks
    ('block1', 'block2', 'block3', 'block4', 'block5', 'block6', 'block7')
    """

    blocks = tuple(f"block{i}" for i in range(1, 8))

    def __init__(
        self, shape: tuple[int, ...], classes: int, *, width: int = 32, norm: str = "layer", init: str = "he"
    ) -> None:
        super().__init__(init)
        expect_shape("mobilenet", shape, ranks=(3,))

        def unit(c_in: int, c_out: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
            conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=norm == "none")
            return sequential(conv=conv, norm=norm_layer(norm, c_out, 2), relu=nn.ReLU())

        self.block1 = unit(shape[0], width, 3, 2 if max(shape[1:]) > 64 else 1)
        channels = width
        for name, steps in zip(self.blocks[1:], BLOCKS, strict=True):
            block = nn.Sequential()
            for factor, stride in steps:
                block.append(unit(channels, channels, 3, stride, groups=channels))  # depthwise
                block.append(unit(channels, factor * width, 1, 1))  # pointwise
                channels = factor * width
            self.add_module(name, block)
        self.head = nn.Linear(channels, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        for name in self.blocks:
            x = self.get_submodule(name)(x)
        return self.head(x.mean((2, 3)))
