"""Figures A, B, C and G of L2F's supplement, at the size of a laptop: the landscape, and conflicts between tasks.

fallow reproduce l2f-figures --out DIR      5-shot sinusoids

The supplement measures on 5-way 5-shot miniImageNet, and says: along L2F's inner loop, and where it learns the
initialisation, the landscape is smoother than MAML's from the middle of the training on (figures A to C), and gradients
conflict less within a task than between tasks (G). It prints no numbers. The definition of conflict is ours: see
``fallow.diagnose.conflict``. The measures of A to C depend on the scale of the weights, which γ < 1 makes smaller
whatever the task. "L2F, mean γ" is the control of equal scale: the very networks that L2F has learned, looked at with
the mean γ of the tasks for all of them. "Constant γ" learns such a γ itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fallow.core.context import Context
from fallow.data.tasks import Sinusoid
from fallow.diagnose.watch import Onlooker
from fallow.diagnose.watched import FIGURES, PANELS, Looks, draw
from fallow.experiment import heed
from fallow.report.svg import Drawing
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.meta import fewshot

SEEDS = 3
ITERATIONS, EVERY = 4000, 200
TASKS = 16
METHODS = {
    "MAML": "maml:execution=vmap",
    "L2F": "l2f+maml:execution=vmap",
    "constant γ": "l2f:gamma=constant+maml:execution=vmap",
}
ALIKE = "L2F, mean γ"
ROWS = ("MAML", "L2F", ALIKE, "constant γ")


@dataclass
class Watched(Table):
    """The numbers at the end of training; its picture shows them along the way, for the first seed."""

    seen: dict[str, Looks] = field(default_factory=dict)

    def drawings(self) -> list[Drawing]:
        """The four figures."""
        return draw("ABCG", self.seen)


def look(folder: Path, row: str, seed: int) -> dict[str, Looks]:
    """What meta-training looks like, from its beginning to its end; of L2F with its control."""
    watches = {row: Onlooker(tasks=TASKS)} | ({ALIKE: Onlooker(tasks=TASKS, alike=True)} if row == "L2F" else {})

    def observer(ctx: Context) -> None:
        heed()
        for watch in watches.values():
            watch(ctx)

    tasks = Sinusoid(shots=5, test_tasks=10)
    fewshot(None, tasks, METHODS[row], iterations=ITERATIONS, every=EVERY, seed=seed, observer=observer)
    return {name: [seen.describe() for seen in watch.seen] for name, watch in watches.items()}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Watched:
    """The table: all rows after the last iteration, and between its looks the figures."""
    found, done = each(look, {(row, seed): (row, seed) for seed in seeds for row in METHODS})
    at = {(row, seed): looks for (_, seed), rows in found.items() for row, looks in rows.items()}
    cells: list[Cell] = []
    for row in ROWS:
        ends = [at[row, seed][-1] for seed in done]
        for figure, (which, _) in FIGURES.items():
            for measure in PANELS:
                cells.append(cell(row, f"{figure}: {measure}", None, [end[which][measure] for end in ends], 0))
        for which in ("between", "within"):
            cells.append(cell(row, f"G: {which}", None, [end["conflict"][which]["value"] for end in ends], 0))
    remarks = [
        f"5-shot sinusoids, after {ITERATIONS:,} iterations of 4 tasks, {len(done)} seeds, {TASKS} tasks a look. "
        "A: fast adaptation in meta-training, B: in meta-validation, C: learning the initialisation, G: conflict."
    ]
    return Watched(
        name, "L2F, figures A to C, G", cells, unit="the measures' own units", remarks=remarks,
        seen={row: at[row, done[0]] for row in ROWS},
    )  # fmt: skip
