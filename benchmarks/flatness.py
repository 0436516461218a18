"""What flatness costs: a step of FAM and of SAM against a plain one, in time and, for FAM, in memory.

Three networks on images of 32 × 32 pixels, in batches of 64; the mlp's are of 1024, because at 64 its step is so short
that the calls of a few small operations show (about 1 ms, whatever the network); "mlp, 64" shows it. ``fam_layer`` is
of the layer before the head, 64 neurons on 512 inputs (2048 for the memory). Times are CPU times of ``fit``'s own loop,
side by side.
Memory is the peak resident size of a process that takes a few steps, beyond its size after the imports, so that
weights, optimiser and activations all count; freed blocks go back to the system at once there
(MALLOC_MMAP_THRESHOLD_), or the peak would be one of the allocator's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Work, compare, interleave
from fallow.core import loop
from fallow.data import Data, Examples
from fallow.training.prepare import prepare

MODELS = {"resnet18:width=16": (64, 2), "scnn:width=8,dense=64": (64, 20), "mlp": (1024, 20)}  # batch, steps
LAYER = "resnet18:width=16,dense={inputs},64"
BATCH, STEPS = MODELS["resnet18:width=16"]


def images(count: int) -> Data:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 3, 32, 32), generator=draw).to(torch.uint8)
    y = torch.arange(count) % 10
    return Data("noise", Examples(x, y), None, None, [str(i) for i in range(10)], (3, 32, 32))


def steps(method: str, model: str, batch: int = BATCH, steps: int = STEPS) -> Callable[[], Work]:
    """A rival that takes a few steps; what comes before the first is not timed."""

    def get_ready() -> Work:
        ctx = prepare(model, images(batch * steps), method, epochs=1, generations=1, batch_size=batch, lr=1e-4,
                      augment="none")  # fmt: skip

        def work() -> int:
            loop.run(ctx)
            return steps

        return work

    return get_ready


def measure(repetitions: int | None = None) -> dict[str, Any]:
    measured: dict[str, Any] = {"ratios": {}, "spread": {}, "microseconds": {}}

    def add(model: str, name: str, methods: dict[str, str], batch: int = BATCH, count: int = STEPS) -> None:
        rivals = {f"{key} {name}": steps(spec, model, batch, count) for key, spec in methods.items()}
        pairs = {f"{key} {name}": (f"{key} {name}", f"plain {name}") for key in methods if key != "plain"}
        for part, found in compare(interleave(rivals, repetitions or 20), pairs).items():
            measured[part] |= found

    for model, (batch, count) in MODELS.items():
        name = model.partition(":")[0]
        add(model, name, {"plain": "long", "fam": "fam"} | ({"sam": "sam"} if batch == BATCH else {}), batch, count)
    add("mlp", "mlp, 64", {"plain": "long", "fam": "fam"}, BATCH, 60)
    add(LAYER.format(inputs=512), "dense=512,64", {"plain": "long", "fam_layer": "fam:layer=penultimate"})
    peaks = {method: [peak(method) for _ in range(3)] for method in ("long", "fam:layer=penultimate")}
    plain, fam = peaks.values()
    ratio = statistics.median(fam) / statistics.median(plain)
    measured["ratios"]["fam_layer memory"] = round(ratio, 4)
    extremes = (min(fam) / max(plain), max(fam) / min(plain))
    measured["spread"]["fam_layer memory"] = tuple(round(value, 4) for value in extremes)
    return measured


def peak(method: str) -> float:
    """Megabytes at the peak of a process that trains by this method, beyond its imports."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.flatness", method]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def status(field: str) -> float:
    """VmRSS or VmHWM, its peak, in megabytes (Linux; getrusage would show the peak of the parent process too)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    import fallow.methods

    assert fallow.methods.build(sys.argv[1]).name
    before = status("VmRSS")
    steps(sys.argv[1], LAYER.format(inputs=2048))()()
    print(status("VmHWM") - before)
