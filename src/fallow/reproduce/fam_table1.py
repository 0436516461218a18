"""FAM's table 1 at the size of a laptop: plain training, SAM and FAM.

fallow reproduce fam-table1 --data-dir DIR      on DIR/fashion_mnist.npz and DIR/cifar10_sub.npz
fallow reproduce fam-table1                     on the digits

The paper trains ResNet18 (CIFAR-10) and WideResNet28-10 with a 64-neuron layer (Fashion-MNIST) on all images for 250
epochs. Here a narrow scnn with a 64-neuron layer learns 1,000 images. Absolute accuracies cannot agree, so the cells
are differences in points to the baseline, paired by seed; a cell agrees when ours has the paper's sign and lies more
than two standard errors from 0. SAM is shown with as many steps, as in the paper, and with as many forward-backward
passes (half the epochs).
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.base.errors import WorkError
from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table
from fallow.training.fit import fit

SEEDS = 5
EPOCHS = 30
CHANCE = 10.0  # all of them have ten classes
MODEL = "scnn:width=8,dense=64,norm=none"  # a plain ReLU network, as the closed form of κ has it
PAPER = {  # SAM and FAM against the baseline
    "cifar10_sub": {"SAM": 0.08, "FAM": 0.09},
    "fashion_mnist": {"SAM": 0.42, "FAM": 0.03},
    "digits": {},
}
ROWS = {  # the method, and what to divide the epochs by
    "SAM": ("sam", 1),
    "SAM, as many passes": ("sam", 2),
    "FAM, λ = 0.1": ("fam:strength=0.1", 1),  # the paper's, whose code minimises something else
    "FAM, λ = 0.001": ("fam:strength=0.001", 1),
}


def accuracy(folder: Path, data: str, train: int, method: str, share: int, seed: int) -> float:
    """Test accuracy in % after the last epoch; a training that diverges is worth no more than chance."""
    try:
        result = fit(
            MODEL, data, method, train=train, seed=seed, generations=1, epochs=EPOCHS // share, evaluate_every=EPOCHS,
            test_at_end=True, observer=heed,
        )  # fmt: skip
    except WorkError:
        return CHANCE
    return 100 * result.last["test_accuracy"]


def run(name: str, seeds: int, data_dir: Path | None, each: Runs) -> Table:
    """The table: SAM and FAM against ordinary training, paired by seed."""
    sets = {"digits": ("digits", 300)}
    if data_dir is not None:
        sets = {key: (str(data_dir / f"{key}.npz"), 1000) for key in ("cifar10_sub", "fashion_mnist")}
    tasks = {"baseline": ("normal", 1), **ROWS}
    jobs = {(key, row, seed): (*sets[key], *tasks[row], seed) for key in sets for seed in range(seeds) for row in tasks}
    at, done = each(accuracy, jobs)
    cells = []
    for row in ROWS:
        for key in sets:
            gains = [at[key, row, seed] - at[key, "baseline", seed] for seed in done]
            cells.append(direction(row, key, PAPER[key].get(row.partition(",")[0]), gains))
    means = ", ".join(f"{statistics.mean(at[key, 'baseline', s] for s in done):.1f} % on {key}" for key in sets)
    size = next(iter(sets.values()))[1]
    remarks = [f"Differences in points to the baseline ({means}); {size} training examples, {EPOCHS} epochs."]
    return Table(name, "FAM, table 1", cells, remarks=remarks)
