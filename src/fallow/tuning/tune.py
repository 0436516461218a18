"""``tune``: learn the weight decay of every layer, and show what that is worth against no decay and against a grid."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fallow.base import toml
from fallow.base.errors import RequestError, unknown
from fallow.base.files import write, write_json
from fallow.core.settings import Settings
from fallow.data import load
from fallow.evaluate.statistics import Difference, paired

GRID = (1e-5, 1e-1)  # the least and the largest decay of a grid
UPDATES = 75  # meta-updates in a training, where the steps between two are not given
START = 5e-4  # where learning begins
PER = ("layer", "weight")


class Arm(NamedTuple):
    """One way to spend the compute: its cost, its network's scores, seed by seed, and the decay it came to."""

    name: str
    passes: list[float]
    val_loss: list[float]
    test_accuracy: list[float]
    decay: list[str]


@dataclass
class Tuned:
    """What tuning found: the decay of every layer (the geometric mean over the seeds), and the arms it was tried in."""

    decay: dict[str, float]
    arms: list[Arm]
    against_grid: Difference | None  # test accuracy of the learned decay above the grid's; None with one seed
    unsettled: float  # norm of the training gradient at the last meta-update over the validation's; 0 is a minimum
    folder: Path
    file: Path  # settings for ``fallow train --settings``

    @property
    def share(self) -> float:
        """The compute of learning, and of training with what was learned, against the whole grid's."""
        by = {arm.name: sum(arm.passes) for arm in self.arms}
        return by["learned"] / by["grid"]

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        against = None if self.against_grid is None else self.against_grid._asdict()
        return {
            "decay": self.decay,
            "arms": [arm._asdict() for arm in self.arms],
            "share": round(self.share, 4),
            "against_grid": against,
            "unsettled": round(self.unsettled, 4),
            "out": str(self.folder),
            "file": str(self.file),
        }


@dataclass(frozen=True)
class Trial:
    """One training: its folder's name, its method and its decay; ``then`` is trained with what it learned."""

    name: str
    seed: int
    method: str
    decay: float
    then: str | None = None


