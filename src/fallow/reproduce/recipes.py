"""What training with default settings reaches: the runners that a comparison judges, beside learners of seconds.

fallow reproduce recipes --data-dir DIR           from scratch: `fallow train DATA --train N --method long`
fallow reproduce recipes-pretrained --data-dir DIR    on lite0: `--model lite0 --method probe`, and `lp-ft`
fallow reproduce recipes                          the digits stand in

The network, the rate, the epochs and the augmentation follow from the data. A further quarter as many examples are used
for validation; the yardsticks, learners of scikit-learn's kind on raw pixels, learn from the same examples.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fallow.data import load
from fallow.experiment import heed
from fallow.reproduce.iml_inner import source
from fallow.reproduce.runs import Key, Runs
from fallow.reproduce.table import Table, cell
from fallow.training.fit import fit
from fallow.training.yardsticks import yardsticks

SEEDS = 1
SIZES = {"mnist": 300, "fashion_mnist": 500, "cifar10_sub": 1000, "pets32": 2944}  # training examples
PHOTOGRAPHS = ("cifar10_sub", "pets32")
NETWORK, METHODS = "lite0", ("probe", "lp-ft")
COLUMNS = ("training, %", "test, %", "CPU seconds")


def training(folder: Path, data: str, train: int, model: str | None, method: str, seed: int) -> dict[str, Any]:
    """By the recipe: accuracies in %, CPU seconds with the trials of augmentations, and the yardsticks' accuracies."""
    start = time.process_time()
    loaded = load(data, train=train, seed=seed)
    last = fit(model, loaded, method, seed=seed, test_at_end=True, observer=heed).last
    seconds = time.process_time() - start
    simple = {} if model else {each.name: 100 * each.metrics["test"]["accuracy"] for each in yardsticks(loaded)}
    return {"training, %": 100 * last["train_accuracy"], "test, %": 100 * last["test_accuracy"],
            "CPU seconds": seconds, "yardsticks": simple}  # fmt: skip


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Either table."""
    pretrained = name == "recipes-pretrained"
    sizes = {"digits": 300} if data_dir is None else {key: SIZES[key] for key in (PHOTOGRAPHS if pretrained else SIZES)}
    ways = {f"{NETWORK}, {method}": (NETWORK, method) for method in METHODS} if pretrained else {"long": (None, "long")}
    jobs: dict[Key, Any] = {
        (key, row, s): (source(data_dir, key), n, *how, s)
        for s in seeds for key, n in sizes.items() for row, how in ways.items()
    }  # fmt: skip
    at, done = each(training, jobs)
    cells = []
    for key, n in sizes.items():
        here = {row: [at[key, row, s] for s in done] for row in ways}
        label = f"{key}, {n:,} examples"
        for row, runs in here.items():
            cells += [cell(f"{label}: {row}", of, None, [found[of] for found in runs], 0) for of in COLUMNS]
        first, *rest = here.values()
        if rest:
            gains = [b["test, %"] - a["test, %"] for a, b in zip(first, rest[0], strict=True)]
            cells.append(cell(f"{label}: {METHODS[1]} − {METHODS[0]}", "test, %", None, gains, 0))
        for learner in first[0]["yardsticks"]:
            cells.append(cell(f"{label}: {learner}", "test, %", None, [run["yardsticks"][learner] for run in first], 0))
    return Table(name, "The recipes", cells, remarks=["CPU time of one thread, with the trials of augmentations."])
