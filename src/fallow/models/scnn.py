"""The small convolutional network of LW (appendix C): two pairs of convolutions, a dense layer."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import CONV, POOL, expect_shape, norm_layer, sequential


class SCNN(Model):
    """Convolutions of ``width``, ``width``, 2 ``width``, 2 ``width`` channels, then a dense layer.

    Takes images (C, H, W) and signals (C, L), whose convolutions are one-dimensional.

    >>> SCNN((1, 28, 28), 10).blocks
    ('conv1', 'conv2', 'conv3', 'conv4', 'dense')
    """

    blocks = ("conv1", "conv2", "conv3", "conv4", "dense")

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 32,
        dense: int = 512,
        dropout: float = 0.0,
        norm: str = "layer",
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("scnn", shape, ranks=(2, 3))
        if min(shape[1:]) < 4:
            raise RequestError(f"scnn cannot take shape {tuple(shape)}: its two poolings need at least 4 pixels a side")
        if not 0 <= dropout < 1:
            raise RequestError(f"scnn cannot drop {dropout} of its units: dropout should be from 0 to below 1")
        channels, dims = shape[0], len(shape) - 1

        bias = norm == "none"  # a norm has a bias of its own

        def conv(c_in: int, c_out: int, *, pool: bool) -> nn.Sequential:
            return sequential(
                conv=CONV[dims](c_in, c_out, 3, padding=1, bias=bias),
                norm=norm_layer(norm, c_out, dims),
                relu=nn.ReLU(),
                pool=POOL[dims](2) if pool else None,
            )

        self.conv1 = conv(channels, width, pool=False)
        self.conv2 = conv(width, width, pool=True)
        self.conv3 = conv(width, 2 * width, pool=False)
        self.conv4 = conv(2 * width, 2 * width, pool=True)
        features = 2 * width
        for size in shape[1:]:
            features *= size // 2 // 2
        self.dense = sequential(
            flatten=nn.Flatten(),
            linear=nn.Linear(features, dense, bias=bias),
            norm=norm_layer(norm, dense, 0),
            relu=nn.ReLU(),
            dropout=nn.Dropout(dropout) if dropout else None,
        )
        self.head = nn.Linear(dense, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images or signals."""
        x = self.conv2(self.conv1(x))
        x = self.conv4(self.conv3(x))
        return self.head(self.dense(x))
