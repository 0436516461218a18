"""Data sets that scikit-learn brings or that are made here, as files with a test part that is the same for all seeds.

A test part of its own lets five seeds show what carved ones cannot (Nadeau and Bengio's correction does not vanish with
more seeds); verdicts then are about these test examples, as they are for MNIST's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]  # examples and their classes
CALL = re.compile(r"\w+\(")


def digits() -> Arrays:
    """1,797 handwritten digits of 8×8 pixels."""
    from sklearn.datasets import load_digits

    held = load_digits()
    return (held.images * (255 / 16)).round().astype(np.uint8), held.target


def wine() -> Arrays:
    """178 wines of three growers by 13 measurements."""
    from sklearn.datasets import load_wine

    held = load_wine()
    return held.data.astype(np.float32), held.target


def breast_cancer() -> Arrays:
    """569 tumours by 30 measurements."""
    from sklearn.datasets import load_breast_cancer

    held = load_breast_cancer()
    return held.data.astype(np.float32), held.target


def shapes(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Six smooth courses of 96 steps, shifted a little."""
    window = np.hanning(17) / np.linalg.norm(np.hanning(17))
    smooth = np.stack([np.convolve(row, window, "same") for row in draw.normal(size=(6, 96))])
    y = draw.integers(0, 6, n)
    return np.stack([np.roll(smooth[k], draw.integers(-4, 5)) for k in y])[:, None], y


def beats(draw: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Heartbeats of two leads in 160 steps: as they should be, wide, without the first wave, with the last inverted."""
    y, t = draw.integers(0, 4, n)[:, None], np.linspace(0, 1, 160)
    at = 0.45 + 0.05 * draw.normal(size=(n, 1))

    def wave(middle: Any, width: Any) -> Any:
        return np.exp(-(((t - middle) / width) ** 2))

    peak = wave(at, np.where(y == 1, 0.026, 0.012)) - 0.2 * wave(at - 0.03, 0.01) - 0.25 * wave(at + 0.03, 0.012)
    before, after = 0.15 * (y != 2) * wave(at - 0.16, 0.025), np.where(y == 3, -0.25, 0.3) * wave(at + 0.25, 0.05)
    return np.stack([peak + before + after, 0.6 * peak - 0.3 * before + 0.8 * after], 1), y[:, 0]


def noisy(made: Callable[[np.random.Generator, int], tuple[Any, Any]], n: int) -> Arrays:
    """Signals with as much noise as there is signal."""
    draw = np.random.default_rng(0)
    x, y = made(draw, n)
    return (x + x.std() * draw.normal(size=x.shape)).astype(np.float32), y


def characters(file: Path) -> Arrays:
    """The first 20 characters of Omniglot's evaluation alphabets, 20 images of each."""
    with np.load(file, allow_pickle=False) as held:
        x, y = held["x_evaluation"], held["y_evaluation"]
    first = np.isin(y, np.unique(y)[:20])
    return x[first], np.unique(y[first], return_inverse=True)[1]


AREAS = ("interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "special", "stats")
MOST = 100  # summaries of an area


def summaries() -> Arrays:
    """What functions of scipy do, in the first sentence of their documentation; which of eight areas they belong to."""
    x: list[str] = []
    y: list[int] = []
    for number, area in enumerate(AREAS):
        module = import_module(f"scipy.{area}")
        documented = (
            inspect.getdoc(each) or "" for name in sorted(module.__all__) if callable(each := getattr(module, name))
        )
        paragraphs = ([" ".join(part.split()) for part in text.split("\n\n")] for text in documented)
        # some begin with how they are called
        first = (next((part for part in each if part and not CALL.match(part)), "") for each in paragraphs)
        found = [text for text in dict.fromkeys(first) if 15 < len(text) < 300]
        x += found[:: -(-len(found) // MOST)]
        y += [number] * len(found[:: -(-len(found) // MOST)])
    return np.array(x), np.array(y)


def sentences(file: Path) -> Arrays:
    """2,767 pairs of RTE: does the second text follow from the first?"""
    with np.load(file, allow_pickle=False) as held:
        first, second, y = (
            np.concatenate([held[f"{of}_{part}"] for part in ("train", "dev")]) for of in ("s1", "s2", "y")
        )
    return np.stack([first, second], 1), y.astype(np.int64)


def write(path: Path, arrays: Arrays, test: int) -> Path:
    """As a file of two parts, the same examples every time; ``test`` of them are for testing."""
    x, y = arrays
    order = np.random.default_rng(0).permutation(len(x))
    held, pool = order[:test], order[test:]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x_train=x[pool], y_train=y[pool], x_test=x[held], y_test=y[held])
    return path
