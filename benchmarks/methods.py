"""What each method costs per step beside ordinary training of the same length, edges of generations included.

scnn on 64 digits, 4 generations of 20 epochs. born-again is slower by its teacher's forward pass, and an adaptive
SEAL by its looks at the training accuracy; every other method should cost nothing per step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.loop import fitted
from benchmarks.timing import compare, interleave
from fallow.data import load
from fallow.methods import REGISTRY


def measure(repetitions: int | None = None) -> dict[str, Any]:
    digits = replace(load("digits", val=0.0), test=None)
    part = replace(digits, train=digits.train.subset(torch.arange(64)))
    names = [name for name in (*REGISTRY, "seal:ascent=adaptive") if name not in ("normal", "long")]
    rivals = {name: fitted("scnn", part, name, 4, 20) for name in ("long", *names)}
    return compare(interleave(rivals, repetitions or 7), {f"{name}_vs_normal": (name, "long") for name in names})
