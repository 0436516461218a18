"""SEAL's tables 2 and 7 at the size of a laptop: differences to training as long without forgetting.

fallow reproduce seal-table2 [--data-dir DIR]      one to three minutes on two cores, 4 seeds

The paper trains ResNet50 on Tiny-ImageNet for 10 generations of 160 epochs; here a narrow scnn learns 300 digits
(or 500 images of DIR/fashion_mnist.npz) for 5 generations of 16 epochs. Absolute accuracies cannot agree, so the
cells are differences in points to "Normal" after as many epochs, paired by seed; a cell agrees when ours has the
paper's sign and lies more than two standard errors from 0. SEAL is run as printed (S = 0.01), which forgets nothing
in so few steps, and with ``scale=auto``. The lowest training accuracy at the end of a generation stands below: where it
is not that of long training relearning has failed, and the cell says nothing about forgetting.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table
from fallow.training.fit import fit

SEEDS = 4
GENERATIONS, EPOCHS, RATE = 5, 16, 0.05
LATE = {"Gen=3": 3, "last": GENERATIONS}  # the paper's columns are generations 3 and 10
ROWS = {
    "seal-table2": {
        "LLF": ("llf", {"Gen=3": 4.96, "last": 7.65}),
        "SEAL": ("seal:scale=0.01", {"Gen=3": 7.09, "last": 9.95}),
        "SEAL (auto)": ("seal:scale=auto", {"Gen=3": 7.09, "last": 9.95}),
    },
    "seal-table7": {
        "SEAL+Freeze": ("seal:scale=auto,late=freeze", {"Gen=3": 1.29, "last": 1.90}),
        "SEAL+Reinit": ("seal:scale=auto,late=redraw", {"Gen=3": 5.66, "last": 9.60}),
        "SEAL+Reverse": ("seal:scale=auto,reverse=True", {"Gen=3": -0.91, "last": -8.22}),
        "SEAL+Descent": ("seal:scale=auto", {"Gen=3": 7.09, "last": 9.95}),
    },
}


def accuracies(folder: Path, data: str, train: int, method: str, seed: int, generations: int) -> list[list[float]]:
    """Test and training accuracy in % after the last epoch of each generation."""
    result = fit(
        "scnn:width=8,dense=64", data, method, train=train, seed=seed, generations=generations, epochs=EPOCHS,
        evaluate_every=EPOCHS, augment="none", lr=RATE, observer=heed,
    )  # fmt: skip
    return [[100 * record["last"][f"{part}_accuracy"] for part in ("test", "train")] for record in result.generations]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: every method against ``long`` of the same number of epochs, paired by seed."""
    data, train = ("digits", 300) if data_dir is None else (str(data_dir / "fashion_mnist.npz"), 500)
    controls = [("long", generations) for generations in LATE.values()]
    tasks = [*controls, *((method, GENERATIONS) for method, _ in ROWS[name].values())]
    at, done = each(accuracies, {(m, g, seed): (data, train, m, seed, g) for m, g in tasks for seed in seeds})
    cells = []
    for row, (method, paper) in ROWS[name].items():
        for column, generation in LATE.items():
            gains = [at[method, GENERATIONS, s][generation - 1][0] - at["long", generation, s][-1][0] for s in done]
            cells.append(direction(row, column, paper[column], gains))
    lowest = {method: min(fit for s in done for _, fit in at[method, g, s]) for method, g in tasks}
    remarks = [
        f"Differences in points to long training; {data}, {train} training examples, scnn:width=8,dense=64, "
        f"{GENERATIONS} generations of {EPOCHS} epochs at {RATE} (the paper's last is generation 10).",
        "The lowest training accuracy at a generation's end, in %: "
        + ", ".join(f"{method} {value:.1f}" for method, value in lowest.items()) + ".",
    ]  # fmt: skip
    return Table(name, f"SEAL, table {name[-1]}", cells, remarks=remarks)


def direction(row: str, column: str, paper: float | None, gains: list[float]) -> Cell:
    """A cell that agrees when our difference has the paper's sign, two standard errors from 0; one seed cannot say."""
    ours = statistics.mean(gains)
    spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
    agrees = None
    if paper is not None and len(gains) > 1:
        agrees = ours * paper > 0 and abs(ours) > 2 * spread / len(gains) ** 0.5
    return Cell(row, column, paper, round(ours, 3), round(spread, 3), len(gains), agrees)
