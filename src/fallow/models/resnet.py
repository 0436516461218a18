"""Residual networks (He et al. 2016), with a bottleneck's stride on its 3 × 3 convolution.

The layers keep the names under which ImageNet weights are published (``layer1.0.conv1``, ``bn1``,
``downsample``), whatever the normalisation, so that those weights load by name.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fallow.base.errors import unknown
from fallow.models.base import Model
from fallow.models.blocks import expect_shape, norm_layer, sequential

STEMS = ("auto", "small", "large")


def _conv(c_in: int, c_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False)


def _norm(kind: str, channels: int) -> nn.Module:
    return norm_layer(kind, channels, 2, known=("batch", "layer"))


def _shortcut(c_in: int, c_out: int, stride: int, norm: str) -> nn.Module:
    """The identity, or a projection where the shape changes."""
    if stride == 1 and c_in == c_out:
        return nn.Identity()
    return nn.Sequential(_conv(c_in, c_out, 1, stride), _norm(norm, c_out))


class Basic(nn.Module):
    """relu(x + F(x)) with two 3 × 3 convolutions."""

    expansion = 1

    def __init__(self, c_in: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = _conv(c_in, width, 3, stride)
        self.bn1 = _norm(norm, width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = _norm(norm, width)
        self.downsample = _shortcut(c_in, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + self.downsample(x))


class Bottleneck(nn.Module):
    """relu(x + F(x)) with a 3 × 3 convolution between two 1 × 1 ones, four times as wide at the ends."""

    expansion = 4

    def __init__(self, c_in: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        c_out = width * self.expansion
        self.conv1 = _conv(c_in, width, 1)
        self.bn1 = _norm(norm, width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = _norm(norm, width)
        self.conv3 = _conv(width, c_out, 1)
        self.bn3 = _norm(norm, c_out)
        self.downsample = _shortcut(c_in, c_out, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """One residual step."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + self.downsample(x))


class ResNet(Model):
    """A stem, four stages of residual blocks with 1, 2, 4, 8 × ``width`` channels, mean over space, head.

    ``stem="large"`` is ImageNet's (7 × 7, stride 2, max pooling), ``"small"`` a 3 × 3 convolution that
    keeps the resolution; ``"auto"`` takes the small one for images of up to 64 pixels. ``dense`` are the widths of
    fully connected layers with ReLU before the head, none by default (FAM adds one of 64 neurons).
    """

    late_from = "layer3"  # of LLF and SEAL (section 4.1)

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        block: type[Basic] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        width: int = 64,
        norm: str = "batch",
        stem: str = "auto",
        dense: tuple[int, ...] = (),
        init: str = "he",
    ) -> None:
        super().__init__(init)
        expect_shape("a resnet", shape, ranks=(3,))
        if stem not in STEMS:
            raise unknown("stem", stem, STEMS)
        large = stem == "large" or (stem == "auto" and max(shape[1:]) > 64)
        self.conv1 = _conv(shape[0], width, 7, 2) if large else _conv(shape[0], width, 3)
        self.bn1 = _norm(norm, width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        channels = width

        def stage(number: int) -> nn.Sequential:
            nonlocal channels
            steps = nn.Sequential()
            for i in range(depths[number - 1]):
                stride = 2 if number > 1 and i == 0 else 1
                steps.append(block(channels, width * 2 ** (number - 1), stride, norm))
                channels = width * 2 ** (number - 1) * block.expansion
            return steps

        self.layer1 = stage(1)
        self.layer2 = stage(2)
        self.layer3 = stage(3)
        self.layer4 = stage(4)
        self.blocks = tuple(f"layer{n}.{i}" for n, depth in enumerate(depths, start=1) for i in range(depth))
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
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        x = self.layer4(self.layer3(x))
        return self.head(self.dense(x.mean((2, 3))))


def resnet18(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: int = 64,
    norm: str = "batch",
    stem: str = "auto",
    dense: tuple[int, ...] = (),
    init: str = "he",
) -> ResNet:
    """ResNet18: eight basic blocks."""
    options = {"width": width, "norm": norm, "stem": stem, "dense": dense, "init": init}
    return ResNet(shape, classes, block=Basic, depths=(2, 2, 2, 2), **options)  # type: ignore[arg-type]


def resnet50(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: int = 64,
    norm: str = "batch",
    stem: str = "auto",
    dense: tuple[int, ...] = (),
    init: str = "he",
) -> ResNet:
    """ResNet50: sixteen bottlenecks."""
    options = {"width": width, "norm": norm, "stem": stem, "dense": dense, "init": init}
    return ResNet(shape, classes, block=Bottleneck, depths=(3, 4, 6, 3), **options)  # type: ignore[arg-type]
