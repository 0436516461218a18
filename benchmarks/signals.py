"""Made signals: what `fallow.fit` does when nothing is said, against k-NN and an scnn with the same training.

Six sets of 160 training, 60 validation and 1,200 test signals under as much noise as there is signal: shapes that are
shifted a little, frequencies of any phase, cylinders, bells and funnels, heartbeats of two leads, the place of
a bump, and, as a number, how fast a chirp rises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import fallow
from fallow.atlas.made import beats, shapes
from fallow.data import Data, load
from fallow.methods import build
from fallow.training.recipes import training
from fallow.training.yardsticks import yardsticks

TRAIN, VAL, TEST = 160, 60, 1200
SCNN = "scnn:width=16,dense=128,norm=batch"
Made = Callable[[np.random.Generator, int], tuple[Any, Any]]


def frequencies(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    y, t = draw.integers(0, 5, n), np.linspace(0, 1, 128)
    return np.sin(2 * np.pi * ((3 + 1.5 * y[:, None]) * t + draw.random((n, 1))))[:, None], y


def funnels(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    y, t = draw.integers(0, 3, n), np.arange(128)
    first = draw.integers(16, 33, n)[:, None]
    last = first + draw.integers(32, 97, n)[:, None]
    up = (t - first) / (last - first)
    course = np.stack([np.ones_like(up), up, 1 - up])[y, np.arange(n)]
    return ((6 + draw.normal(size=(n, 1))) * course * ((t >= first) & (t <= last)))[:, None], y


def places(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    y = draw.integers(0, 5, n)
    middle = 20 * y + 10 + draw.uniform(-8, 8, n)
    return np.exp(-(((np.arange(100) - middle[:, None]) / 4) ** 2))[:, None] * 2.2, y


def chirps(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    y, t = draw.uniform(1, 6, n), np.linspace(0, 1, 128)
    return np.sin(2 * np.pi * (3 * t + y[:, None] * t**2 + draw.random((n, 1))))[:, None], y.astype(np.float32)


SETS: tuple[Made, ...] = (shapes, frequencies, funnels, beats, places, chirps)


def data_of(made: Made) -> Data:
    """The three parts, as noisy as they are loud."""
    draw = np.random.default_rng(0)
    x, y = made(draw, TRAIN + VAL + TEST)
    x = torch.from_numpy((x + x.std() * draw.normal(size=x.shape)).astype(np.float32))
    parts = zip(x.split([TRAIN, VAL, TEST]), torch.from_numpy(y).split([TRAIN, VAL, TEST]), strict=True)
    return load(list(parts), as_="signals", target="numbers" if made is chirps else "classes")


def measure(repetitions: int | None = None) -> dict[str, Any]:
    """What each reaches on test, the mean of so many seeds (1)."""
    torch.set_num_threads(1)
    said = {}
    for made in SETS:
        data = data_of(made)
        metric = data.target.metric()
        key = f"test_{metric.name}"
        near = next(each for each in yardsticks(data) if each.name == "k-NN").metrics["test"][metric.name]
        seeds = range(repetitions or 1)
        usual = [fallow.fit(None, data, seed=seed) for seed in seeds]
        _, how = training(data, build("normal"), SCNN, {})
        scnn = [fallow.fit(SCNN, data, seed=seed, **how) for seed in seeds]
        values = [near, *(float(np.mean([each.last[key] for each in some])) for some in (scnn, usual))]
        said[f"{made.__name__}, test {metric.words}: k-NN, scnn, what fit does"] = ", ".join(f"{v:.3f}" for v in values)
    return {"ratios": {}, "counts": said}
