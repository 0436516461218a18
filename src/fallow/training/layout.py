"""How weights lie: channels last where convolutions are faster so, and whole or sharded over processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format

from fallow import methods
from fallow.base.errors import RequestError
from fallow.core.context import RunOptions
from fallow.core.method import Method

CHANNELS_LAST = ("cpu", "cuda")  # devices whose convolutions are faster so (`python -m benchmarks loop`)
NARROW = 16  # input channels


def may_be_channels_last(model: nn.Module) -> bool:
    """Whether torch's convolutions can be trusted with this format in all layers of a network.

    The backward pass of a strided 1 × 1 convolution of 2 to 7 channels (a narrow residual network's shortcut) writes
    behind its buffers on the CPU (torch 2.13); twice as many are left alone, and groups that are narrow.
    """
    return all(
        (layer.groups == 1 and (max(layer.stride) == 1 or max(layer.kernel_size) > 1)) or layer.in_channels >= NARROW
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d | nn.Conv3d)
    )


def lay(model: nn.Module, channels_last: bool) -> None:
    """Bring the weights of convolutions over images and volumes into this format, or into torch's own."""
    own = torch.contiguous_format
    convert_conv2d_weight_memory_format(model, torch.channels_last if channels_last else own)
    convert_conv3d_weight_memory_format(model, torch.channels_last_3d if channels_last else own)


def copies(engine: Any) -> bool:
    """Whether every process holds whole weights: what is sharded must lie as torch expects it."""
    return engine.world_size == 1 or type(engine.strategy).__name__ == "DDPStrategy"


def is_sharded(model: nn.Module) -> bool:
    """Whether processes hold parts of the weights (FSDP2's DTensors), not copies."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def refuse_shards(method: Method, run: RunOptions) -> None:
    """Refuse what would crash or compute something else where no process holds a whole weight."""
    for part in method.parts:
        if not part.shards:
            able = ", ".join(name for name, kind in methods.REGISTRY.items() if kind.shards)
            raise RequestError(
                f"{part.name} needs whole weights, and the engine shards them: take DDP (devices=2), or one of {able}"
            )
    if run.out is not None:
        raise RequestError(
            "a run's folder holds whole weights, and the engine shards them: omit out=, and save the weights with "
            "torch.distributed.checkpoint"
        )
