"""Table A.8 of the thesis on implicit meta-learning: one L2 weight for all weights of the network, from a grid.

fallow reproduce iml-tableA.8 --data-dir DIR      DIR/mnist.npz at 14×14
fallow reproduce iml-tableA.8                     the digits stand in

The thesis adds α·Σw² to the loss and does not say how long it trained. So every network is looked at twice: after the
1,000 steps of table 4.7's warm-up, and after as many steps as the rows of that table with a learned decay.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fallow.hypergradients import MetaSchedule
from fallow.reproduce.iml_inner import Bilevel, Look, learn, sets, source
from fallow.reproduce.iml_layer import BATCH, DATA, INNER, SIDES, TEST, UPDATES, WARMUP
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Table, cell

SEEDS = 3
NONE, BEST = "none", "best on validation"
COLUMNS = {"training": "train", "validation": "val", "test": "test"}  # what it is called, and the field of a Look
PAPER: dict[float, tuple[float, float, float]] = {
    1e-6: (94.78, 94.81, 94.41), 1e-5: (94.78, 94.82, 94.41), 1e-4: (94.78, 94.82, 94.43), 1e-3: (94.73, 94.81, 94.39),
    1e-2: (93.99, 94.28, 93.67), 1e-1: (89.89, 90.72, 89.93), 0.5: (82.24, 83.48, 80.39), 1.0: (74.26, 75.80, 55.37),
    2.0: (67.67, 69.13, 15.57), 3.0: (57.75, 59.15, 11.17),
}  # fmt: skip
BASELINE = (94.78, 94.82, 94.42)  # of table 4.7, without a penalty


def penalised(learner: Bilevel, weight: float) -> Bilevel:
    """The learner with α·Σw² added to its loss, whose gradient is 2α·w."""
    learner.rates = [torch.tensor(2 * weight)] * len(learner.params)
    return learner


def training(folder: Path, data: str, side: int, weight: float, seed: int) -> tuple[Look, Look]:
    """The network after the warm-up, and at the end."""
    learner = Bilevel(sets(data, side, None, 1 / 12, TEST, seed), decay=False, batch=BATCH, seed=seed)
    steps = WARMUP + UPDATES * INNER
    looks = learn(penalised(learner, weight), None, MetaSchedule(WARMUP, INNER), steps, WARMUP)
    return looks[0], looks[-1]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Accuracies by the weight; the best is chosen on validation at the end, seed by seed."""
    data = DATA["iml-table4.7"]
    weights = (0.0, *PAPER)
    found, done = each(training, {(w, s): (source(data_dir, data), SIDES[data], w, s) for s in seeds for w in weights})
    at = {key: [Look(*look) for look in looks] for key, looks in found.items()}
    best = [max(weights, key=lambda w: at[w, s][1].val) for s in done]
    rows = {NONE if w == 0 else f"{w:g}": [at[w, s] for s in done] for w in weights}
    rows[BEST] = [at[w, s] for w, s in zip(best, done, strict=True)]
    theirs = {NONE: BASELINE} | {f"{w:g}": values for w, values in PAPER.items()}
    start, end = f"{WARMUP:,} steps", f"{WARMUP + UPDATES * INNER:,} steps"
    cells = []
    for row, runs in rows.items():
        for (column, of), paper in zip(COLUMNS.items(), theirs.get(row, (None,) * 3), strict=True):
            cells.append(cell(row, f"{column}, {end}", paper, [getattr(look, of) for _, look in runs], 0))
        cells.append(cell(row, f"test, {start}", None, [look.test for look, _ in runs], 0))
    gains = [mine[1].test - plain[1].test for mine, plain in zip(rows[BEST], rows[NONE], strict=True)]
    cells.append(cell(f"{BEST} − {NONE}", f"test, {end}", None, gains, 0))
    for shown in cells:
        shown.agrees = None  # the thesis does not say for how long it trained
    used = "digits" if data_dir is None else f"{data} at {SIDES[data]}×{SIDES[data]}"
    chosen = ", ".join(NONE if w == 0 else f"{w:g}" for w in dict.fromkeys(best))
    remarks = [f"{used}, batches of {BATCH}; the L2 weight that validation chooses: {chosen}."]
    return Table(name, "Implicit meta-learning, table A.8", cells, remarks=remarks)
