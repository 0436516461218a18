"""What every model of fallow offers: its blocks in order, its head, and its own initialisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from fallow.base.errors import unknown

INITS = ("he", "xavier", "torch")
DECONV = nn.modules.conv._ConvTransposeNd


@dataclass(frozen=True)
class Inputs:
    """What a pretrained network was trained on: images of ``size`` pixels a side, as (pixel − mean) / std.

    Pixels run from 0 to 255; there is a mean and a standard deviation for each channel, or one of each for all.
    ``fast`` is a smaller size that is seen nearly as well for a fraction of the work: what is taken unless asked.
    """

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fast: int | None = None


class Model(nn.Module):
    """A network that knows its blocks and how its layers were initialised.

    ``blocks`` are the paths of the blocks from input to output, the head excluded; ``head`` is the last
    linear layer; ``late_from`` is where the late layers begin in the papers that cut it in two, or a share of blocks.
    ``inputs`` says which size and scaling a pretrained network wants; where it is None, the data's own are right. A
    subclass registers its layers in order of execution and then calls ``start()``.
    """

    blocks: tuple[str, ...]
    head: nn.Linear
    late_from: str | float = 0.5
    inputs: Inputs | None = None
    pretrained: bool = False  # whether it starts from weights of its own that were trained before

    def __init__(self, init: str) -> None:
        super().__init__()
        if init not in INITS:
            raise unknown("init", init, INITS)
        self.init = init

    def start(self) -> None:
        """Draw every layer, in order: the first initialisation."""
        for module in self.modules():
            self.initialise(module)

    def initialise(self, module: nn.Module) -> None:
        """Draw one layer's own parameters afresh, as at the start; norms return to 1, 0 and no statistics.

        ``he``: N(0, 2 / fan_in), ``xavier``: N(0, 2 / (fan_in + fan_out)), both with zero biases;
        ``torch``: whatever the layer's ``reset_parameters`` does.
        """
        if self.init != "torch" and isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | DECONV):
            if isinstance(module, DECONV):
                fan_in, fan_out = _fans(module)
                spread = fan_in if self.init == "he" else fan_in + fan_out
                nn.init.normal_(module.weight, std=(2 / spread) ** 0.5)
            elif self.init == "he":
                nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            else:
                nn.init.xavier_normal_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif callable(reset := getattr(module, "reset_parameters", None)):
            reset()


def _fans(deconv: nn.modules.conv._ConvTransposeNd) -> tuple[float, int]:
    """Products in a sum of a deconvolution's output: the stride parts the kernel among its outputs; and of its input's.

    >>> _fans(nn.ConvTranspose2d(6, 5, 4, stride=2))
    (24.0, 80)
    """
    kernel, stride = math.prod(deconv.kernel_size), math.prod(deconv.stride)
    return deconv.in_channels * kernel / stride, deconv.out_channels * kernel
