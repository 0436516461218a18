"""LW's ablation (appendix E) on the data at hand: what rescaling, normalisation, fine-tuning and re-drawing give.

fallow reproduce lw-ablation [--data-dir DIR]      about 3 minutes on two cores, 4 seeds

The paper gives, over its data sets, how often LW is better with rescaling than without (87.5 %), and with fine-tuning
than with frozen early blocks (87.5 %), both without augmentation and dropout. Here the share is over seeds and data
sets: 300 digits, 256 synthetic examples at two signal strengths, and, with --data-dir, 500 images of fashion_mnist.
"""

from __future__ import annotations

from pathlib import Path

from fallow.evaluate.statistics import holm, sign_test
from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table
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
DATA = {
    "digits": ("digits", 300, "scnn:width=8,dense=64", 4, 16),
    "synthetic α = 1": ("synthetic:alpha=1.0", None, "mlp:hidden=32,32", 2, 60),
    "synthetic α = 2": ("synthetic:alpha=2.0", None, "mlp:hidden=32,32", 2, 60),
}


def accuracy(
    folder: Path, data: str, train: int | None, model: str, generations: int, epochs: int, method: str, seed: int
) -> float:
    """Test accuracy in % after the last epoch."""
    result = fit(
        model, data, method, train=train, seed=seed, generations=generations, epochs=epochs, evaluate_every=epochs,
        augment="none", label_smoothing=0.0, observer=heed,
    )  # fmt: skip
    return 100 * result.last["test_accuracy"]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """How often LW beats LW without one of its parts, over data sets and seeds."""
    settings = dict(DATA)
    if data_dir is not None:
        settings["fashion_mnist"] = (str(data_dir / "fashion_mnist.npz"), 500, "scnn:width=8,dense=64", 4, 16)
    jobs = {(d, v, seed): (*settings[d], VARIANTS[v], seed) for d in settings for v in VARIANTS for seed in seeds}
    at, done = each(accuracy, jobs)
    every = [(data, seed) for data in settings for seed in done]
    full = [at[data, "LW", seed] for data, seed in every]
    cells, p_values = [], []
    others = [variant for variant in VARIANTS if variant != "LW"]
    for variant in others:
        theirs = [at[data, variant, seed] for data, seed in every]
        wins = [100.0 * (a > b) + 50.0 * (a == b) for a, b in zip(full, theirs, strict=True)]
        share, paper = sum(wins) / len(wins), PAPER.get(variant)
        agrees = None if paper is None else (share > 50) == (paper > 50)
        cells.append(Cell(variant, "LW is better in", paper, round(share, 1), 0.0, len(wins), agrees))
        gains = [a - b for a, b in zip(full, theirs, strict=True)]
        cells.append(Cell(variant, "by, in points", None, round(sum(gains) / len(gains), 2), 0.0, len(gains), None))
        p_values.append(sign_test(full, theirs))
    tests = [
        {"claim": f"LW better than: {variant}", "p": p, "p_holm": corrected}
        for variant, p, corrected in zip(others, p_values, holm(p_values), strict=True)
    ]
    remarks = [f"{len(every)} pairs: {', '.join(settings)}, {len(done)} seeds each; a cell agrees when the sign does."]
    return Table(name, "LW, appendix E", cells, remarks=remarks, tests=tests)
