"""VGG16 (Simonyan & Zisserman 2015), with a normalisation after every convolution as in LW."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential

STAGES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))  # widths of the convolutions; a pooling ends a stage


class VGG16(Model):
    """Thirteen 3 × 3 convolutions in five stages, two dense layers, head.

    A stage ends with a pooling while there are two pixels a side to pool, so that small images pass.

    >>> len(VGG16((3, 32, 32), 10, width=4, dense=8).blocks)
    15
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 64,
        dense: int = 4096,
        dropout: float = 0.0,
        norm: str = "layer",
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("vgg16", shape, ranks=(3,))
        if not 0 <= dropout < 1:
            raise RequestError(f"vgg16 cannot drop {dropout} of its units: dropout should be from 0 to below 1")
        bias = norm == "none"  # a norm has a bias of its own
        channels, height, across = shape
        number = 0
        for stage in STAGES:
            for i, factor in enumerate(stage):
                number += 1
                pool = i == len(stage) - 1 and min(height, across) >= 2
                block = sequential(
                    conv=nn.Conv2d(channels, factor * width, 3, padding=1, bias=bias),
                    norm=norm_layer(norm, factor * width, 2),
                    relu=nn.ReLU(),
                    pool=nn.MaxPool2d(2) if pool else None,
                )
                self.add_module(f"conv{number}", block)
                channels = factor * width
                if pool:
                    height, across = height // 2, across // 2
        features = channels * height * across
        for i, before in ((1, features), (2, dense)):
            block = sequential(
                flatten=nn.Flatten() if i == 1 else None,
                linear=nn.Linear(before, dense, bias=bias),
                norm=norm_layer(norm, dense, 0),
                relu=nn.ReLU(),
                dropout=nn.Dropout(dropout) if dropout else None,
            )
            self.add_module(f"dense{i}", block)
        self.head = nn.Linear(dense, classes)
        self.blocks = (*(f"conv{i + 1}" for i in range(number)), "dense1", "dense2")
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        for name in self.blocks:
            x = self.get_submodule(name)(x)
        return self.head(x)
