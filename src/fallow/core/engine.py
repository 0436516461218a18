"""One process on one device, in Lightning Fabric's verbs.

The loop calls only these verbs. With several devices or hosts the engine *is* a Fabric; alone, these few
lines do, because Fabric adds 70 µs to a step and two seconds to the import.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import SIDE_BY_SIDE, require_whole

PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed", "float64": "64-true"}  # our names, and Fabric's


class Engine:
    """Plain torch behind Fabric's verbs, for one process."""

    global_rank = 0
    world_size = 1
    is_global_zero = True

    def __init__(self, device: str = "auto", precision: str = "float32") -> None:
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        self.device = find_device(device)
        self.kind = torch.float64 if precision == "float64" else None
        self.autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
        if precision == "bf16":
            kind = self.device.type
            self.autocast = lambda: torch.autocast(kind, torch.bfloat16)

    def setup_module(self, model: nn.Module) -> nn.Module:
        """Move the model to the device."""
        return model.to(self.device, self.kind)

    def backward(self, loss: Tensor) -> None:
        """Back-propagate."""
        loss.backward()

    def no_backward_sync(self, model: nn.Module, enabled: bool = True) -> AbstractContextManager[Any]:
        """Nothing to hold back: there is nobody to exchange gradients with."""
        return nullcontext()

    def all_reduce(self, data: Tensor, reduce_op: str = "mean") -> Tensor:
        """The tensor itself: one process is the whole world."""
        return data

    def broadcast(self, obj: Any) -> Any:
        """The object itself."""
        return obj


def make_engine(device: str = "auto", devices: int = 1, precision: str = "float32") -> Any:
    """The engine for this many processes: ours for one, a launched Fabric with DDP for more."""
    require_whole("devices", devices, 1, SIDE_BY_SIDE * (os.cpu_count() or 1))
    if devices == 1:
        return Engine(device, precision)
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise RequestError("several devices need Lightning Fabric: pip install 'fallow[distributed]'") from error
    kind = find_device(device).type
    fabric = Fabric(accelerator=kind, devices=devices, strategy="ddp", precision=PRECISIONS[precision])  # type: ignore[arg-type]
    fabric.launch()
    return fabric


def find_device(name: str) -> torch.device:
    """The device by name; "auto" takes an accelerator where there is one."""
    if name == "auto":
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found or torch.device("cpu")
    try:
        device = torch.device(name)
        if device.type == "cpu" and device.index not in (None, 0):
            raise RuntimeError("there is one CPU, whatever its cores")
        torch.zeros(1, device=device).item()  # "meta" holds no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"device {name!r} cannot be used here ({reason}): try 'auto' or 'cpu'") from error
    return device
