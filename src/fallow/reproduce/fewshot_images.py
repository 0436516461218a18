"""Few-shot classification at the size of a laptop: MAML, L2F and its controls, and what needs no inner loop.

fallow reproduce omniglot-5way --data-dir DIR      on DIR/omniglot28.npz, 5-way 1-shot
fallow reproduce l2f-cifarfs --data-dir DIR        on DIR/cifar100_sub.npz or cifar100.npz (L2F's supplement, table B)
fallow reproduce l2f-fc100 --data-dir DIR          on the same, by superclasses (table A)

Four convolutions, as the supplement has them but narrower, few of its 50,000 iterations, and the inner loop and the
meta-rate of fallow's recipe, with which MAML learns much faster than with the supplement's. The classes are those of
DIR/cifar100_fewshot_splits.json. Absolute accuracies cannot agree with the supplement's, so what is held against it is
the difference of L2F to MAML, paired by seed: it agrees with the same sign and two standard errors from 0. "Constant γ"
is L2F's control: a γ for each layer that is learned but the same for all tasks. All methods of a seed start from the
same weights, and all are judged by the same episodes of classes that they have never seen, in which all classes come up
equally often.

Every accuracy is given twice where it differs: with the norms' statistics of all queries of an episode together
(transductive, as most papers have it), and of each query on its own, by the statistics of the support set (inductive).
Prototypical networks and the baseline are inductive. They have no inner loop: an iteration costs them less, and they
get more of them; prototypical networks train on harder tasks on Omniglot (20 ways).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from fallow.base.errors import RequestError
from fallow.data.tasks import Tasks
from fallow.data.tasks.load import load_tasks, named_files
from fallow.evaluate.statistics import paired
from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.meta import fewshot

SEEDS = 3
MODEL = "conv4:width=32"
EPISODES = 600
VALIDATION = 100
LOOKS = 5  # at validation, whose best weights are kept
CONTROL = "L2F, constant γ"
TOGETHER, ALONE = "transductive", "inductive"
HALF = "± over episodes"  # the row that says how far 600 episodes can tell
SAYS = (
    f"Differences: their deviation is over seeds, on the same episodes; “{HALF}” is half of Student's 95 % interval "
    "for the networks of one seed, on new episodes."
)


class Way(NamedTuple):
    """How one method is trained."""

    method: str
    iterations: int
    meta_batch: int = 4
    train_ways: int | None = None

    def __str__(self) -> str:
        tasks = f"{self.meta_batch} task{'s' * (self.meta_batch > 1)}"
        return f"({self.method}, {self.iterations:,} iterations of {tasks})"


@dataclass(frozen=True)
class Recipe:
    """A table: its tasks, how each method learns them, and what the paper says L2F gains on MAML, in points."""

    paper: str
    ways: dict[str, Way]
    shots: tuple[int, ...] = (1,)
    gains: dict[int, float] = field(default_factory=dict)  # by shots
    remark: str = ""


def adapting(iterations: int) -> dict[str, Way]:
    """MAML, L2F and its control, alike; loop, so that nothing is measured and all runs are the same bits."""
    return {
        "MAML": Way("maml:execution=loop", iterations),
        "L2F": Way("l2f+maml:execution=loop", iterations),
        CONTROL: Way("l2f:gamma=constant+maml:execution=loop", iterations),
    }


PLANS = {
    "omniglot-5way": (
        "omniglot",
        Recipe(
            "Omniglot, 5-way 1-shot",
            adapting(1500)
            | {
                "MAML, norms not adapted": Way("maml:adapt_norms=False,execution=loop", 1500),
                "Prototypical network": Way("protonet", 2000, meta_batch=1, train_ways=20),
                "Baseline": Way("baseline", 1500),
            },
        ),
    ),
    "l2f-cifarfs": (
        "cifar-fs",
        Recipe(
            "L2F, supplement, table B",
            adapting(1500) | {"Prototypical network": Way("protonet", 2000), "Baseline": Way("baseline", 1500)},
            shots=(1, 5),
            gains={1: 3.37, 5: 3.78},
            remark="The supplement has 53.91 and 70.16 % for MAML, 57.28 and 73.94 % for L2F: 64 filters, all images.",
        ),
    ),
    "l2f-fc100": (
        "fc100",
        Recipe(
            "L2F, supplement, table A",
            adapting(1500) | {"Prototypical network": Way("protonet", 2000), "Baseline": Way("baseline", 1500)},
            shots=(1, 5),
            gains={1: 3.48, 5: 1.72},
            remark="The supplement has 35.98 and 51.40 % for MAML, 39.46 and 53.12 % for L2F: 64 filters, all images.",
        ),
    ),
}


def sources(name: str, data_dir: Path | None) -> tuple[str, str | None]:
    """The images of a table, and the file that says which classes are held out, if there is one."""
    known = PLANS[name][0]
    if data_dir is None:
        raise RequestError(
            f"{name} needs images that are not installed: give --data-dir, a folder with those of {known}"
        )
    images, splits = named_files(known, data_dir)
    return str(images), None if splits is None else splits.removesuffix(f":{known}")


def tasks_of(known: str, images: str, splits: str | None, shots: int) -> Tasks:
    """The episodes of a table, whose tasks are known by name."""
    return load_tasks(
        images, ways=5, shots=shots, queries=5, splits=splits and f"{splits}:{known}", rotations=known == "omniglot",
        val_tasks=VALIDATION, test_tasks=EPISODES,
    )  # fmt: skip


def accuracies(
    folder: Path, known: str, way: list[Any], images: str, splits: str | None, shots: int, seed: int
) -> dict[str, list[float]]:
    """Accuracy in % on every held-out episode, in both ways of judging, or in one where they are the same."""
    method, iterations, meta_batch, train_ways = way
    tasks = tasks_of(known, images, splits, shots).changed(train_ways=train_ways)
    result = fewshot(
        MODEL, tasks, method, iterations=iterations, meta_batch=meta_batch, every=max(1, iterations // LOOKS),
        seed=seed, observer=heed,
    )  # fmt: skip
    assert result.test is not None
    assert result.test.accuracies is not None
    last = (100 * result.test.accuracies[-1]).tolist()
    return {ALONE: last} if result.test.alone is None else {TOGETHER: last, ALONE: (100 * result.test.alone).tolist()}


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """The table: every method's accuracy, and what L2F is ahead, over the seeds and over the episodes."""
    known, plan = PLANS[name]
    images, splits = sources(name, data_dir)
    jobs = {
        (row, shots, seed): (known, list(way), images, splits, shots, seed)
        for seed in seeds
        for shots in plan.shots
        for row, way in plan.ways.items()
    }
    at, done = each(accuracies, jobs)
    cells: list[Cell] = []
    for shots in plan.shots:
        at_hand = {
            (row, kind): [scores[kind] for seed in done if kind in (scores := at[row, shots, seed])]
            for row in plan.ways
            for kind in (TOGETHER, ALONE)
        }
        for (row, kind), runs in at_hand.items():
            if runs:
                cells.append(cell(row, f"{shots}-shot, {kind}", None, [mean(scores) for scores in runs], 0.0))
        for other in ("MAML", CONTROL):
            paper = plan.gains.get(shots) if other == "MAML" else None
            ours, theirs = at_hand["L2F", TOGETHER], at_hand[other, TOGETHER]
            cells += ahead("L2F", other, f"{shots}-shot, {TOGETHER}", ours, theirs, paper)
    remarks = [
        f"{MODEL}, 5-way with 5 queries a class, {EPISODES} held-out episodes, the same for all methods and seeds. "
        + SAYS,
        "Trained by: " + "; ".join(f"{row} {way}" for row, way in plan.ways.items()) + ".",
    ]
    return Table(name, plan.paper, cells, remarks=[*remarks, *filter(None, [plan.remark])])


def ahead(
    row: str, other: str, column: str, ours: list[list[float]], theirs: list[list[float]], paper: float | None = None
) -> list[Cell]:
    """What one row is ahead of another, by seed and episode, and how far the episodes of a seed can tell."""
    pairs = list(zip(ours, theirs, strict=True))
    found = [direction(f"{row} − {other}", column, paper, [mean(a) - mean(b) for a, b in pairs])]
    halves = [half for a, b in pairs if (half := half_width(a, b)) is not None]
    if len(halves) == len(pairs):
        found.append(cell(f"{row} − {other}: {HALF}", column, None, halves, 0.0))
    return found


def half_width(ours: list[float], theirs: list[float]) -> float | None:
    """Half of the 95 % interval over episodes of what one network is ahead of the other, on the same episodes."""
    gap = paired(ours, theirs)
    return None if gap is None else (gap.high - gap.low) / 2
