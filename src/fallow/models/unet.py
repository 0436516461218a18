"""U-Net (Ronneberger, Fischer and Brox 2015): a class for every pixel or voxel."""

from __future__ import annotations

from torch import Tensor, cat, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import CONV, expect_shape, norm_layer, sequential

SMALLEST = 4  # pixels a side at the bottom
DEEPEST = 4


class UNet(Model):
    """Down by strided convolutions, up again beside what was seen on the way, a norm and ReLU after each.

    ``depth`` is how often sides are halved: by default as often as leaves 4 pixels, four times at most. Of every block
    on the way up, the input is resized to that of its partner, so that any size will do.

    >>> UNet((1, 32, 32), 2).blocks
    ('stem', 'down1', 'down2', 'down3', 'up3', 'up2', 'up1')
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 16,
        depth: int | None = None,
        norm: str = "batch",
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("unet", shape, ranks=(2, 3, 4))
        dims, least = len(shape) - 1, min(shape[1:])
        deepest = max(0, (least // SMALLEST).bit_length() - 1)
        if deepest < 1:
            raise RequestError(f"unet cannot take shape {tuple(shape)}: it needs at least {2 * SMALLEST} pixels a side")
        depth = min(DEEPEST, deepest) if depth is None else depth
        if depth > deepest:
            raise RequestError(f"unet cannot halve {least} pixels {depth} times: depth should be at most {deepest}")

        def block(c_in: int, c_out: int, stride: int = 1) -> nn.Sequential:
            return sequential(
                conv1=CONV[dims](c_in, c_out, 3, stride, padding=1, bias=norm == "none"),
                norm1=norm_layer(norm, c_out, dims),
                relu1=nn.ReLU(),
                conv2=CONV[dims](c_out, c_out, 3, padding=1, bias=norm == "none"),
                norm2=norm_layer(norm, c_out, dims),
                relu2=nn.ReLU(),
            )

        widths = [width * 2**i for i in range(depth + 1)]
        self.depth = depth
        self.stem = block(shape[0], width)
        for i in range(1, depth + 1):
            self.add_module(f"down{i}", block(widths[i - 1], widths[i], stride=2))
        for i in range(depth, 0, -1):
            self.add_module(f"up{i}", block(widths[i] + widths[i - 1], widths[i - 1]))
        down, up = ([f"{way}{i}" for i in range(1, depth + 1)] for way in ("down", "up"))
        self.blocks = ("stem", *down, *reversed(up))
        self.head = CONV[dims](width, classes, 1)  # type: ignore[assignment]
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """A channel of logits for each class, of the size of the input."""
        seen = [self.stem(x)]
        for i in range(1, self.depth + 1):
            seen.append(self.get_submodule(f"down{i}")(seen[-1]))
        x = seen.pop()
        for i in range(self.depth, 0, -1):
            partner = seen.pop()
            x = cat([functional.interpolate(x, partner.shape[2:]), partner], 1)
            x = self.get_submodule(f"up{i}")(x)
        return self.head(x)
