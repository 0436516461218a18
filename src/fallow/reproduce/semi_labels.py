"""FixMatch beside the labels alone where labels are few, with a narrow WideResNet.

fallow reproduce semi-labels --data-dir DIR      on those of cifar10_sub.npz and fashion_mnist.npz that are in DIR
fallow reproduce semi-labels                     on the digits

The thesis stands on FixMatch, whose WideResNet-28-2 learns from 40 and 250 labels of CIFAR-10 for a million steps. Here
a WideResNet-10-1 takes 3,000. Both rows have the same steps, weak augmentation, schedule and moving average; FixMatch
sees six unlabelled views beside each labelled one, which is its whole difference and seven times the work. "Sure" is
the share of the unlabelled images above the threshold in the last epoch, "right" how many of these have the true class.
"""

from __future__ import annotations

from pathlib import Path

from fallow.base.errors import RequestError
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Cell, Table, cell
from fallow.semi import StudyPlan, outcome, runs
from fallow.semi.training import FIXMATCH, SUPERVISED

SEEDS = 3
METHOD = "fixmatch:ratio=3"
MODEL = "wideresnet:depth=10,widen=1"
EPOCHS, STEPS, BATCH = 30, 100, 32
LABELS, VALIDATION = (40, 250), 500
AUGMENT = {"cifar10_sub": "flip+reflect", "fashion_mnist": "reflect", "digits": "reflect"}  # the weak one


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Accuracies of both, and the difference paired by seed, for every data set and number of labels."""
    sets = {"digits": "digits"}
    if data_dir is not None:
        held = {key: data_dir / f"{key}.npz" for key in ("cifar10_sub", "fashion_mnist")}
        sets = {key: str(path) for key, path in held.items() if path.exists()}
        if not sets:
            raise RequestError(f"{data_dir} has none of {', '.join(path.name for path in held.values())}")
    trainings = {
        (key, labels, training, seed): one
        for seed in seeds
        for key, data in sets.items()
        for labels in LABELS
        for training, one in runs(
            StudyPlan(
                data, METHOD, labels, VALIDATION if data_dir else 100, model=MODEL, epochs=EPOCHS, steps=STEPS,
                batch_size=BATCH, augment=AUGMENT[key], seed=seed,
            ),
            [SUPERVISED, FIXMATCH], f"-{key}-{labels}-{seed}",
        ).items()
    }  # fmt: skip
    at, done = each.all(trainings)
    folder = each.folder / "runs"
    ends = {
        of: outcome(of[2], folder / one.name, at[of]).history[-1] | at[of]
        for of, one in trainings.items()
        if of[-1] in done
    }

    def of(key: str, labels: int, training: str, what: str) -> list[float]:
        return [100 * ends[key, labels, training, seed].get(what, 0.0) for seed in done]

    cells: list[Cell] = []
    for key in sets:
        for labels in LABELS:
            row = f"{key}, {labels} labels"
            alone, both = (of(key, labels, training, "test") for training in (SUPERVISED, FIXMATCH))
            cells.append(cell(row, "labels alone", None, alone, 0))
            cells.append(cell(row, "FixMatch", None, both, 0))
            cells.append(direction(row, "gain", None, [b - a for a, b in zip(alone, both, strict=True)]))
            for column, training in (("labels alone, training", SUPERVISED), ("FixMatch, training", FIXMATCH)):
                cells.append(cell(row, column, None, of(key, labels, training, "train"), 0))
            cells.append(cell(row, "sure", None, of(key, labels, FIXMATCH, "confident"), 0))
            cells.append(cell(row, "right of these", None, of(key, labels, FIXMATCH, "confident_right"), 0))
    remarks = [f"{MODEL}, {EPOCHS * STEPS} steps of {BATCH} labelled images, {METHOD}; accuracies after the last."]
    return Table(name, "Thesis, FixMatch", cells, remarks=remarks)
