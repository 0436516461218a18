"""``tune``: learn the weight decay of every layer, and show what that is worth against no decay and against a grid."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fallow import experiment
from fallow.base import toml
from fallow.base.errors import RequestError, WorkError, unknown
from fallow.base.files import write, write_json
from fallow.base.numbers import LARGEST, MOST, SEEDS, require_whole
from fallow.core.record import RunFolder
from fallow.core.settings import Settings
from fallow.data import Data, load
from fallow.evaluate.metrics import Metric
from fallow.evaluate.score import key_of
from fallow.evaluate.statistics import Difference, paired
from fallow.experiment import Outcomes, Run, State
from fallow.problems import Labelled
from fallow.training.fit import fit
from fallow.training.prepare import prepare

GRID = (1e-5, 1e-1)  # the least and the largest decay of a grid
UPDATES = 75  # meta-updates in a training, where the steps between two are not given
START = 5e-4  # where learning begins
PER = ("layer", "weight")
PLAIN = ("batch_size", "lr", "momentum", "nesterov", "schedule", "augment", "evaluate_every")  # no recipe's, but fit's
NONE, LEARNING, LEARNED = "none", "learning", "learned"  # trainings; the others are those of the grid


class Arm(NamedTuple):
    """One way to spend the compute: its cost, its network's scores, seed by seed, and the decay it came to."""

    name: str
    passes: list[float]
    val_loss: list[float]
    test: list[float]  # the metric
    decay: list[str]


