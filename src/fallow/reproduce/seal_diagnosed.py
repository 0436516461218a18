"""SEAL's table 6 and figures 2 and 3 at the size of a laptop: curvature, and what neighbours know in each block.

fallow reproduce seal-table6 [--data-dir DIR]      a few minutes on two cores, 3 seeds
fallow reproduce seal-figure2 [--data-dir DIR]
fallow reproduce seal-figure3 [--data-dir DIR]     networks of 1, 2, 4 and 8 generations

The paper has ResNet50 on Tiny-ImageNet; here a narrow scnn has learned 300 digits (or 500 images of
DIR/fashion_mnist.npz) for 4 generations of 12 epochs. Table 6 gives the largest eigenvalue of the Hessian and the
percentage of negative ones. The paper says that SEAL has none: which can only be true of the few largest of single
batches, so that count is shown under its own name, beside the smallest eigenvalue and the negative mass, which are
not 0. Cells of the table agree when ours differ from "Normal (long)" in the paper's direction by two standard errors.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch

from fallow.data import Examples, load
from fallow.data.normalise import normalise
from fallow.diagnose import prediction_depth, spectrum
from fallow.experiment import heed
from fallow.reproduce.curves import Curves
from fallow.reproduce.runs import Key, Runs
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.fit import fit

SEEDS = 3
GENERATIONS, EPOCHS, RATE = 4, 12, 0.05
MODEL = "scnn:width=8,dense=64"
METHODS = {"Normal (long)": "long", "LLF": "llf", "SEAL": "seal:scale=0.01", "SEAL (auto)": "seal:scale=auto"}
LOWER = "largest eigenvalue"  # which the paper says is lower for SEAL, and highest for normal training
PROBES, STEPS = 4, 120
EVOLUTION = (1, 2, 4, 8)  # generations; the paper has 1, 2, 4 and 10


def trained(
    data: str, train: int, method: str, seed: int, smoothing: float = 0.1, generations: int | None = None
) -> tuple[Any, Any, Any]:
    """A trained model, and its training and test examples as it takes them."""
    loaded = load(data, train=train, seed=seed)
    result = fit(
        MODEL, loaded, method, seed=seed, generations=generations or GENERATIONS, epochs=EPOCHS,
        evaluate_every=EPOCHS, augment="none", lr=RATE, label_smoothing=smoothing, test_at_end=True, observer=heed,
    )  # fmt: skip
    parts = []
    for part in (loaded.train, loaded.test):
        assert isinstance(part, Examples)
        few = torch.linspace(0, len(part) - 1, min(len(part), 2000)).long()
        parts.append((normalise(part.x[few], loaded.mean, loaded.std), part.y[few]))
    return result.network, parts[0], parts[1]


def curvature(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """The numbers of table 6, and those that say more."""
    model, (x, y), _ = trained(data, train, method, seed)
    found = spectrum(model, "cross_entropy", x, y, probes=PROBES, steps=STEPS, batch_size=64, seed=seed)
    assert found.top_of_batches is not None
    return {
        LOWER: found.largest.value,
        "smallest eigenvalue": found.smallest.value,
        "negative mass, %": 100 * found.negative_mass.value,
        "negative among the top of batches, %": 100 * found.top_of_batches.negative_share,
    }


def depths(folder: Path, data: str, train: int, method: str, seed: int) -> dict[str, float]:
    """The accuracy of five neighbours on each block."""
    model, learned, asked = trained(data, train, method, seed)
    found = prediction_depth(model, learned, asked)
    accuracies = (100 * found.accuracies).tolist()
    return {str(i): accuracy for i, accuracy in enumerate(accuracies, start=1)}


def evolved(folder: Path, data: str, train: int, method: str, generations: int, seed: int) -> dict[str, float]:
    """What the first half of the blocks and the last one know after so many generations, and the mean depth."""
    model, learned, asked = trained(data, train, method, seed, generations=generations)
    found = prediction_depth(model, learned, asked)
    accuracies = 100 * found.accuracies
    half = len(accuracies) // 2
    return {"early": float(accuracies[:half].mean()), "last": float(accuracies[-1]), "depth": found.mean}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table or the figure."""
    data, train = ("digits", 300) if data_dir is None else (str(data_dir / "fashion_mnist.npz"), 500)
    if name == "seal-figure3":
        return evolution(data, train, seeds, each)
    measure = curvature if name == "seal-table6" else depths
    jobs = {(row, seed): (data, train, method, seed) for seed in seeds for row, method in METHODS.items()}
    at, done = each(measure, jobs)
    columns = list(next(iter(at.values())))
    remarks = [f"{data}, {train} training examples, {MODEL}, {GENERATIONS} generations of {EPOCHS} epochs at {RATE}."]
    if name == "seal-figure2":
        cells = [cell(row, c, None, [at[row, s][c] for s in done], 0) for row in METHODS for c in columns]
        remarks.append(
            "Columns are blocks from input to output; the paper's curves are of SEAL above LLF above normal."
        )
        return Curves(name, "SEAL, figure 2", cells, remarks=remarks, along="block")
    cells = [_cell(row, column, at, done) for row in METHODS for column in columns]
    remarks.append(
        "The paper's largest eigenvalue is lower for SEAL and LLF than for normal training: = agrees with that."
    )
    return Table(name, "SEAL, table 6", cells, unit="the columns' units", remarks=remarks)


def evolution(data: str, train: int, seeds: range, each: Runs) -> Table:
    """Figure 3: the same after more and more generations, each a training of its own."""
    methods = {row: method for row, method in METHODS.items() if row != "SEAL"}  # S = 0.01 forgets nothing here
    at, done = each(
        evolved,
        {
            (row, generations, seed): (data, train, method, generations, seed)
            for seed in seeds
            for row, method in methods.items()
            for generations in EVOLUTION
        },
    )
    cells = [
        cell(row, f"{what}, G = {g}", None, [at[row, g, seed][what] for seed in done], 0)
        for row in methods
        for what in ("early", "last", "depth")
        for g in EVOLUTION
    ]
    remarks = [
        f"{data}, {train} training examples, {MODEL}, G generations of {EPOCHS} epochs at {RATE}. Accuracy in % of "
        "five neighbours, the mean of the first half of the blocks (early) and on the last; mean depth in blocks.",
        "The paper's early blocks get better by SEAL, a little by LLF, and worse by normal training.",
    ]
    return Table("seal-figure3", "SEAL, figure 3", cells, unit="the columns' units", remarks=remarks)


def _cell(row: str, column: str, at: dict[Key, dict[str, float]], seeds: list[int]) -> Cell:
    values = [at[row, seed][column] for seed in seeds]
    plain = cell(row, column, None, values, 0)
    if column == LOWER and row != "Normal (long)" and len(seeds) > 1:
        falls = [at["Normal (long)", seed][column] - at[row, seed][column] for seed in seeds]
        plain.agrees = statistics.mean(falls) > 2 * statistics.stdev(falls) / len(seeds) ** 0.5
    return plain
