"""Does SEAL's ascent forget, and does the network relearn? (section 3, where the paper's accuracy falls to chance)

fallow reproduce seal-ascent [--data-dir DIR]      half a minute on two cores, 3 seeds

The paper's S = 0.01 belongs to its 125,000 ascending steps. Here a narrow scnn learns 300 digits (or 500 images of
DIR/fashion_mnist.npz), whose ascent has some dozens; S by ``scale=auto`` stands beside it and beside ``restart``, which
forgets nothing. Over the generations after the first: the largest cosine between the early weights before and after
the ascent (below 0.99: they moved, in every generation), the mean training accuracy right after it, and the lowest
training accuracy at a generation's end: below that of ``restart`` relearning has failed, and a test accuracy would
speak of that instead of forgetting.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Table, cell
from fallow.training.fit import fit

SEEDS = 3
GENERATIONS, EPOCHS, RATE = 3, 16, 0.05
MODEL = "scnn:width=8,dense=64"
ROWS = {"SEAL, S by scale=auto": "seal:scale=auto", "SEAL, S = 0.01": "seal:scale=0.01", "restart": "restart"}
COLUMNS = ("cosine", "training accuracy right after, %", "at the generation's end, %", "test accuracy, %")


def measured(folder: Path, data: str, train: int, method: str, seed: int) -> list[float | None]:
    """The columns."""
    result = fit(
        MODEL, data, method, train=train, seed=seed, generations=GENERATIONS, epochs=EPOCHS, evaluate_every=EPOCHS,
        augment="none", lr=RATE, test_at_end=True, observer=heed,
    )  # fmt: skip
    later = result.generations[1:]
    cosines = [row["ascent_cosine"] for row in result.history if "ascent_cosine" in row]
    after = [100 * record["forgot_to"] for record in later if "forgot_to" in record]
    return [
        max(cosines, default=None),
        statistics.mean(after) if after else None,
        min(100 * record["last"]["train_accuracy"] for record in later),
        100 * result.last["test_accuracy"],
    ]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The three ways, and whether relearning succeeds."""
    data, train = ("digits", 300) if data_dir is None else (str(data_dir / "fashion_mnist.npz"), 500)
    jobs = {(row, seed): (data, train, method, seed) for seed in seeds for row, method in ROWS.items()}
    at, done = each(measured, jobs)
    cells = []
    for row in ROWS:
        for i, column in enumerate(COLUMNS):
            if at[row, done[0]][i] is not None:
                cells.append(cell(row, column, None, [at[row, seed][i] for seed in done], 0))
    held = sum(at["SEAL, S by scale=auto", seed][2] >= at["restart", seed][2] for seed in done)
    remarks = [
        f"{data}, {train} training examples, {MODEL}, {GENERATIONS} generations of {EPOCHS} epochs at {RATE}.",
        f"scale=auto ends no lower in training accuracy than restart with {held} of {len(done)} seeds.",
    ]
    return Table(name, "SEAL, section 3", cells, unit="the columns' units", remarks=remarks)