@dataclass
class Tuned:
    """What tuning found: the decay of every layer (the geometric mean over the seeds), and the arms it was tried in."""

    decay: dict[str, float]
    arms: list[Arm]
    against_grid: Difference | None  # the metric on test, learned minus the grid's; None with one seed
    unsettled: float  # norm of the training gradient at the last meta-update over the validation's; 0 is a minimum
    folder: Path
    file: Path  # settings for ``fallow train --settings``
    failed: dict[str, str]  # runs that are missing, and why
    metric: Metric

    @property
    def share(self) -> float:
        """The compute of learning, and of training with what was learned, against the whole grid's."""
        by = {arm.name: sum(arm.passes) for arm in self.arms}
        return by["learned"] / by["grid"]

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        against = None if self.against_grid is None else self.against_grid._asdict()
        return {
            "metric": self.metric.name,
            "decay": self.decay,
            "arms": [arm._asdict() for arm in self.arms],
            "share": round(self.share, 4),
            "against_grid": against,
            "unsettled": round(self.unsettled, 4),
            "out": str(self.folder),
            "file": str(self.file),
            "failed": self.failed,
        }


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
    as_: str | None = None,
    groups: str | None = None,
    target: str | None = None,
    drop: str | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    watch: Callable[[State], None] | None = None,
    told: Callable[[str], None] | None = None,
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

    Interrupted, the same call resumes it. A point of the grid that fails is left out, and so is a seed of which another
    training does. For ``engine``, ``address``, ``workers``, ``device`` and ``watch`` see :func:`fallow.experiment.run`;
    ``told`` hears what was understood of the data.
    """
    experiment.check(engine, address, workers)
    if per not in PER:
        raise unknown("value for per", per, PER)
    for name, value, least, most in (("grid", grid, 2, SEEDS), ("seeds", seeds, 1, SEEDS), ("inner", inner, 1, MOST)):
        if value is not None:
            require_whole(name, value, least, most)
    require_whole("seed", seed, 0, LARGEST - SEEDS)
    if not 0 < val < 1:
        raise RequestError(f"val is {val}: the decay is learned on validation, give a share between 0 and 1")
    if "weight_decay" in settings or "optimizer" in settings or "generations" in settings:
        raise RequestError("tune sets the weight decay of SGD in one generation: leave these settings out")
    plain = {name: getattr(Settings, name) for name in PLAIN}
    fixed = plain | {"epochs": 60, "label_smoothing": 0.0} | settings | {"generations": 1, "optimizer": "sgd"}
    chosen = Settings.of(**fixed)
    how: dict[str, Any] = {
        "train": train,
        "val": val,
        "as_": as_,
        "groups": groups,
        "target": target,
        "drop": drop or "",
    }
    loaded = load(data, seed=seed, **how)
    model = model or Labelled(loaded).default_model
    steps = chosen.epochs * math.ceil(loaded.describe()["sizes"]["train"] / chosen.batch_size)
    inner = inner or max(10, steps // UPDATES)  # each costs as much as about ten steps
    learner = f"implicit-decay:per={per},solver={solver},inner={inner},patience={steps}"
    if steps < 2 * inner:
        raise RequestError(
            f"a training of {steps} steps ends before the first meta-update: give more epochs, or a smaller inner"
        )
    with torch.random.fork_rng():
        ready = prepare(model, loaded, learner, device=device, **fixed)  # refuses what is wrong before a folder is made
    if told is not None:
        told(ready.problem.understood(ready.settings))
    asked = {"model": model} | how | fixed
    points = {f"decay-{decay:.1e}": decay for decay in spread(*GRID, grid)}
    draws = range(seed, seed + seeds)
    if loaded.origin is None or not isinstance(model, str):
        what = "data" if loaded.origin is None else "the model"
        raise RequestError(f"tune trains in processes of their own: give {what} by name or path, not as an object")
    where = loaded.origin["source"]  # a path is absolute there: workers may stand elsewhere
    trials = {(name, s): trial for s in draws for name, trial in _trials(s, points, learner, per, asked, where).items()}
    found = experiment.run(
        experiment.grid(trials.values()), Path(out), engine=engine, address=address, workers=workers, device=device,
        identity={"seed": seed, "method": learner} | asked | {f"data's {k}": v for k, v in loaded.describe().items()},
        progress=lambda trial, at: experiment.epochs_done(at, chosen.epochs), watch=watch, what="tuning",
    )  # fmt: skip
    tuned = _gather(found, trials, Path(out), list(points), loaded)
    # a decay per weight fits the weights it was learned with: the file learns it again
    kept: dict[str, Any] = (
        {"method": learner, "weight_decay": START} if per == "weight" else {"weight_decay": tuned.decay}
    )
    flags = {key.rstrip("_"): value for key, value in asked.items()}  # as the command line spells them
    write(tuned.file, toml.text(flags | kept).encode())
    write_json(Path(out) / "tuned.json", tuned.describe())
    return tuned


def _trials(
    seed: int, points: Mapping[str, float], learner: str, per: str, asked: dict[str, Any], source: str
) -> dict[str, Run]:
    """The trainings of one seed, by name."""

    def trial(name: str, method: str, decay: float | str) -> Run:
        arguments = {"seed": seed, "method": method, "decay": decay, "settings": asked}
        after = (decay,) if isinstance(decay, str) else ()
        return Run(
            f"{name}-seed{seed}", f"{__name__}:train_once", arguments, cost=2.0 if method == learner else 1.0,
            after=after, paths={"data": source},
        )  # fmt: skip

    found = {LEARNING: trial(LEARNING, learner, START)}
    if per == "layer":
        found[LEARNED] = trial(LEARNED, "normal", found[LEARNING].name)
    return found | {name: trial(name, "normal", decay) for name, decay in {NONE: 0.0, **points}.items()}


def train_once(
    folder: Path, seed: int, method: str, decay: float | str, settings: dict[str, Any], data: str
) -> dict[str, Any]:  # fmt: skip
    """One training, or what is left of it; a decay that is the name of a run is what that run learned."""
    options = settings | {"weight_decay": learned(folder.parent / decay) if isinstance(decay, str) else decay}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an early meta-update: ``unsettled`` tells of the last
        result = fit(
            options.pop("model"), data, method, seed=seed, out=folder, resume=(folder / "run.json").exists(),
            test_at_end=True, device=experiment.device(), observer=experiment.heed, **options,
        )  # fmt: skip
    return result.describe()


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


def _gather(found: Outcomes, trials: Mapping[tuple[str, int], Run], folder: Path, grid: list[str], data: Data) -> Tuned:
    """The arms, of the seeds whose trainings are all there but for points of the grid."""
    failed = {name: outcome.reason for name, outcome in found.items() if outcome.reason is not None}
    values = {at: found[trial.name].value for at, trial in trials.items() if trial.name not in failed}
    points = {s: [name for name in grid if (name, s) in values] for _, s in trials}
    seeds = [s for s in points if points[s] and all(at in values for at in trials if at[1] == s and at[0] not in grid)]
    if not seeds:
        name, reason = next(iter(failed.items()))
        raise WorkError(f"{len(failed)} of {len(trials)} trainings failed, too many to compare, {name}: {reason}")

    metric = Labelled(data).metric
    assert metric is not None
    grain = 1 / data.describe()["sizes"]["test"] if metric.name == "accuracy" else 0.0

    def arm(name: str, spent: Mapping[int, list[str]], choices: Mapping[int, list[str]]) -> Arm:
        """For every seed: the trainings that were paid for, and those of which validation chooses one."""
        best = [min(choices[s], key=lambda one: values[one, s]["last"]["val_loss"]) for s in seeds]
        lasts = [values[one, s]["last"] for one, s in zip(best, seeds, strict=True)]
        return Arm(
            name,
            [round(sum(values[one, s]["passes"] for one in spent[s]), 1) for s in seeds],
            [last["val_loss"] for last in lasts],
            [last[key_of("test", metric.name)] for last in lasts],
            best,
        )

    learning = [name for name in (LEARNING, LEARNED) if (name, seeds[0]) in trials]
    mine = arm("learned", dict.fromkeys(seeds, learning), dict.fromkeys(seeds, learning[-1:]))
    afforded = {
        s: evenly(points[s], max(1, int(passes / values[NONE, s]["passes"])))
        for s, passes in zip(seeds, mine.passes, strict=True)
    }
    plain = {s: [NONE] for s in seeds}
    arms = [arm("none", plain, plain), arm("grid", points, points), arm("equal", afforded, afforded), mine]
    places = [folder / "runs" / trials[LEARNING, s].name for s in seeds]
    decays = [learned(place) for place in places]
    last = [_updates(place)[-1]["meta"] for place in places]
    return Tuned(
        decay={layer: float(f"{mean([one[layer] for one in decays]):.3g}") for layer in decays[0]},
        arms=arms,
        against_grid=paired(mine.test, arms[1].test, overlap=data.overlap, grain=grain),
        unsettled=max(meta["gradient_norm"] / meta["val_gradient_norm"] for meta in last),
        folder=folder,
        file=folder / "tuned.toml",
        failed=failed,
        metric=metric,
    )


def learned(run: Path) -> dict[str, float]:
    """The decay of every layer, averaged over the second half of a training: single meta-updates are noisy."""
    found = [row["decay"] for row in _updates(run)]
    return {layer: mean([row[layer] for row in found[len(found) // 2 :]]) for layer in found[-1]}


def _updates(run: Path) -> list[dict[str, Any]]:
    """The epochs with a meta-update."""
    return [row for row in RunFolder(run).history() if "decay" in row]


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))
