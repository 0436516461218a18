"""The four convolutions that few-shot learning is measured with (L2F's supplement, section E.1)."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential


class Conv4(Model):
    """Four blocks of a 3 × 3 convolution, norm, leaky ReLU and 2 × 2 max pooling, then a linear head.

    L2F's public code has 48 filters, the supplement 64. The ReLU comes after the pooling here: it is monotone, so the
    output is the same, for a quarter of the work.

    >>> Conv4((1, 28, 28), 5).blocks
    ('conv1', 'conv2', 'conv3', 'conv4')
    """

    blocks = ("conv1", "conv2", "conv3", "conv4")

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 64,
        norm: str = "batch",
        slope: float = 0.01,
        init: str = "xavier",
    ) -> None:
        super().__init__(init)
        expect_shape("conv4", shape, ranks=(3,))
        if slope < 0:
            raise RequestError(f"slope is {slope}: it must be 0 or above, for the ReLU to be monotone")
        if min(shape[1:]) < 16:
            raise RequestError(f"conv4 cannot take shape {tuple(shape)}: its four poolings need 16 pixels a side")
        channels, features = shape[0], width
        for block in self.blocks:
            conv = nn.Conv2d(channels, width, 3, padding=1, bias=norm == "none")  # a norm has a bias of its own
            layer = sequential(
                conv=conv, norm=norm_layer(norm, width, 2), pool=nn.MaxPool2d(2), relu=nn.LeakyReLU(slope)
            )
            self.add_module(block, layer)
            channels = width
        for size in shape[1:]:
            features *= size // 16
        self.flatten = nn.Flatten()
        self.head = nn.Linear(features, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        for block in self.blocks:
            x = self.get_submodule(block)(x)
        return self.head(self.flatten(x))
