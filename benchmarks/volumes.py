"""Made volumes: what `fallow.fit` does when nothing is said, against the best yardstick and an mlp.

150 training, 50 validation and 1,000 test volumes of 24³ voxels: a ball, a box or a ring of random size and place,
under as much noise as the object is bright.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import fallow
from fallow.data import Data, load
from fallow.methods import build
from fallow.training.recipes import training
from fallow.training.yardsticks import yardsticks

TRAIN, VAL, TEST = 150, 50, 1000
SIDE = 24
MLP = "mlp:norm=batch"


def objects(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Grey values and which object it is."""
    y = np.arange(n) % 3
    middle, radius = draw.uniform(7, 17, (n, 3, 1, 1, 1)), draw.uniform(3.5, 5.5, (n, 1, 1, 1))
    z, v, u = (each[None] - middle[:, i] for i, each in enumerate(np.indices((SIDE,) * 3)))
    ball = z**2 + v**2 + u**2 < radius**2
    box = np.maximum.reduce([abs(z), abs(v), abs(u)]) < 0.8 * radius
    ring = (np.hypot(v, u) - 0.85 * radius) ** 2 + z**2 < 2.2
    bright = np.select([(y == 0)[:, None, None, None], (y == 1)[:, None, None, None]], [ball, box], ring)
    return np.clip(100 + 40 * (bright + draw.normal(size=bright.shape)), 0, 255).astype(np.uint8)[:, None], y


def data() -> Data:
    """The three parts."""
    x, y = objects(np.random.default_rng(0), TRAIN + VAL + TEST)
    cuts = [TRAIN, TRAIN + VAL]
    return load(list(zip(np.split(x, cuts), np.split(y, cuts), strict=True)))


def measure(repetitions: int | None = None) -> dict[str, Any]:
    """Test accuracy of each, the mean of so many seeds (1)."""
    torch.set_num_threads(1)
    made, seeds = data(), range(repetitions or 1)
    best = max(yardsticks(made), key=lambda each: each.metrics["val"]["accuracy"])
    _, how = training(made, build("normal"), MLP, {})
    flat = [fallow.fit(MLP, made, seed=seed, **how) for seed in seeds]
    usual = [fallow.fit(None, made, seed=seed) for seed in seeds]
    values = [
        best.metrics["test"]["accuracy"],
        *(float(np.mean([each.last["test_accuracy"] for each in some])) for some in (flat, usual)),
    ]
    said = ", ".join(f"{100 * value:.1f}" for value in values)
    return {"ratios": {}, "counts": {f"test accuracy: {best.name}, {MLP}, what fit does": said}}
