"""LW's tables 2 and 3 at the size of a laptop: six methods, four networks, none / augmentation / with dropout too.

fallow reproduce lw-table2 [--data-dir DIR] --out reproduced/lw-tables     gains on the baseline, network by network
fallow reproduce lw-table3 [--data-dir DIR] --out reproduced/lw-tables     which method beats which significantly

The paper has six data sets of 3,000 to 12,000 images at 224 × 224 pixels, and K = 4, 13, 7, 16 rounds. Here there are
narrow networks of its four families (resnet18 for resnet50) and four rounds for all, on 300 digits and, with
--data-dir, 500 images each of fashion_mnist and cifar10_sub. VGG16's fifteen layers have no shortcuts: at a width of 8
and with layer normalisation what they give hardly depends on the example at first, and SGD learns nothing (training
accuracy 10 %); with batch normalisation, which keeps examples apart, it does. As in the paper: no label smoothing, mild
augmentation, dropout of 0.25, and the baseline has as many epochs as the others. The paper halves its rate on plateaus;
in rounds of a few hundred steps that leaves the deep networks at 40 to 60 % of their training images, and a network
that has not learned has nothing to forget, so that here every round is one cycle, of about 300 steps. Images of things
are mirrored; digits, which have a left and a right, are shifted by a pixel. Absolute accuracies cannot agree. A cell of
table 2 is the mean gain on the baseline over data sets and seeds, beside the paper's over its data sets; it agrees when
it has the paper's sign, two standard errors from 0. The training accuracy at the end is told.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.evaluate.statistics import significance
from fallow.experiment import heed
from fallow.report.words import many
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Cell, Table
from fallow.training.fit import fit

FAMILY = "lw-tables"
SEEDS = 3
GENERATIONS, RATE = 4, 0.05
METHODS = {"BL": "long", "WELSR": "welsr", "DSD": "dsd", "WELS": "wels", "FC": "fc", "LW": "lw"}
MODELS = {
    "scnn": "scnn:width=8,dense=64",
    "vgg16": "vgg16:width=8,dense=64,norm=batch",
    "mobilenet": "mobilenet:width=8",
    "resnet": "resnet18:width=8,norm=layer",
}
SETTINGS = {"none": (False, ""), "augmentation": (True, ""), "with dropout": (True, "+dropout:rate=0.25")}
DATA = {"digits": ("digits", 300, 50, "crop")}  # training examples, epochs of a round, augmentation
FITTED = 99.0  # % of the training examples
MORE = {"fashion_mnist": (500, 20, "flip"), "cifar10_sub": (500, 20, "flip")}
# mean gains on the baseline over the six data sets of the paper's table 2, in the order of METHODS without BL
PAPER = {
    ("none", "scnn"): (-0.6, -0.4, -0.4, 0.3, 1.1),
    ("none", "vgg16"): (0.5, 0.3, 0.8, 10.1, 4.3),
    ("none", "mobilenet"): (2.2, 3.7, 3.5, 1.9, 12.3),
    ("none", "resnet"): (1.3, 2.7, 1.4, -0.9, 3.8),
    ("augmentation", "scnn"): (0.7, 0.3, 0.7, 2.7, 2.7),
    ("augmentation", "vgg16"): (-0.2, -0.2, 0.1, 15.1, 6.5),
    ("augmentation", "mobilenet"): (3.3, 5.2, 2.6, 4.5, 15.9),
    ("augmentation", "resnet"): (11.2, 10.8, 13.4, 10.9, 11.1),
    ("with dropout", "scnn"): (0.2, -0.8, 0.1, 2.1, 1.9),
    ("with dropout", "vgg16"): (2.2, 1.4, 1.4, 14.6, 9.7),
    ("with dropout", "mobilenet"): (2.9, 7.2, 4.5, 3.1, 14.3),
    ("with dropout", "resnet"): (6.8, 7.8, 8.5, 5.1, 7.6),
}


def training(
    folder: Path, data: str, train: int, epochs: int, augment: str, model: str, method: str, seed: int
) -> list[float]:
    """Accuracy in % on test and on training after the last epoch."""
    result = fit(
        model, data, method, train=train, seed=seed, generations=GENERATIONS, epochs=epochs, augment=augment, lr=RATE,
        label_smoothing=0.0, schedule="one-cycle", weight_decay=1e-5, evaluate_every=epochs, test_at_end=True,
        observer=heed,
    )  # fmt: skip
    return [100 * result.last["test_accuracy"], 100 * result.last["train_accuracy"]]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Either table, from the same runs."""
    data = DATA | ({} if data_dir is None else {key: (str(data_dir / f"{key}.npz"), *how) for key, how in MORE.items()})
    jobs = {
        (model, setting, key, row, seed): (*of, moves if augmented else "none", MODELS[model], method + more, seed)
        for model in MODELS
        for setting, (augmented, more) in SETTINGS.items()
        for key, (*of, moves) in data.items()
        for row, method in METHODS.items()
        for seed in seeds
    }
    found, done = each(training, jobs)
    pairs = [(key, seed) for key in data for seed in done]
    at = {
        (model, setting, row): [found[model, setting, key, row, seed] for key, seed in pairs]
        for model in MODELS
        for setting in SETTINGS
        for row in METHODS
    }
    fitted = {row: statistics.mean(b for of, ends in at.items() if of[2] == row for _, b in ends) for row in METHODS}
    remarks = [
        f"{', '.join(data)}; {GENERATIONS} rounds, {many(len(done), 'seed')}.",
        "Training accuracy at the end, in %: " + ", ".join(f"{row} {value:.1f}" for row, value in fitted.items()) + ".",
        *on_each(at, pairs),
        *where_fitted(at),
    ]
    if name == "lw-table2":
        return Table(name, "LW, table 2", gains(at), unit="points", remarks=[*remarks, *marks(at)])
    return Table(name, "LW, table 3", wins(at), remarks=[*remarks, *marks(at)])


