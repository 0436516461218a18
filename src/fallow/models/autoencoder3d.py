"""An autoencoder of shapes (FAM, section 4.2.2): volumes through a code of a few numbers, and back."""

from __future__ import annotations

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential

BOTTOM = 8  # channels before the code: of 64³ voxels, halved five times, 8·2³ = 64 numbers are left


class Autoencoder3d(Model):
    """Five strided convolutions, a linear layer to the code, one back, and five deconvolutions that mirror the first.

    Channels rise to four times the ``width`` in the middle and fall to 8 at the bottom. At the paper's 64³ voxels the
    code of 8 numbers is decoded by a 64×8 matrix, ``decode.linear``, and there are a million weights.

    >>> net = Autoencoder3d((1, 64, 64, 64), 2)
    >>> net.decode.linear, sum(p.numel() for p in net.parameters())
    (Linear(in_features=8, out_features=64, bias=True), 1027250)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 32,
        code: int = 8,
        depth: int = 5,
        norm: str = "none",
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("autoencoder3d", shape, ranks=(4,))
        if any(side % 2**depth for side in shape[1:]):
            raise RequestError(
                f"autoencoder3d cannot take shape {tuple(shape)}: its sides are halved {depth} times and should be "
                f"multiples of {2**depth}; use a smaller depth, or unet"
            )
        small = [side // 2**depth for side in shape[1:]]
        widths = [shape[0], *(width * 2 ** min(i, depth - 1 - i) for i in range(depth - 1)), BOTTOM]
        flat = BOTTOM * small[0] * small[1] * small[2]
        for i in range(1, depth + 1):
            conv = nn.Conv3d(widths[i - 1], widths[i], 3, stride=2, padding=1, bias=norm == "none")
            self.add_module(f"down{i}", sequential(conv=conv, norm=norm_layer(norm, widths[i], 3), relu=nn.ReLU()))
        self.code = sequential(flatten=nn.Flatten(), linear=nn.Linear(flat, code))
        self.decode = sequential(linear=nn.Linear(code, flat), unflatten=nn.Unflatten(1, (BOTTOM, *small)))
        for i in range(depth, 1, -1):
            deconv = _mirror(widths[i], widths[i - 1], bias=norm == "none")
            self.add_module(
                f"up{i}", sequential(deconv=deconv, norm=norm_layer(norm, widths[i - 1], 3), relu=nn.ReLU())
            )
        down, up = ([f"{way}{i}" for i in range(first, depth + 1)] for way, first in (("down", 1), ("up", 2)))
        self.blocks = (*down, "code", "decode", *reversed(up))
        self.head = _mirror(widths[1], classes)  # type: ignore[assignment]
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """A channel of logits for each class, of the size of the input."""
        for block in self.blocks:
            x = self.get_submodule(block)(x)
        return self.head(x)


def _mirror(c_in: int, c_out: int, bias: bool = True) -> nn.ConvTranspose3d:
    """What doubles the sides as a convolution of stride 2 halved them."""
    return nn.ConvTranspose3d(c_in, c_out, 3, stride=2, padding=1, output_padding=1, bias=bias)
