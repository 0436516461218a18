"""LW's figures 3 and 7 at the size of a laptop: rounds that end early, and LW under other hyperparameters.

fallow reproduce lw-figure3 [--data-dir DIR]      test accuracy against the epochs of a round
fallow reproduce lw-figure7 [--data-dir DIR]      appendix F: LW against the baseline in every setting of a grid

A narrow scnn on 300 digits (or 500 images of DIR/cifar10_sub.npz). Figure 3: every method has four rounds of so many
epochs, the baseline as many in one piece; the paper finds that most methods soon surpass it. Figure 7: the paper varies
the learning rate, dropout, augmentation, weight decay and initialisation on CIFAR-10 and CIFAR-100, drops what fails to
progress, and finds that LW improves on the baseline in most settings, more where the baseline is poor. Its rates, 0.003
and 0.01, are for a hundred times as many steps; here they are 0.01 and 0.03.
"""

from __future__ import annotations

import statistics
from itertools import product
from pathlib import Path
from typing import Any

from fallow.evaluate.statistics import sign_test
from fallow.experiment import heed
from fallow.reproduce.curves import Curves
from fallow.reproduce.runs import Key, Runs
from fallow.reproduce.table import Table, cell
from fallow.training.fit import fit

SEEDS = 2
ROUNDS, EPOCHS = 4, 12
BUDGETS = (2, 4, 8, 16)
MODEL = "scnn:width=8,dense=64"
METHODS = {"BL": "long", "WELSR": "welsr", "DSD": "dsd", "WELS": "wels", "FC": "fc", "LW": "lw"}
GRID: dict[str, tuple[Any, ...]] = {
    "rate": (0.01, 0.03),
    "dropout": (0.0, 0.25),
    "augmentation": ("none", "crop"),
    "decay": (1e-5, 5e-4),
    "start": ("he", "xavier"),
}
PLAIN = (0.02, 0.0, "none", 1e-5, "he")  # the setting of figure 3, in the grid's order
PROGRESS = 2.0  # times chance on training: below it, a baseline has not learned


def accuracies(
    folder: Path, data: str, train: int, method: str, seed: int, epochs: int, rate: float, dropout: float,
    augmentation: str, decay: float, start: str,
) -> tuple[float, float]:  # fmt: skip
    """On training and test, in %, after the last epoch."""
    result = fit(
        f"{MODEL},init={start}", data, method + (f"+dropout:rate={dropout}" if dropout else ""), train=train, seed=seed,
        generations=ROUNDS, epochs=epochs, evaluate_every=epochs, augment=augmentation, lr=rate, weight_decay=decay,
        label_smoothing=0.0, test_at_end=True, observer=heed,
    )  # fmt: skip
    return 100 * result.last["train_accuracy"], 100 * result.last["test_accuracy"]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Either figure."""
    data, train = ("digits", 300) if data_dir is None else (str(data_dir / "cifar10_sub.npz"), 500)
    return (rounds if name == "lw-figure3" else settings)(name, seeds, (data, train), each)


def rounds(name: str, seeds: range, data: tuple[str, int], each: Runs) -> Table:
    """Figure 3."""
    jobs: dict[Key, Any] = {
        (row, budget, seed): (*data, method, seed, budget, *PLAIN)
        for seed in seeds
        for row, method in METHODS.items()
        for budget in BUDGETS
    }
    at, done = each(accuracies, jobs)
    cells = [cell(row, str(b), None, [at[row, b, s][1] for s in done], 0) for row in METHODS for b in BUDGETS]
    ends = ", ".join(f"{r} {statistics.mean(at[r, BUDGETS[-1], s][0] for s in done):.1f}" for r in METHODS)
    remarks = [f"{said(data)}. Training accuracy with rounds of {BUDGETS[-1]} epochs, in %: {ends}."]
    return Curves(name, "LW, figure 3", cells, remarks=remarks, along="epochs of a round", log_x=True)


def settings(name: str, seeds: range, data: tuple[str, int], each: Runs) -> Table:
    """Figure 7."""
    every = list(product(*GRID.values()))
    jobs: dict[Key, Any] = {
        (row, setting, seed): (*data, METHODS[row], seed, EPOCHS, *setting)
        for seed in seeds
        for setting in every
        for row in ("BL", "LW")
    }
    at, done = each(accuracies, jobs)
    whole = [(setting, s) for setting in every for s in done]
    kept = [(setting, s) for setting, s in whole if at["BL", setting, s][0] > PROGRESS * 10]
    base, ours = ({(setting, s): at[row, setting, s][1] for setting, s in kept} for row in ("BL", "LW"))
    cells = []
    poor = sorted(kept, key=lambda of: base[of])
    halves = [("the poorer half of baselines", poor[: len(poor) // 2]), ("the better half", poor[len(poor) // 2 :])]
    for label, mine in [("all", kept), *by_value(kept), *halves]:
        if mine:
            gains = [ours[of] - base[of] for of in mine]
            wins = [100.0 * (gain > 0) + 50.0 * (gain == 0) for gain in gains]
            cells.append(cell(label, "LW is better in, %", None, wins, 0))
            cells.append(cell(label, "by, in points", None, gains, 0))
    p = sign_test(list(ours.values()), list(base.values())) if kept else 1.0
    remarks = [
        f"{said(data)} of {EPOCHS} epochs; {len(every)} settings, {len(done)} seeds; {len(whole) - len(kept)} runs "
        "were dropped, whose baseline did not progress."
    ]
    tests = [{"claim": "LW better than the baseline", "p": p, "p_holm": p}]
    return Table(name, "LW, figure 7", cells, unit="% and points", remarks=remarks, tests=tests)


def said(data: tuple[str, int]) -> str:
    """What is trained."""
    return f"{data[0]}, {data[1]} training examples, {MODEL}, {ROUNDS} rounds"


Of = tuple[tuple[Any, ...], int]  # a setting and a seed


def by_value(kept: list[Of]) -> list[tuple[str, list[Of]]]:
    """By every value of every hyperparameter."""
    return [
        (f"{key} {value}", [of for of in kept if of[0][i] == value])
        for i, (key, values) in enumerate(GRID.items())
        for value in values
    ]
