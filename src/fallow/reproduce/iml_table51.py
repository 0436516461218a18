"""The thesis' table 5.1 at the size of a laptop: supervised, FixMatch, and FixMatch with a frozen Confidence Network.

fallow reproduce iml-table5.1 --data-dir DIR      on DIR/fashion_mnist.npz and DIR/cifar10_sub.npz
fallow reproduce iml-table5.1                     on the digits

The thesis trains WideResNet-28-2 on CIFAR-10 with 250 labels, 1,000 validation labels and 102,400 steps. Here a narrow
scnn takes a few hundred steps, so accuracies cannot agree; the differences to FixMatch, paired by seed, agree when ours
has the thesis' sign and lies more than two standard errors from 0. As in the thesis, the network is trained jointly,
the classifier is thrown away, and fresh ones are trained with the frozen network and without, on the same labels.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from joblib import Parallel, delayed

from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table, cell
from fallow.semi import Plan, train
from fallow.semi.training import CONFIDENCE, FIXMATCH, FROZEN, SUPERVISED

SEEDS = 3
METHOD = "confidence:ratio=3"
LABELS, VALIDATION = 250, 500
EPOCHS, STEPS = 8, 50
MODEL = "scnn:width=8,dense=64"
PAPER = {"baseline": (93.69, 93.54, 93.23), "ours": (94.04, 93.71, 91.13)}  # CIFAR-10, three seeds
ROWS = {
    "supervised": SUPERVISED,
    "FixMatch": FIXMATCH,
    "Confidence Network, frozen": CONFIDENCE + FROZEN,
    "Confidence Network, joint": CONFIDENCE,
}


def accuracies(asked: Plan, names: list[str]) -> dict[str, float]:
    """Test accuracies in % of trainings that need each other, in one thread."""
    with tempfile.TemporaryDirectory() as folder:
        found = train(asked, names, Path(folder), threads=1, device="cpu")
    return {outcome.name: 100 * (outcome.test or 0.0) for outcome in found}


def run(name: str, seeds: int, data_dir: Path | None = None) -> Table:
    """Accuracies, and differences to FixMatch paired by seed."""
    sets = {"digits": ("digits", 40, 100)}
    if data_dir is not None:
        sets = {
            key: (str(data_dir / f"{key}.npz"), LABELS, VALIDATION) for key in ("fashion_mnist", "cifar10_sub")
        }  # fmt: skip
    plans = {
        (key, seed): Plan(data, METHOD, labels, val, model=MODEL, epochs=EPOCHS, steps=STEPS, seed=seed)
        for key, (data, labels, val) in sets.items()
        for seed in range(seeds)
    }
    jobs = [
        (at, names) for at in plans for names in ([CONFIDENCE, CONFIDENCE + FROZEN], [FIXMATCH, SUPERVISED])
    ]  # fmt: skip
    found = Parallel(n_jobs=2)(delayed(accuracies)(plans[at], names) for at, names in jobs)
    values: dict[tuple[str, int], dict[str, float]] = {at: {} for at in plans}
    for (at, _), accuracy in zip(jobs, found, strict=True):
        values[at] |= accuracy
    cells = [
        cell(row, key, None, [values[key, seed][training] for seed in range(seeds)], 0)
        for row, training in ROWS.items()
        for key in sets
    ]
    gain = statistics.mean(PAPER["ours"]) - statistics.mean(PAPER["baseline"])
    for key in sets:
        gains = [values[key, seed][CONFIDENCE + FROZEN] - values[key, seed][FIXMATCH] for seed in range(seeds)]
        cells.append(direction("frozen − FixMatch", key, round(gain, 2), gains))
    pairs = [b - a for a, b in zip(PAPER["baseline"], PAPER["ours"], strict=True)]
    remarks = [
        f"The thesis, CIFAR-10: FixMatch {PAPER['baseline']}, with the network {PAPER['ours']}: "
        f"{', '.join(f'{pair:+.2f}' for pair in pairs)}, {gain:+.2f} in the mean, "
        "which it calls an improvement.",
        f"Here: {next(iter(sets.values()))[1]} labels, {MODEL}, {EPOCHS * STEPS} steps, {METHOD}.",
    ]
    return Table(name, "Thesis, table 5.1", cells, remarks=remarks)