Ends = dict[tuple[str, str, str], list[list[float]]]  # by network, setting and method: test and training accuracies


def gains(at: Ends) -> list[Cell]:
    """What every method gains on the baseline, paired."""
    cells = []
    for (setting, model), theirs in PAPER.items():
        base = at[model, setting, "BL"]
        for row, paper in zip(list(METHODS)[1:], theirs, strict=True):
            gained = [a[0] - b[0] for a, b in zip(at[model, setting, row], base, strict=True)]
            cells.append(direction(f"{model}, {setting}", f"{row} − BL", paper, gained))
    return cells


def on_each(at: Ends, pairs: list[tuple[str, int]]) -> list[str]:
    """The training accuracy of the baseline and of LW, by network and data set, over its settings."""
    lines = []
    for key in dict.fromkeys(key for key, _ in pairs):
        told = []
        for model in MODELS:
            ends = {
                row: [at[model, s, row][i][1] for s in SETTINGS for i, pair in enumerate(pairs) if pair[0] == key]
                for row in ("BL", "LW")
            }
            told.append(f"{model} " + " and ".join(f"{statistics.mean(each):.0f}" for each in ends.values()))
        lines.append(f"That of BL and LW on {key}: {', '.join(told)}.")
    return lines


def where_fitted(at: Ends) -> list[str]:
    """The gains where the baseline and the method have learned their examples: who has not tells of the schedule."""
    told = []
    for row in list(METHODS)[1:]:
        pairs = [
            pair
            for model in MODELS
            for setting in SETTINGS
            for pair in zip(at[model, setting, row], at[model, setting, "BL"], strict=True)
        ]
        gained = [ours[0] - base[0] for ours, base in pairs if min(ours[1], base[1]) >= FITTED]
        if len(gained) > 1:
            error = statistics.stdev(gained) / len(gained) ** 0.5
            told.append(f"{row} {statistics.mean(gained):+.1f} ± {error:.1f} ({len(gained)} of {len(pairs)})")
    if not told:
        return []
    return [f"Where BL and the method have fitted {FITTED:g} % or more, gain and standard error: {', '.join(told)}."]


def together(at: Ends, model: str) -> dict[str, list[float]]:
    """Test accuracies of every method on one network, in all its settings."""
    return {row: [end[0] for setting in SETTINGS for end in at[model, setting, row]] for row in METHODS}


def wins(at: Ends) -> list[Cell]:
    """In which share of the settings a method beats the baseline; half for a draw."""
    cells = []
    for model in MODELS:
        results = together(at, model)
        for row in list(METHODS)[1:]:
            shares = [100.0 * (a > b) + 50.0 * (a == b) for a, b in zip(results[row], results["BL"], strict=True)]
            cells.append(
                Cell(model, f"{row} beats BL", None, round(statistics.mean(shares), 1), 0.0, len(shares), None)
            )
    return cells


def marks(at: Ends) -> list[str]:
    """Who outperforms whom by the exact binomial test, ★ at 5 % and ○ after Holm's correction too."""
    lines = []
    for model in MODELS:
        found = [f"{b} over {a} {mark}" for (a, b), mark in significance(together(at, model)).items() if mark]
        lines.append(f"{model}: {', '.join(found) or 'nothing significant'}.")
    return [
        *lines,
        "The paper: only LW outperforms the baseline on all four networks, on resnet50 with WELSR, DSD, WELS.",
    ]
