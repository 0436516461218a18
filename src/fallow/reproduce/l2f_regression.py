"""L2F beside MuMoMAML on few-shot regression (L2F's supplement, table D).

fallow reproduce l2f-regression

Sinusoids as the supplement has them (networks of 2 × 40), and MuMoMAML's own mixture of sinusoids, lines and tanh
with noise (3 × 100); 5 inner steps of α = 0.01, second order, Adam with 1e-3 and meta-batches of 4, for 10,000 of the
supplement's 50,000 iterations. The numbers of table D are not in its text: what it claims is that L2F's error is lower
than MuMoMAML's. "Constant γ" is L2F's control. All methods of a seed start from the same weights, train on the same
tasks and are judged by the same 600 curves of 100 points; intervals are Student's over the seeds. A curve on which the
inner loop diverges can decide the mean over the curves, so the error of the median curve stands beside it. A seed
whose error is not finite is counted in a remark, and is in no cell.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

from fallow.data.tasks import Tasks
from fallow.data.tasks.load import load_tasks
from fallow.evaluate.statistics import holm, paired
from fallow.reproduce.runs import Runs
from fallow.reproduce.stacked_tasks import CLIP, train
from fallow.reproduce.table import Cell, Table, cell

SEEDS = 8
ITERATIONS = 10_000
CURVES = 600
COMPILE = True
PLACES = {"sinusoid, 5": ("sinusoid", 5), "sinusoid, 10": ("sinusoid", 10), "mixture, 5": ("mixture", 5)}
METHODS = {
    "MAML": "maml",
    "L2F": "l2f",
    "constant γ": "l2f:gamma=constant",
    "MuMoMAML": "mumomaml",
    "MuMoMAML+L2F": "mumomaml+l2f",
}
MEAN, MEDIAN = "mean", "median"  # over the curves
AGAINST = {"L2F": ("MAML", "constant γ", "MuMoMAML"), "MuMoMAML": ("MAML",), "MuMoMAML+L2F": ("MuMoMAML",)}


def tasks_of(place: str) -> Tasks:
    """The curves of a column."""
    source, shots = PLACES[place]
    return load_tasks(source, shots=shots)


def errors(folder: Path, method: str, place: str, seeds: list[int]) -> tuple[dict[str, list[float]], int]:
    """Mean squared error after adaptation for every seed, of the mean and the median curve; and how many meta-gradients
    were not finite.
    """
    members = [(tasks_of(place), seed) for seed in seeds]
    learners, lost = train(members, method, iterations=ITERATIONS, compile=COMPILE)
    batch = members[0][0].draw("test", 0, CURVES)
    last = [learner.judge(batch).losses[-1] for learner in learners]
    return {MEAN: [float(each.mean()) for each in last], MEDIAN: [float(each.median()) for each in last]}, sum(lost)


def both_finite(ours: list[float], theirs: list[float]) -> tuple[list[float], list[float]]:
    """The seeds on which neither diverged, of both.

    >>> both_finite([1.0, math.nan, 3.0], [2.0, 2.0, 2.0])
    ([1.0, 3.0], [2.0, 2.0])
    """
    kept = [(a, b) for a, b in zip(ours, theirs, strict=True) if math.isfinite(a) and math.isfinite(b)]
    return [a for a, _ in kept], [b for _, b in kept]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: errors of all methods, and the paired differences that are claims."""
    found, _ = each(errors, {(row, place): (METHODS[row], place, list(seeds)) for place in PLACES for row in METHODS})
    cells: list[Cell] = []
    claims = []
    for place, over in product(PLACES, (MEAN, MEDIAN)):
        at = {row: found[row, place][0][over] for row in METHODS if (row, place) in found}
        for row, ours in at.items():
            cells.append(cell(row, f"{place}, {over}", None, [v for v in ours if math.isfinite(v)], 0.0))
            for other in AGAINST.get(row, ()):
                if other in at and (gap := paired(*both_finite(ours, at[other]))) is not None:
                    by = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
                    claims.append((f"{row} − {other}, {place} shots, {over} curve: {by}", gap.p))
    adjusted = holm([p for _, p in claims])
    tests = [{"claim": text, "p": p, "p_holm": q} for (text, p), q in zip(claims, adjusted, strict=True)]
    diverged = [
        f"{row}, {place}: {len(bad)} of {len(seeds)} seeds"
        for (row, place), (values, _) in found.items()
        if (bad := [v for v in values[MEAN] if not math.isfinite(v)])
    ]
    lost = [f"{row}, {place}: {count}" for (row, place), (_, count) in found.items() if count]
    remarks = [
        f"Mean squared error after 5 steps, of {CURVES} curves the mean and the median; {ITERATIONS:,} iterations of 4 "
        f"tasks, {len(seeds)} seeds; columns are tasks and shots. The mixture's answers have noise of "
        "variance 0.09, which no method can predict.",
        f"Meta-gradients are clipped at a norm of {CLIP:g}. So many were not finite and left out: "
        f"{', '.join(lost) or 'none'}.",
        f"Errors that are not finite, in no cell and no difference: {', '.join(diverged) or 'none'}.",
    ]
    return Table(name, "L2F, supplement, table D", cells, unit="mean squared error", remarks=remarks, tests=tests)
