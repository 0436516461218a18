"""Wide residual networks (Zagoruyko & Komodakis 2016), as FixMatch uses them: leaky, normalised before each layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential

SLOPE = 0.1  # of the leaky ReLU below 0


def _conv(c_in: int, c_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)


class Wide(nn.Module):
    """x + F(a(x)) with two 3 × 3 convolutions, a the normalisation and activation.

    Where the shape changes, the shortcut is a 1 × 1 convolution of a(x) in the first block of all, else of x.
    """

    def __init__(self, c_in: int, c_out: int, stride: int, norm: str, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.norm1 = norm_layer(norm, c_in, 2, known=("batch", "layer"))
        self.conv1 = _conv(c_in, c_out, 3, stride)
        self.norm2 = norm_layer(norm, c_out, 2, known=("batch", "layer"))
        self.conv2 = _conv(c_out, c_out, 3)
        self.shortcut = nn.Identity() if stride == 1 and c_in == c_out else _conv(c_in, c_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        a = leaky_relu(self.norm1(x), SLOPE)
        y = self.conv2(leaky_relu(self.norm2(self.conv1(a)), SLOPE))
        return self.shortcut(a if self.first else x) + y


class WideResNet(Model):
    """A convolution of 16 channels, three groups of blocks with 16, 32, 64 × ``widen`` channels, mean over space, head.

    ``depth`` counts layers: 6·n + 4 for n blocks in a group. WideResNet-28-2 has 1,467,610 parameters for ten classes.
    ``dense`` are the widths of fully connected layers with ReLU before the head, none by default (FAM adds one of 64).

    >>> WideResNet((3, 32, 32), 10, depth=10, widen=1, dense=(64,)).blocks
    ('group1.0', 'group2.0', 'group3.0', 'dense')
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        depth: int = 28,
        widen: int = 2,
        norm: str = "batch",
        dense: tuple[int, ...] = (),
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("a wideresnet", shape, ranks=(3,))
        if depth < 10 or (depth - 4) % 6:
            raise RequestError(f"a wideresnet has no depth {depth}: use 10, 16, 22, 28, …")
        count, channels = (depth - 4) // 6, 16
        self.conv1 = _conv(shape[0], channels, 3)
        groups = []
        for number in range(3):
            group = nn.Sequential()
            for i in range(count):
                width, stride = 16 * widen * 2**number, 2 if number > 0 and i == 0 else 1
                group.append(Wide(channels, width, stride, norm, first=number == i == 0))
                channels = width
            groups.append(group)
        self.group1, self.group2, self.group3 = groups
        self.norm = norm_layer(norm, channels, 2, known=("batch", "layer"))
        self.blocks = tuple(f"group{g}.{i}" for g in (1, 2, 3) for i in range(count))
        self.dense = nn.Sequential()
        for size in dense:
            self.dense.append(sequential(linear=nn.Linear(channels, size), relu=nn.ReLU()))
            channels = size
        if dense:
            self.blocks += ("dense",)
        self.head = nn.Linear(channels, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        x = self.group3(self.group2(self.group1(self.conv1(x))))
        return self.head(self.dense(leaky_relu(self.norm(x), SLOPE).mean((2, 3))))
