"""FAM's table 1 at the size of a laptop, plain training, SAM and FAM; and how its λ was chosen.

fallow reproduce fam-table1 --data-dir DIR      on DIR/fashion_mnist.npz and DIR/cifar10_sub.npz
fallow reproduce fam-table1                     on the digits
fallow reproduce fam-lambda [--data-dir DIR]    the gain on validation of every λ; DIR has mnist.npz besides

The paper trains ResNet18 (CIFAR-10) and WideResNet28-10 (Fashion-MNIST), both with 64 neurons before the head, on all
images for 250 epochs. Here a ResNet18 of an eighth of the width learns 300 images, cropped and mirrored, until plain
training has at least 99 % of them right. Absolute accuracies cannot agree, so the cells are differences in points of
test accuracy to the baseline, paired by seed; a cell agrees when ours has the paper's sign and lies more than two
standard errors from 0. Training accuracy stands beside every row. SAM has as many steps as the others, and so twice the
passes, with ρ = 0.05 and with the best of three on as many validation images. FAM has the paper's λ, 0.1 of κ/64, and
the better of it and 0.01 on validation.

fam-lambda has smaller networks on more data sets: every λ against plain training, on validation.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.base.errors import WorkError
from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table, cell
from fallow.training.fit import fit

SEEDS = 3
RATE = 0.05
EPOCHS = {"digits": 40, "cifar10_sub": 160, "fashion_mnist": 200}  # until plain training fits 99 %
SHORT = 40  # of fam-lambda
CHANCE = 10.0  # all of them have ten classes
SMALL = "scnn:width=8,dense=64"
MODELS = {"digits": SMALL, "cifar10_sub": "resnet18:width=8,dense=64", "fashion_mnist": "resnet18:width=8,dense=64"}
AUGMENT = {"digits": "none", "mnist": "none", "fashion_mnist": "flip+crop", "cifar10_sub": "flip+crop"}
TRAIN = {"digits": 300, "cifar10_sub": 300, "fashion_mnist": 300}
FEW = {"digits": 300, "mnist": 300, "fashion_mnist": 500, "cifar10_sub": 500}  # of fam-lambda
PAPER = {  # SAM and FAM against the baseline
    "cifar10_sub": {"SAM": 0.08, "FAM": 0.09},
    "fashion_mnist": {"SAM": 0.42, "FAM": 0.03},
    "digits": {},
}
THEIRS = 0.1 / 64  # λ of the printed κ
TRIED = (THEIRS, 0.01)
RHOS = (0.05, 0.1, 0.2)  # the first is SAM's own
LAMBDAS = (0.0001, 0.0003, 0.001, 0.003, 0.01)


def accuracies(
    folder: Path, data: str, train: int, model: str, method: str, augment: str, epochs: int, seed: int
) -> tuple[float, float, float]:
    """Accuracy in % on training, validation and test after the last epoch; what diverges is worth chance."""
    try:
        result = fit(
            model, data, method, train=train, val=0.5, seed=seed, generations=1, epochs=epochs, lr=RATE,
            evaluate_every=epochs, augment=augment, label_smoothing=0.0, test_at_end=True, observer=heed,
        )  # fmt: skip
    except WorkError:
        return CHANCE, CHANCE, CHANCE
    last = result.last
    return 100 * last["train_accuracy"], 100 * last["val_accuracy"], 100 * last["test_accuracy"]


def fam(strength: float) -> str:
    """FAM with this λ."""
    return f"fam:strength={strength:.4g}"


def sam(rho: float) -> str:
    """SAM with this ρ."""
    return f"sam:rho={rho:g}"


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Either table."""
    return (chosen if name == "fam-lambda" else table1)(name, seeds, data_dir, each)


def source(key: str, data_dir: Path | None) -> str:
    """Where a data set is."""
    return "digits" if key == "digits" or data_dir is None else str(data_dir / f"{key}.npz")


def table1(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """SAM and FAM against ordinary training, paired by seed."""
    sets = ["digits"] if data_dir is None else ["cifar10_sub", "fashion_mnist"]
    sams, fams = [sam(rho) for rho in RHOS], [fam(strength) for strength in TRIED]
    methods = ["normal", *sams, *fams]
    jobs = {
        (key, method, seed): (source(key, data_dir), TRAIN[key], MODELS[key], method, AUGMENT[key], EPOCHS[key], seed)
        for seed in seeds
        for key in sets
        for method in methods
    }
    at, done = each(accuracies, jobs)

    def of(key: str, method: str, part: int) -> list[float]:
        return [at[key, method, seed][part] for seed in done]

    def best(key: str, among: list[str]) -> str:
        return max(among, key=lambda method: statistics.mean(of(key, method, 1)))

    rows = {
        "baseline": ["normal"],
        "SAM, ρ = 0.05": sams[:1],
        "SAM, ρ by validation": sams,
        "FAM, λ of the paper": fams[:1],
        "FAM, λ by validation": fams,
    }
    cells = []
    for row, among in rows.items():
        for key in sets:
            method = best(key, among)
            gains = [a - b for a, b in zip(of(key, method, 2), of(key, "normal", 2), strict=True)]
            if row != "baseline":
                cells.append(direction(row, f"{key}, gain", PAPER[key].get(row.partition(",")[0]), gains))
            cells.append(cell(row, f"{key}, test", None, of(key, method, 2), 0))
            cells.append(cell(row, f"{key}, training", None, of(key, method, 0), 0))
    remarks = [
        f"{key}: {TRAIN[key]} training examples, {MODELS[key]}, {EPOCHS[key]} epochs at {RATE}. On validation: "
        + ", ".join(f"{method} {statistics.mean(of(key, method, 1)):.1f} %" for method in methods) + "."
        for key in sets
    ]  # fmt: skip
    return Table(name, "FAM, table 1", cells, remarks=remarks)


def chosen(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """What every λ gains on plain training, on validation: the default is the best in the mean over data sets."""
    sets = ["digits"] if data_dir is None else list(FEW)
    methods = {"plain": "normal"} | {f"λ = {strength:g}": fam(strength) for strength in LAMBDAS}
    jobs = {
        (key, row, seed): (source(key, data_dir), FEW[key], SMALL, method, AUGMENT[key], SHORT, seed)
        for seed in seeds
        for key in sets
        for row, method in methods.items()
    }
    at, done = each(accuracies, jobs)
    pairs = [(key, seed) for key in sets for seed in done]
    cells, means = [], {}
    for row in list(methods)[1:]:
        gains = {pair: at[pair[0], row, pair[1]][1] - at[pair[0], "plain", pair[1]][1] for pair in pairs}
        cells += [cell(row, key, None, [gains[key, seed] for seed in done], 0) for key in sets]
        means[row] = statistics.mean(gains.values())
        cells.append(cell(row, "mean of all", None, list(gains.values()), 0))
        cells.append(cell(row, "training accuracy", None, [at[key, row, seed][0] for key, seed in pairs], 0))
    fitted = statistics.mean(at[key, "plain", seed][0] for key, seed in pairs)
    remarks = [
        f"Points of validation accuracy to plain training, which has {fitted:.1f} % of its training examples right; "
        f"{SMALL}, {SHORT} epochs at {RATE}, {', '.join(f'{FEW[key]} of {key}' for key in sets)}.",
        f"The best in the mean: {max(means, key=lambda row: means[row])}; the default is 0.001, the paper's 0.1/64.",
    ]
    return Table(name, "FAM, its λ", cells, remarks=remarks)
