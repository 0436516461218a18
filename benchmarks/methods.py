"""What each method adds to a step of ordinary training.

scnn on 64 digits, two generations of ten epochs, each method side by side with ``long``. born-again is slower by its
teacher's forward pass, an adaptive SEAL by its looks at the training accuracy; the others should cost nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.loop import per_step
from fallow.data import load
from fallow.methods import REGISTRY


def measure(repetitions: int | None = None) -> dict[str, Any]:
    digits = replace(load("digits", val=0.0), test=None)
    part = replace(digits, train=digits.train.subset(torch.arange(64)))
    ratios, spread = {}, {}
    for name in (*REGISTRY, "seal:ascent=adaptive"):
        if name not in ("normal", "long"):
            ratios[f"{name}_vs_normal"], spread[f"{name}_vs_normal"] = per_step("scnn", part, name, repetitions or 10)
    return {"ratios": ratios, "spread": spread}
