"""Figures A, B, C and G of L2F's supplement, at the size of a laptop: the landscape, and conflicts between tasks.

fallow reproduce l2f-figures --out DIR      5-shot sinusoids

The supplement measures on 5-way 5-shot miniImageNet, and says: along L2F's inner loop, and where it learns the
initialisation, the landscape is smoother than MAML's from the middle of the training on (figures A to C), and gradients
conflict less within a task than between tasks (G). It prints no numbers. The definition of conflict is ours: see
``fallow.diagnose.conflict``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from joblib import Parallel, delayed

from fallow.data.tasks import Sinusoid
from fallow.diagnose.watch import Seen, Watch
from fallow.diagnose.watched import FIGURES, PANELS, draw
from fallow.report.svg import Drawing
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.meta import fewshot

SEEDS = 3
ITERATIONS, EVERY = 4000, 200
TASKS = 16
METHODS = {"MAML": "maml:execution=vmap", "L2F": "l2f+maml:execution=vmap"}


@dataclass
class Watched(Table):
    """The numbers at the end of training; its picture shows them along the way, for the first seed."""

    seen: dict[str, Sequence[Seen]] = field(default_factory=dict)

    def describe(self) -> dict[str, object]:
        along = {row: [one.describe() for one in looks] for row, looks in self.seen.items()}
        plain = {key: value for key, value in vars(self).items() if key not in ("seen", "cells")}
        return plain | {"cells": [vars(c) for c in self.cells], "seen": along}

    def drawings(self) -> list[Drawing]:
        """The four figures."""
        return draw("ABCG", self.seen)


def look(method: str, seed: int) -> list[Seen]:
    """What meta-training looks like, from its beginning to its end."""
    torch.set_num_threads(1)
    watch = Watch(tasks=TASKS)
    fewshot(
        None, Sinusoid(shots=5, test_tasks=10), method, iterations=ITERATIONS, every=EVERY, seed=seed, observer=watch
    )
    return watch.seen


def run(name: str, seeds: int, data_dir: Path | None = None) -> Watched:
    """The table: both methods after the last iteration, and between its looks the figures."""
    jobs = [(row, seed) for seed in range(seeds) for row in METHODS]
    found = Parallel(n_jobs=2)(delayed(look)(METHODS[row], seed) for row, seed in jobs)
    at = dict(zip(jobs, found, strict=True))
    cells: list[Cell] = []
    for row in METHODS:
        ends = [at[row, seed][-1] for seed in range(seeds)]
        for figure, (which, _) in FIGURES.items():
            for measure in PANELS:
                cells.append(
                    cell(row, f"{figure}: {measure}", None, [getattr(e, which).means()[measure] for e in ends], 0)
                )
        for which in ("between", "within"):
            cells.append(cell(row, f"G: {which}", None, [getattr(e.conflict, which).value for e in ends], 0))
    remarks = [
        f"5-shot sinusoids, after {ITERATIONS:,} iterations of 4 tasks, {seeds} seeds, {TASKS} tasks a look. "
        "A: fast adaptation in meta-training, B: in meta-validation, C: learning the initialisation, G: conflict."
    ]
    return Watched(
        name, "L2F, figures A to C, G", cells, unit="the measures' own units", remarks=remarks,
        seen={row: at[row, 0] for row in METHODS},
    )  # fmt: skip
