"""The thesis' figures 5.1 to 5.3 at the size of a laptop: what weights a Confidence Network gives, and to which images.

fallow reproduce iml-figure5 --data-dir DIR --out DIR2      on DIR/cifar10_sub.npz
fallow reproduce iml-figure5 --out DIR2                     on the digits

The table holds mean and deviation of the weights after every epoch, of original and of weakly augmented images; the
page also the histogram, and of every class the images with the highest, the median and the lowest weight. These are of
the thesis' network, which is free (``form=plain``); "our form", bounded and held at a mean of 1, has rows beside it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fallow.report.pieces import heading
from fallow.report.svg import Drawing
from fallow.reproduce.curves import Curves
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell
from fallow.semi import StudyPlan, gather, outcome, runs
from fallow.semi.figures import histogram
from fallow.semi.look import LookedRow, picked
from fallow.semi.page import trust
from fallow.semi.training import CONFIDENCE

SEEDS = 1
METHOD, OURS = "confidence:form=plain,ratio=3", "confidence:ratio=3"  # the thesis' form, and ours
EPOCHS, STEPS = 16, 50
MODEL = "scnn:width=8,dense=64"
PAPER = {"highest": 4.08, "median": 2.80, "lowest": 2.43}  # figure 5.2, means over the ten classes
SERIES = {"original images": "weight", "weakly augmented": "weight_weak"}


@dataclass
class Pictures(Curves):
    """The curves of figure 5.1, and what figures 5.2 and 5.3 show."""

    weights: list[float] = field(default_factory=list)
    rows: list[LookedRow] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """The numbers; the images are on the page."""
        return {
            key: value for key, value in super().describe().items() if key not in ("weights", "rows")
        }  # fmt: skip

    def drawings(self) -> list[Drawing]:
        """The curves, and the histogram."""
        return [*super().drawings(), histogram(np.asarray(self.weights), np.array([]))]

    def more(self) -> list[Markup]:
        """The images."""
        return [heading(3, "Which images it trusts"), trust(self.rows)]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Pictures:
    """The weights over the training, over the seeds; images and histogram are the first seed's."""
    data, labels, val = ("digits", 40, 100) if data_dir is None else (str(data_dir / "cifar10_sub.npz"), 250, 500)
    plans = {
        (form, seed): StudyPlan(data, method, labels, val, model=MODEL, epochs=EPOCHS, steps=STEPS, seed=seed)
        for form, method in {"": METHOD, ", our form": OURS}.items()
        for seed in seeds
    }
    trainings = {
        of: runs(asked, [CONFIDENCE], f"-{'ours' if of[0] else 'plain'}-{asked.seed}")[CONFIDENCE]
        for of, asked in plans.items()
    }
    at, done = each.all(trainings)
    learned = {
        form: [outcome(CONFIDENCE, each.folder / "runs" / trainings[form, seed].name, at[form, seed]) for seed in done]
        for form in ("", ", our form")
    }
    cells, found = [], learned[""]
    for form, ones in learned.items():
        for row, key in SERIES.items():
            for epoch in range(EPOCHS):
                mean, spread = (
                    statistics.mean(one.history[epoch][f"{key}_{what}"] for one in ones) for what in ("mean", "std")
                )
                cells.append(Cell(row + form, str(epoch + 1), None, round(mean, 4), round(spread, 4), len(done), None))
    rows = picked(gather(plans["", done[0]]), found[0])
    ours = [statistics.mean(row.picks[i].weight for row in rows) for i in range(3)]
    remarks = [
        "Highest, median and lowest weight of a class, mean over the classes: "
        + ", ".join(f"{value:.2f} (thesis {paper})" for value, paper in zip(ours, PAPER.values(), strict=True)),
        f"{data.rpartition('/')[2]}, {labels} labels, {MODEL}, {EPOCHS * STEPS} steps, {METHOD}; our form is {OURS}.",
    ]
    assert found[0].weights is not None
    return Pictures(
        name, "Thesis, figures 5.1 to 5.3", cells, unit="weight", remarks=remarks, along="epoch",
        weights=found[0].weights.tolist(), rows=rows,
    )  # fmt: skip
