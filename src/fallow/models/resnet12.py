"""ResNet12, the larger network of few-shot learning (L2F's supplement, section E.1)."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential


class Three(nn.Module):
    """pool(leaky(x' + F(x))): three 3 × 3 convolutions beside a 1 × 1 projection, then 2 × 2 max pooling."""

    def __init__(self, c_in: int, c_out: int, norm: str, slope: float) -> None:
        super().__init__()
        bias = norm == "none"

        def conv(first: int, kernel: int) -> nn.Conv2d:
            return nn.Conv2d(first, c_out, kernel, padding=kernel // 2, bias=bias)

        self.one = sequential(conv=conv(c_in, 3), norm=norm_layer(norm, c_out, 2), relu=nn.LeakyReLU(slope))
        self.two = sequential(conv=conv(c_out, 3), norm=norm_layer(norm, c_out, 2), relu=nn.LeakyReLU(slope))
        self.three = sequential(conv=conv(c_out, 3), norm=norm_layer(norm, c_out, 2))
        self.skip = sequential(conv=conv(c_in, 1), norm=norm_layer(norm, c_out, 2))
        self.relu = nn.LeakyReLU(slope)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step, at half the size."""
        return self.pool(self.relu(self.three(self.two(self.one(x))) + self.skip(x)))


class ResNet12(Model):
    """Four residual blocks of 1, 2, 4, 8 × ``width`` filters, mean over space, linear head.

    >>> ResNet12((3, 32, 32), 5, width=8).blocks
    ('block1', 'block2', 'block3', 'block4')
    """

    blocks = ("block1", "block2", "block3", "block4")

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 64,
        norm: str = "batch",
        slope: float = 0.01,
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("resnet12", shape, ranks=(3,))
        if min(shape[1:]) < 16:
            raise RequestError(f"resnet12 cannot take shape {tuple(shape)}: its four poolings need 16 pixels a side")
        channels = shape[0]
        for number, block in enumerate(self.blocks):
            self.add_module(block, Three(channels, width * 2**number, norm, slope))
            channels = width * 2**number
        self.pool = sequential(mean=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())
        self.head = nn.Linear(channels, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        for block in self.blocks:
            x = self.get_submodule(block)(x)
        return self.head(self.pool(x))
