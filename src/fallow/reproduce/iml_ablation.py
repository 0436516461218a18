"""Section 4.2.4 of the thesis on implicit meta-learning: fewer steps between the meta-updates of a decay per layer.

fallow reproduce iml-ablation --data-dir DIR      DIR/cifar10_sub.npz at 8×8
fallow reproduce iml-ablation                     the digits stand in

The thesis varies 50 to 500 steps on CIFAR-10 with 50 meta-updates after 1,000 steps of warm-up, and compares with one
baseline for all (50.4 %); its figure 4.2 gives no numbers. Here there are 20 meta-updates of 10 to 200 steps, and
beside them training without decay for as many steps, and meta-updates without a warm-up.
"""

from __future__ import annotations

from pathlib import Path

from fallow.hypergradients import CG, Identity, MetaSchedule, Neumann
from fallow.hypergradients.solution import Solver
from fallow.reproduce.curves import Curves
from fallow.reproduce.iml_inner import Bilevel, learn, sets, source
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import cell

SEEDS = 3
SIDE, BATCH, SAMPLE, TEST = 8, 128, 500, 3000
WARMUP, UPDATES, INNER = 1000, 20, (10, 50, 100, 200)
ROWS: dict[str, tuple[Solver | None, bool]] = {  # the solver, and whether there is a warm-up
    "no decay, as many steps": (None, True),
    "Identity": (Identity(), True),
    "Neumann (3)": (Neumann(3, 0.1), True),
    "CG (3), damped": (CG(3), True),
    "Identity, no warm-up": (Identity(), False),
    "CG (3), damped, no warm-up": (CG(3), False),
}


def accuracy(folder: Path, data: str, row: str, inner: int, seed: int) -> float:
    """Test accuracy in % at the end."""
    solver, warm = ROWS[row]
    steps = WARMUP + UPDATES * inner
    learner = Bilevel(
        sets(data, SIDE, None, 1 / 12, TEST, seed), per="layer", decay=solver is not None, batch=BATCH, sample=SAMPLE,
        seed=seed,
    )  # fmt: skip
    schedule = MetaSchedule(WARMUP if warm else inner, inner)
    return learn(learner, solver, schedule, steps, steps, UPDATES)[-1].test


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Curves:
    """Test accuracy against the steps between two meta-updates."""
    jobs = [(row, inner, seed) for seed in seeds for row in ROWS for inner in INNER]
    at, done = each(accuracy, {job: (source(data_dir, "cifar10_sub"), *job) for job in jobs})
    cells = [cell(row, str(inner), None, [at[row, inner, seed] for seed in done], 0) for row in ROWS for inner in INNER]
    used = "digits" if data_dir is None else f"cifar10_sub at {SIDE}×{SIDE}"
    remarks = [
        f"{used}; all rows of a column have {WARMUP} steps and {UPDATES} times the column's, in batches of {BATCH}; "
        f"without a warm-up the {UPDATES} meta-updates come first, and the {WARMUP} steps after them."
    ]
    return Curves(
        name, "Implicit meta-learning, section 4.2.4", cells, remarks=remarks, along="steps between meta-updates",
        log_x=True,
    )  # fmt: skip
