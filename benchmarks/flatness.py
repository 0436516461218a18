"""What flatness costs: a step of FAM and of SAM against a plain one, in time and, for FAM, in memory.

A narrow resnet18 with a penultimate layer of 64 neurons on 512 inputs (2048 for the memory), batches of 64 images of
32 × 32 pixels. Times are CPU times of ``fit``'s own loop, side by side. Memory is the peak resident size of a process
that takes a few steps, beyond its size after the imports, so that weights, optimiser and activations all count; freed
blocks go back to the system at once there (MALLOC_MMAP_THRESHOLD_), or the peak would be one of the allocator's.
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
from fallow.training.fit import prepare

MODEL = "resnet18:width=16,dense={inputs},64"
BATCH, STEPS = 64, 2


def images(count: int) -> Data:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 3, 32, 32), generator=draw).to(torch.uint8)
    y = torch.arange(count) % 10
    return Data("noise", Examples(x, y), None, None, [str(i) for i in range(10)], (3, 32, 32))


def steps(method: str, inputs: int = 512) -> Callable[[], Work]:
    """A rival that takes a few steps; what comes before the first is not timed."""

    def get_ready() -> Work:
        ctx = prepare(MODEL.format(inputs=inputs), images(BATCH * STEPS), method, epochs=1, generations=1,
                      batch_size=BATCH, augment="none")  # fmt: skip

        def work() -> int:
            loop.run(ctx)
            return STEPS

        return work

    return get_ready


def measure(repetitions: int | None = None) -> dict[str, Any]:
    rivals = {name: steps(name) for name in ("long", "fam", "sam")}
    pairs = {"fam_vs_plain": ("fam", "long"), "sam_vs_plain": ("sam", "long")}
    measured = compare(interleave(rivals, repetitions or 20), pairs)
    peaks = {method: [peak(method) for _ in range(3)] for method in ("long", "fam")}
    ratio = statistics.median(peaks["fam"]) / statistics.median(peaks["long"])
    measured["ratios"]["fam_memory"] = round(ratio, 4)
    extremes = (min(peaks["fam"]) / max(peaks["long"]), max(peaks["fam"]) / min(peaks["long"]))
    measured["spread"]["fam_memory"] = tuple(round(value, 4) for value in extremes)
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
    steps(sys.argv[1], inputs=2048)()()
    print(status("VmHWM") - before)
