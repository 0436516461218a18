"""LW's ablation (appendix E) on the data at hand: what rescaling, normalisation, fine-tuning and re-drawing give.

fallow reproduce lw-ablation                          about 3 minutes on two cores, 4 seeds
fallow reproduce lw-ablation-images --data-dir DIR    about 15: mnist.npz, fashion_mnist.npz and cifar10_sub.npz of DIR

The paper gives, over its data sets, how often LW is better with rescaling than without (87.5 %), and with fine-tuning
than with frozen early blocks (87.5 %), both without augmentation and dropout. Here the share is over seeds and data
sets, ties counted half: 300 digits and 256 synthetic examples at two signal strengths, or 300 to 500 images of three
data sets. Training accuracy stands beside it, since a variant that has not relearned says nothing about its part.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError
from fallow.evaluate.statistics import holm, sign_test
from fallow.experiment import heed
from fallow.reproduce.runs import Key, Runs
from fallow.reproduce.table import Table, cell
from fallow.training.fit import fit

SEEDS = 4
VARIANTS = {
    "LW": "lw",
    "without rescaling": "lw:rescaling=False",
    "without normalisation": "lw:normalisation=False",
    "early blocks frozen": "lw:freeze=True",
    "nothing re-drawn": "rescale",
    "trained longer": "long",
}
PAPER = {"without rescaling": 87.5, "early blocks frozen": 87.5, "nothing re-drawn": None, "trained longer": None}
ON_IMAGES = ("scnn:width=8,dense=64", 4, 16)  # network, generations, epochs of each
DATA = {
    "digits": ("digits", 300, *ON_IMAGES),
    "synthetic α = 1": ("synthetic:alpha=1.0", None, "mlp:hidden=32,32", 2, 60),
    "synthetic α = 2": ("synthetic:alpha=2.0", None, "mlp:hidden=32,32", 2, 60),
}
IMAGES = {"mnist": 300, "fashion_mnist": 500, "cifar10_sub": 500}


def accuracies(
    folder: Path, data: str, train: int | None, model: str, generations: int, epochs: int, method: str, seed: int
) -> tuple[float, float]:
    """Test and training accuracy in % after the last epoch."""
    result = fit(
        model, data, method, train=train, seed=seed, generations=generations, epochs=epochs, evaluate_every=epochs,
        augment="none", label_smoothing=0.0, observer=heed,
    )  # fmt: skip
    return 100 * result.last["test_accuracy"], 100 * result.last["train_accuracy"]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """How often LW beats LW without one of its parts, over data sets and seeds."""
    settings: dict[str, tuple[str, int | None, str, int, int]] = DATA
    if name == "lw-ablation-images":
        if data_dir is None:
            raise RequestError(f"{name} needs --data-dir: a folder with {', '.join(IMAGES)} in it, as .npz")
        settings = {key: (str(data_dir / f"{key}.npz"), few, *ON_IMAGES) for key, few in IMAGES.items()}
    jobs = {(d, v, seed): (*settings[d], VARIANTS[v], seed) for d in settings for v in VARIANTS for seed in seeds}
    at, done = each(accuracies, jobs)
    every = [(data, seed) for data in settings for seed in done]

    def of(variant: str, part: int = 0) -> list[float]:
        return [at[data, variant, seed][part] for data, seed in every]

    cells, p_values = [], []
    others = [variant for variant in VARIANTS if variant != "LW"]
    for variant in others:
        pairs = list(zip(of("LW"), of(variant), strict=True))
        wins = [100 * (a > b) + 50 * (a == b) for a, b in pairs]
        share, paper = cell(variant, "LW is better in", None, wins, 0), PAPER.get(variant)
        agrees = None if paper is None else (share.ours > 50) == (paper > 50)
        cells.append(replace(share, paper=paper, agrees=agrees))
        cells.append(cell(variant, "by, in points", None, [a - b for a, b in pairs], 0))
        p_values.append(sign_test(of("LW"), of(variant)))
    for variant in [*others, "LW"]:
        cells.append(cell(variant, "test", None, of(variant), 0))
        cells.append(cell(variant, "training", None, of(variant, 1), 0))
    tests = [
        {"claim": f"LW better than: {variant}", "p": p, "p_holm": corrected}
        for variant, p, corrected in zip(others, p_values, holm(p_values), strict=True)
    ]
    remarks = [
        f"{len(every)} pairs: {', '.join(settings)}, {len(done)} seeds each; a cell agrees when the sign does. "
        "Deviations are over the pairs; below, in brackets, what LW has more.",
        *(f"{data}: LW has {_mean(at, data, 'LW', done)}, {', '.join(_gain(at, data, v, done) for v in others)}."
          for data in settings),
    ]  # fmt: skip
    return Table(name, "LW, appendix E", cells, remarks=remarks, tests=tests)


def _mean(at: dict[Key, Any], data: str, variant: str, seeds: list[int]) -> str:
    return f"{statistics.mean(at[data, variant, seed][0] for seed in seeds):.1f} %"


def _gain(at: dict[Key, Any], data: str, variant: str, seeds: list[int]) -> str:
    """What LW has more than the variant, on one data set."""
    by = statistics.mean(at[data, "LW", seed][0] - at[data, variant, seed][0] for seed in seeds)
    return f"{variant} {_mean(at, data, variant, seeds)} ({by:+.1f})"
