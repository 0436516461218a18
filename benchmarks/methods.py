"""What each method adds to a step of ordinary training.

scnn on 64 digits, two generations of ten epochs, each method side by side with ``long``. ``ratios`` are of CPU time and
no steadier than the machine; ``operations`` counts torch's operations in a step of the last epoch, which is exact.
born-again is slower by its teacher's forward pass, an adaptive SEAL by its looks at the training accuracy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.loop import BATCH, LR, per_step
from fallow.core import loop
from fallow.data import Data, load
from fallow.methods import REGISTRY
from fallow.training.prepare import prepare


class Count(TorchDispatchMode):
    """Counts the operations that torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


def operations(source: Data, method: str) -> float:
    """Torch's operations per step, in the last epoch."""
    ctx = prepare("scnn", source, method, generations=2, epochs=10, batch_size=BATCH, lr=LR)
    inner, count = loop.run_epoch, Count()

    def counted(ctx: Any) -> None:
        if ctx.clock.overall < 1 - 1.5 / (ctx.clock.generations * ctx.clock.epochs):
            return inner(ctx)
        with count:
            return inner(ctx)

    loop.run_epoch = counted
    try:
        loop.run(ctx)
    finally:
        loop.run_epoch = inner
    return count.operations / ctx.clock.steps


def measure(repetitions: int | None = None) -> dict[str, Any]:
    digits = replace(load("digits", val=0.0), test=None)
    part = replace(digits, train=digits.train.subset(torch.arange(64)))
    ratios, spread, counts = {}, {}, {"normal": operations(part, "long")}
    for name in (*(n for n, kind in REGISTRY.items() if not kind.tasks), "seal:ascent=adaptive"):
        if name not in ("normal", "long"):
            ratios[f"{name}_vs_normal"], spread[f"{name}_vs_normal"] = per_step("scnn", part, name, repetitions or 10)
            counts[name] = operations(part, name)
    return {"ratios": ratios, "spread": spread, "operations": counts}
