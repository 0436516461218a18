"""Few-shot classification at the size of a laptop: MAML, L2F and prototypical networks on the same episodes.

fallow reproduce omniglot-5way --data-dir DIR      on DIR/omniglot28.npz, 5-way 1-shot
fallow reproduce l2f-cifarfs --data-dir DIR        on DIR/cifar100_sub.npz, 5-way 1-shot (L2F's supplement, table B)

Four convolutions, as the supplement has them but narrower, and few of its 50,000 iterations. CIFAR-FS's classes are
those of DIR/cifar100_fewshot_splits.json if it is there, else drawn 64 / 16 / 20. Absolute accuracies cannot agree with
the supplement's, so what is held against it is the difference of L2F to MAML, paired by seed: it agrees with the same
sign and two standard errors from 0. All methods of a seed start from the same weights, and all are judged by the same
600 episodes of classes that they have never seen; intervals are Student's over the episodes.

Prototypical networks train on harder tasks (20 ways on Omniglot) and have no inner loop: an iteration costs them
less, and they get more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fallow.base.errors import RequestError
from fallow.data.tasks import Tasks
from fallow.data.tasks.load import load_tasks
from fallow.evaluate.statistics import interval, paired
from fallow.experiment import heed
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Cell, Table, cell
from fallow.training.meta import fewshot

SEEDS = 1  # l2f-cifarfs has three
EPISODES = 600
VALIDATION = 100
LOOKS = 5  # at validation, whose best weights are kept
SPLITS = "cifar100_fewshot_splits.json"


@dataclass(frozen=True)
class Way:
    """How one method is trained."""

    method: str
    iterations: int
    meta_batch: int = 4
    train_ways: int | None = None


@dataclass(frozen=True)
class Recipe:
    """A table: its data, its model, and what the paper says L2F gains on MAML, in points."""

    file: str
    paper: str
    model: str
    ways: dict[str, Way]
    gain: float | None = None
    rotations: bool = False
    remark: str = ""


PLANS = {
    "omniglot-5way": Recipe(
        "omniglot28.npz",
        "Omniglot, 5-way 1-shot",
        "conv4:width=32",
        {  # α of the inner loop: ten times the supplement's, which is for harder images; loop, so as not to be measured
            "MAML": Way("maml:rate=0.1,execution=loop", 600),
            "L2F": Way("l2f+maml:rate=0.1,execution=loop", 600),
            "L2F, constant γ": Way("l2f:gamma=constant+maml:rate=0.1,execution=loop", 600),
            "Prototypical network": Way("protonet", 2000, meta_batch=1, train_ways=20),
        },
        rotations=True,
    ),
    "l2f-cifarfs": Recipe(
        "cifar100_sub.npz",
        "L2F, supplement, table B",
        "conv4:width=16",
        {
            "MAML": Way("maml:execution=loop", 500),
            "L2F": Way("l2f+maml:execution=loop", 500),
            "L2F, constant γ": Way("l2f:gamma=constant+maml:execution=loop", 500),
            "Prototypical network": Way("protonet", 1000, meta_batch=2),
        },
        gain=3.37,
        remark="The supplement has 53.91 % for MAML and 57.28 % for L2F, with 64 filters and all images.",
    ),
}


def sources(name: str, data_dir: Path | None) -> tuple[str, str | None]:
    """The images of a table, and the file that says which classes are held out, if there is one."""
    plan = PLANS[name]
    if data_dir is None or not (data_dir / plan.file).exists():
        raise RequestError(f"{name} needs images that are not installed: give --data-dir, a folder with {plan.file}")
    splits = plan.gain is not None and (data_dir / SPLITS).exists()
    return str(data_dir / plan.file), str(data_dir / SPLITS) if splits else None


def tasks_of(name: str, images: str, splits: str | None) -> Tasks:
    """The episodes of a table."""
    return load_tasks(
        images, ways=5, shots=1, queries=5, splits=splits and f"{splits}:cifar-fs", rotations=PLANS[name].rotations,
        val_tasks=VALIDATION, test_tasks=EPISODES,
    )  # fmt: skip


def accuracies(folder: Path, name: str, row: str, images: str, splits: str | None, seed: int) -> list[float]:
    """Accuracy in % on every held-out episode."""
    plan = PLANS[name]
    way = plan.ways[row]
    tasks = tasks_of(name, images, splits).changed(train_ways=way.train_ways)
    result = fewshot(
        plan.model, tasks, way.method, iterations=way.iterations, meta_batch=way.meta_batch,
        every=max(1, way.iterations // LOOKS), seed=seed, observer=heed,
    )  # fmt: skip
    assert result.test is not None
    assert result.test.accuracies is not None
    return (100 * result.test.accuracies[-1]).tolist()


def run(name: str, seeds: int, data_dir: Path | None, each: Runs) -> Table:
    """The table: every method's accuracy, and its interval over the episodes."""
    plan = PLANS[name]
    images, splits = sources(name, data_dir)
    jobs = {(row, seed): (name, row, images, splits, seed) for seed in range(seeds) for row in plan.ways}
    at, done = each(accuracies, jobs)
    means = {row: [sum(at[row, s]) / len(at[row, s]) for s in done] for row in plan.ways}
    cells: list[Cell] = [cell(row, "accuracy", None, means[row], 0.0) for row in plan.ways]
    episodes = {row: [sum(scores) / len(done) for scores in zip(*(at[row, s] for s in done), strict=True)]
                for row in plan.ways}  # fmt: skip
    counted = f"{len(done)} seed{'s' * (len(done) > 1)}, {EPISODES} held-out episodes"
    remarks = [f"{plan.model}, 5-way 1-shot with 5 queries a class, {counted}."]
    for row, way in plan.ways.items():
        mean, low, high = interval(episodes[row])
        count = f"{way.iterations:,} iterations of {way.meta_batch} task{'s' * (way.meta_batch > 1)}"
        remarks.append(f"{row} ({way.method}, {count}): {mean:.2f} % [{low:.2f}, {high:.2f}]")
    for other in ("MAML", "L2F, constant γ"):
        if (gap := paired(episodes["L2F"], episodes[other])) is not None:
            found = f"{gap.mean:+.2f} points [{gap.low:+.2f}, {gap.high:+.2f}]"
            remarks.append(f"L2F − {other} on the same episodes: {found}")
    if plan.gain is not None and len(done) > 1:
        gains = [a - b for a, b in zip(means["L2F"], means["MAML"], strict=True)]
        cells.append(direction("L2F − MAML, by seed", "accuracy", plan.gain, gains))
    return Table(name, plan.paper, cells, remarks=[*remarks, *filter(None, [plan.remark])])