def tune(
    data: str,
    model: str | None = None,
    *,
    out: str | Path,
    per: str = "layer",
    solver: str = "identity",
    inner: int | None = None,
    grid: int = 10,
    seeds: int = 1,
    seed: int = 0,
    train: int | None = None,
    val: float = 0.2,
    workers: int | None = None,
    device: str = "auto",
    told: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Tuned:
    """Learn the decay on validation while a network trains, and compare at a stated compute.

    The arms, on the same split and seeds: ``none`` (no decay); ``grid`` (``grid`` single decays from 1e-5 to 0.1,
    the best on validation loss); ``equal`` (as many of those points, evenly spread, as learning cost); ``learned``
    (a training of :class:`ImplicitDecay`, then a fresh one with the decays that it found; per weight, the first is
    all, for such a decay fits no other network). What is chosen is chosen on validation; the test accuracies are
    looked at once, of the chosen.

    Labels are not smoothed unless asked: with smoothed labels the network is less sure than the validation loss would
    have it, and the least decay looks best.

    Interrupted, the same call goes on. ``told`` hears of the trainings done and of all.
    """
    if per not in PER:
        raise unknown("value for per", per, PER)
    for name, value, least in (("grid", grid, 2), ("seeds", seeds, 1), ("workers", workers, 1), ("inner", inner, 1)):
        if value is not None and value < least:
            raise RequestError(f"{name} is {value}: {least} or more are needed")
    if not 0 < val < 1:
        raise RequestError(f"val is {val}: the decay is learned on validation, so give a share above 0")
    if "weight_decay" in settings or "optimizer" in settings or "generations" in settings:
        raise RequestError("tune sets the weight decay of SGD in one generation: leave these settings out")
    fixed = {"epochs": 60, "label_smoothing": 0.0} | settings | {"generations": 1, "optimizer": "sgd"}
    chosen = Settings.of(**fixed)
    folder = Path(out)
    loaded = load(data, train=train, val=val, seed=seed)
    sizes = loaded.describe()["sizes"]
    steps = chosen.epochs * math.ceil(sizes["train"] / chosen.batch_size)
    inner = inner or max(10, steps // UPDATES)  # each costs as much as about ten steps
    learner = f"implicit-decay:per={per},solver={solver},inner={inner},patience={steps}"
    if steps < 2 * inner:
        raise RequestError(
            f"a training of {steps} steps ends before the first meta-update: give more epochs, or a smaller inner"
        )
    points = spread(*GRID, grid)
    # the longest first, so that no worker ends with it alone
    draws = range(seed, seed + seeds)
    trials = [Trial("learning", s, learner, START, None if per == "weight" else "learned") for s in draws]
    trials += [Trial("none", s, "normal", 0.0) for s in draws]
    trials += [Trial(_point(p), s, "normal", p) for s in draws for p in points]
    common = {"model": model, "data": data, "train": train, "val": val, "device": device, **fixed}
    _all(trials, folder, common, workers, told)
    tuned = _gather(folder, points, draws, per, overlap=loaded.overlap, grain=1 / sizes["test"])
    if per == "weight":  # a decay per weight fits the weights it was learned with: the file learns it again
        kept: dict[str, Any] = {"method": learner}
    else:
        kept = {"weight_decay": tuned.decay}
    write(tuned.file, toml.text({"model": model, "train": train, "val": val} | fixed | kept).encode())
    write_json(folder / "tuned.json", tuned.describe())
    return tuned


def spread(least: float, largest: float, points: int) -> list[float]:
    """Points in equal ratios.

    >>> [round(p, 4) for p in spread(0.001, 0.1, 3)]
    [0.001, 0.01, 0.1]
    """
    ratio = math.log(largest / least) / (points - 1)
    return [least * math.exp(ratio * i) for i in range(points)]


def evenly(many: Sequence[Any], few: int) -> list[Any]:
    """So many of them, spread evenly, the middle one for one.

    >>> evenly([1, 2, 3, 4, 5], 2), evenly([1, 2, 3], 1), evenly([1, 2], 5)
    ([2, 4], [2], [1, 2])
    """
    few = min(few, len(many))
    return [many[int((i + 0.5) * len(many) / few)] for i in range(few)]


def _gather(
    folder: Path, points: Sequence[float], draws: Sequence[int], per: str, *, overlap: float, grain: float
) -> Tuned:
    """The arms from the runs; ``overlap`` and ``grain`` of the test examples as in :func:`paired`."""

    def arm(name: str, spent: Sequence[Sequence[str]], choices: Sequence[Sequence[str]]) -> Arm:
        """For every seed: the runs that were paid for, and those of which validation chooses one."""
        results = [{run: _result(folder, seed, run) for run in runs} for seed, runs in zip(draws, spent, strict=True)]
        best = [
            min(runs, key=lambda run: of[run]["last"]["val_loss"]) for of, runs in zip(results, choices, strict=True)
        ]
        lasts = [of[run]["last"] for of, run in zip(results, best, strict=True)]
        return Arm(
            name,
            [round(sum(result["passes"] for result in of.values()), 1) for of in results],
            [last["val_loss"] for last in lasts],
            [last["test_accuracy"] for last in lasts],
            best,
        )

    grid = [_point(p) for p in points]
    final = "learned" if per == "layer" else "learning"
    learning = list(dict.fromkeys(("learning", final)))
    mine = arm("learned", [learning] * len(draws), [[final]] * len(draws))
    single = _result(folder, draws[0], grid[0])["passes"]
    afforded = [evenly(grid, max(1, int(passes / single))) for passes in mine.passes]
    arms = [
        arm("none", [["none"]] * len(draws), [["none"]] * len(draws)),
        arm("grid", [grid] * len(draws), [grid] * len(draws)),
        arm("equal", afforded, afforded),
        mine,
    ]
    runs = [_place(folder, seed, "learning") for seed in draws]
    found = [learned(run) for run in runs]
    last = [_updates(run)[-1]["meta"] for run in runs]
    return Tuned(
        decay={layer: float(f"{mean([one[layer] for one in found]):.3g}") for layer in found[0]},
        arms=arms,
        against_grid=paired(mine.test_accuracy, arms[1].test_accuracy, overlap=overlap, grain=grain),
        unsettled=max(meta["gradient_norm"] / meta["val_gradient_norm"] for meta in last),
        folder=folder,
        file=folder / "tuned.toml",
    )


def _point(decay: float) -> str:
    """The name of a grid point's run."""
    return f"decay-{decay:.1e}"


def _place(folder: Path, seed: int, run: str) -> Path:
    return folder / "runs" / f"seed{seed}" / run


def _result(folder: Path, seed: int, run: str) -> dict[str, Any]:
    return json.loads((_place(folder, seed, run) / "result.json").read_text("utf-8"))


def _all(trials: list[Trial], folder: Path, common: dict[str, Any], workers: int | None, told: Any) -> None:
    """Every training, side by side where there are cores."""
    import joblib

    jobs = min(workers or joblib.cpu_count(), len(trials))
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        for done, _ in enumerate(parallel(joblib.delayed(_try)(trial, folder, common) for trial in trials), 1):
            if told is not None:
                told(done, len(trials))


def _try(trial: Trial, folder: Path, common: dict[str, Any]) -> None:
    """One training, or what is left of it; and the one with what it learned."""
    place = _place(folder, trial.seed, trial.name)
    _fit(place, trial.method, trial.decay, trial.seed, common)
    if trial.then is not None:
        _fit(_place(folder, trial.seed, trial.then), "normal", learned(place), trial.seed, common)


def _fit(place: Path, method: str, decay: float | dict[str, float], seed: int, common: dict[str, Any]) -> None:
    from fallow.training.fit import fit

    options = {key: value for key, value in common.items() if key not in ("model", "data")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an early meta-update: ``unsettled`` tells of the last
        fit(
            common["model"], common["data"], method, weight_decay=decay, seed=seed, out=place,
            resume=(place / "run.json").exists(), test_at_end=True, **options,
        )  # fmt: skip


def learned(run: Path) -> dict[str, float]:
    """The decay of every layer, averaged over the second half of a training: single meta-updates are noisy."""
    found = [row["decay"] for row in _updates(run)]
    return {layer: mean([row[layer] for row in found[len(found) // 2 :]]) for layer in found[-1]}


def _updates(run: Path) -> list[dict[str, Any]]:
    """The epochs with a meta-update."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [row for row in rows if "decay" in row]


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))
