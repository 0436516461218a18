"""The thesis' table 5.1 at the size of a laptop: supervised, FixMatch, and FixMatch with a frozen Confidence Network.

fallow reproduce iml-table5.1 --data-dir DIR      on DIR/fashion_mnist.npz and DIR/cifar10_sub.npz
fallow reproduce iml-table5.1                     on the digits

The thesis trains WideResNet-28-2 on CIFAR-10 with 250 labels, 1,000 validation labels and 102,400 steps. Here a narrow
scnn takes a few hundred steps, so accuracies cannot agree; the differences to FixMatch, paired by seed, agree when ours
has the thesis' sign and lies more than two standard errors from 0. As in the thesis, the network is trained jointly,
the classifier is thrown away, and fresh ones are trained with the frozen network and without, on the same labels. The
thesis' network is free (``form=plain``); "our form" is the method's default, bounded and by cosines.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table, cell
from fallow.semi import StudyPlan, runs
from fallow.semi.training import CONFIDENCE, FIXMATCH, FROZEN, SUPERVISED

SEEDS = 3
METHOD, OURS = "confidence:form=plain,ratio=3", "confidence:ratio=3"  # the thesis' form, and ours
LABELS, VALIDATION = 250, 500
EPOCHS, STEPS = 8, 50
MODEL = "scnn:width=8,dense=64"
PAPER = {"baseline": (93.69, 93.54, 93.23), "ours": (94.04, 93.71, 91.13)}  # CIFAR-10, three seeds
ROWS = {  # the training, and the form of the network
    "supervised": (SUPERVISED, "plain"),
    "FixMatch": (FIXMATCH, "plain"),
    "Confidence Network, frozen": (CONFIDENCE + FROZEN, "plain"),
    "Confidence Network, joint": (CONFIDENCE, "plain"),
    "our form, frozen": (CONFIDENCE + FROZEN, "ours"),
    "our form, joint": (CONFIDENCE, "ours"),
}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Accuracies, and differences to FixMatch paired by seed."""
    sets = {"digits": ("digits", 40, 100)}
    if data_dir is not None:
        sets = {
            key: (str(data_dir / f"{key}.npz"), LABELS, VALIDATION) for key in ("fashion_mnist", "cifar10_sub")
        }  # fmt: skip
    trainings = {
        (key, training, form, seed): one
        for key, (data, labels, val) in sets.items()
        for seed in seeds
        for form, method in {"plain": METHOD, "ours": OURS}.items()
        for training, one in runs(
            StudyPlan(data, method, labels, val, model=MODEL, epochs=EPOCHS, steps=STEPS, seed=seed),
            [training for training, of in ROWS.values() if of == form], f"-{key}-{form}-{seed}",
        ).items()
    }  # fmt: skip
    at, done = each.all(trainings)
    values = {of: 100 * (one["test"] or 0.0) for of, one in at.items()}
    cells = [
        cell(row, key, None, [values[key, training, form, seed] for seed in done], 0)
        for row, (training, form) in ROWS.items()
        for key in sets
    ]
    gain = statistics.mean(PAPER["ours"]) - statistics.mean(PAPER["baseline"])
    for key in sets:
        without = [values[key, FIXMATCH, "plain", seed] for seed in done]
        for row, form in (("frozen − FixMatch", "plain"), ("our form, frozen − FixMatch", "ours")):
            frozen = [values[key, CONFIDENCE + FROZEN, form, seed] for seed in done]
            gains = [a - b for a, b in zip(frozen, without, strict=True)]
            cells.append(direction(row, key, round(gain, 2), gains))
    pairs = [b - a for a, b in zip(PAPER["baseline"], PAPER["ours"], strict=True)]
    remarks = [
        f"The thesis, CIFAR-10: FixMatch {PAPER['baseline']}, with the network {PAPER['ours']}: "
        f"{', '.join(f'{pair:+.2f}' for pair in pairs)}, {gain:+.2f} in the mean, "
        "which it calls an improvement.",
        f"Here: {next(iter(sets.values()))[1]} labels, {MODEL}, {EPOCHS * STEPS} steps, {METHOD} and {OURS}.",
        f"Weights that ran away: {_ran_away(at)}.",
    ]
    return Table(name, "Thesis, table 5.1", cells, remarks=remarks)


def _ran_away(at: dict[tuple[Any, ...], Any]) -> str:
    """How many of the networks that were learned, by their form."""
    learned = {form: [one for of, one in at.items() if of[1:3] == (CONFIDENCE, form)] for form in ("plain", "ours")}
    counts = {form: (sum(one["ran_away"] for one in ones), len(ones)) for form, ones in learned.items()}
    return ", ".join(f"{some} of {total} ({form})" for form, (some, total) in counts.items())
