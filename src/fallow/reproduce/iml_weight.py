"""Tables 4.1 to 4.3 of the thesis on implicit meta-learning: a decay for every weight, learned on 50 images.

fallow reproduce iml-table4.1 --data-dir DIR      DIR/mnist.npz at 14×14
fallow reproduce iml-table4.2 --data-dir DIR      DIR/cifar10_sub.npz at 8×8
fallow reproduce iml-table4.3 --data-dir DIR      DIR/mnist.npz at 14×14, as in the thesis, and 32 hidden units
fallow reproduce iml-table4.1                     the digits stand in

50 images to train, 50 to validate; 120 meta-updates of 50 steps where the thesis has 1,000, images of a quarter and a
sixteenth of the pixels, 1,000 test images where it has 50. ``SIDES`` and ``UPDATES`` set to 28 (32) and 1000 are the
thesis' own size: for MNIST about 50 times as long, by the time of a step.

Each solver is shown as in the thesis, Neumann's α = 0.1 and CG with guarded denominators, and as it should be. The
first two rows say what the images are worth without any of this. A cell agrees within 10 points (the thesis' 50 test
images have a standard error of 6), or two standard errors of ours.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from fallow.hypergradients import CG, T1T2, Identity, MetaSchedule, Neumann
from fallow.hypergradients.solution import Solver
from fallow.reproduce.iml_inner import Bilevel, ClampedCG, Look, converged, learn, sets, source, stopped
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Table, cell

SEEDS = 3
IMAGES, TEST = 50, 1000
INNER, UPDATES, ALPHA = 50, 120, 0.1
SIDES = {"mnist": 14, "cifar10_sub": 8}
DATA = {"iml-table4.1": "mnist", "iml-table4.2": "cifar10_sub", "iml-table4.3": "mnist"}
HIDDEN = {"iml-table4.3": 32}  # the others are as wide as their input
BOTH = "no decay, both sets"  # trains on the validation images too
ROWS: dict[str, Solver | None] = {
    "no decay": None,
    BOTH: None,
    "Identity": Identity(),
    "T1-T2": Identity(),
    "Neumann (3)": Neumann(3, ALPHA),
    "Neumann (10)": Neumann(10, ALPHA),
    "Neumann (50)": Neumann(50, ALPHA),
    "Neumann (50), α = 1/λmax": Neumann(50, "auto", "auto"),
    "CG (3), guarded": ClampedCG(3),
    "CG (10), guarded": ClampedCG(10),
    "CG (3), damped": CG(3),
    "CG (10), damped": CG(10),
}
COLUMNS = ("training, best", "validation, best", "validation, last", "test, last", "test, stopped early")
CONVERGED = "meta-updates to the best"  # the convergence epoch of 4.5 and 4.6, "best step" of 4.3; up to 1,000
CONVERGENCE: dict[str, dict[str, float]] = {
    "iml-table4.1": {
        "Identity": 146.33, "T1-T2": 409.0, "Neumann (3)": 133.33, "Neumann (10)": 30.67, "Neumann (50)": 31.33,
        "CG (3), guarded": 155.33, "CG (10), guarded": 0.0,
    },
    "iml-table4.2": {
        "Identity": 132.0, "Neumann (3)": 106.33, "Neumann (10)": 17.33, "Neumann (50)": 2.0,
        "CG (3), guarded": 118.0, "CG (10), guarded": 1.33,
    },
    "iml-table4.3": {
        "Identity": 38.0, "Neumann (3)": 15.0, "Neumann (10)": 19.33, "Neumann (50)": 40.33, "CG (3), guarded": 69.0,
    },
}  # fmt: skip
# the last validation accuracies are in tables A.1, A.5 and A.3, which shows that table 4.3 tests the last network
PAPER: dict[str, dict[str, tuple[float | None, ...]]] = {
    "iml-table4.1": {
        "Identity": (100.0, 94.0, 81.33, 72.0, 76.67),
        "T1-T2": (100.0, 96.0, 84.67, 69.33, None),
        "Neumann (3)": (100.0, 100.0, 95.33, 64.0, 77.33),
        "Neumann (10)": (100.0, 88.0, 55.33, 48.0, 54.67),
        "Neumann (50)": (98.0, 81.33, 41.33, 37.33, 56.0),
        "CG (3), guarded": (100.0, 94.67, 76.67, 57.33, 57.33),
        "CG (10), guarded": (58.67, 40.0, 16.0, 12.0, 6.0),
    },
    "iml-table4.2": {
        "Identity": (100.0, 84.67, 72.0, 20.0, 21.33),
        "T1-T2": (100.0, 88.67, 71.33, 20.67, None),
        "Neumann (3)": (100.0, 86.0, 67.33, 18.0, 18.67),
        "Neumann (10)": (100.0, 51.33, 16.0, 15.33, 20.0),
        "Neumann (50)": (77.33, 18.0, 18.0, 8.0, 8.0),
        "CG (3), guarded": (100.0, 94.67, 52.67, 20.0, 23.33),
        "CG (10), guarded": (82.67, 14.67, 14.0, 4.0, 10.0),
    },
    "iml-table4.3": {
        "Identity": (52.0, 42.67, 38.67, 31.33, None),
        "Neumann (3)": (43.33, 42.0, 28.67, 19.33, None),
        "Neumann (10)": (44.0, 46.67, 24.67, 25.33, None),
        "Neumann (50)": (45.33, 38.0, 31.33, 31.33, None),
        "CG (3), guarded": (54.0, 52.67, 48.67, 34.0, None),
    },
}


def training(folder: Path, data: str, side: int, hidden: int | None, row: str, seed: int) -> list[Look]:
    """One training with its meta-updates, looked at before each of them."""
    solver = ROWS[row]
    few = sets(data, side, IMAGES, 0.5, TEST, seed)
    learner = Bilevel(few.together if row == BOTH else few, decay=solver is not None, hidden=hidden, seed=seed)
    schedule = T1T2() if row == "T1-T2" else MetaSchedule(INNER, INNER)
    return learn(learner, solver, schedule, UPDATES * INNER, INNER)


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table of one data set."""
    data = DATA[name]
    given = (source(data_dir, data), SIDES[data], HIDDEN.get(name))
    jobs = {(row, seed): (*given, row, seed) for seed in seeds for row in ROWS}
    found, done = each(training, jobs)
    at = {key: [Look(*look) for look in looks] for key, looks in found.items()}
    cells = []
    for row in ROWS:
        runs = [at[row, seed] for seed in done]
        ours = (
            [max(look.train for look in looks) for looks in runs],
            [max(look.val for look in looks) for looks in runs],
            [looks[-1].val for looks in runs],
            [looks[-1].test for looks in runs],
            [stopped(looks).test for looks in runs],
        )
        paper = PAPER[name].get(row) if data_dir or data == "mnist" else None
        for column, theirs, values in zip(COLUMNS, paper or (None,) * len(COLUMNS), ours, strict=True):
            if row == BOTH and column.startswith("validation"):
                continue  # it has been trained on
            cells.append(cell(row, column, theirs, values, 10.0))
        if row != BOTH:
            when = cell(row, CONVERGED, CONVERGENCE[name].get(row), [converged(looks) for looks in runs], 0)
            when.agrees = None  # the thesis had eight times as many
            cells.append(when)
    used = "digits" if data_dir is None else f"{data} at {SIDES[data]}×{SIDES[data]}"
    remarks = [
        f"{used}, {IMAGES} images to train, {IMAGES} to validate, {UPDATES} meta-updates of {INNER} steps.",
        *(explained(row, [at[row, seed] for seed in done]) for row in ROWS if row.startswith("Neumann")),
    ]
    return Table(name, f"Implicit meta-learning, table {name[-3:]}", cells, remarks=remarks)


def explained(row: str, runs: list[list[Look]]) -> str:
    """When the validation loss was lowest, and when a decay was first above 2/α, where the series diverges."""
    best = statistics.mean(1 + min(range(len(looks)), key=lambda i: looks[i].val_loss) for looks in runs)
    over = [[i for i, look in enumerate(looks, 1) if look.decay > 2 / ALPHA] for looks in runs]
    if not all(over):
        return f"{row}: the lowest validation loss at meta-update {best:.0f}."
    first = statistics.mean(each[0] for each in over)
    return (
        f"{row}: the lowest validation loss at meta-update {best:.0f}, the first decay above 2/{ALPHA} (where the "
        f"series diverges with α = {ALPHA}) at {first:.0f}."
    )
