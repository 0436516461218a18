"""A comparison as a race over seeds: what is frozen, and how far the race has come.

The race goes in rounds: every method that is open runs to its next look, then all are judged. So which runs there are
does not depend on which ended first, and a race that was killed comes to the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fallow.evaluate.allocation import Race, Scores, next_runs
from fallow.evaluate.metrics import CLASSES, Metric
from fallow.evaluate.race import LOOKS

Counts: TypeAlias = NDArray[np.int64]

BASELINE = "normal"  # ordinary training for the epochs of one generation
CONTROLS = ("long", "restart")  # the same compute as the methods, and nothing else
TASKS_CONTROL = "maml"  # of methods that learn from tasks
ACCURACY = CLASSES["accuracy"]
BY_CLASS: dict[str, Callable[[Counts, Counts], Counts]] = {  # in how many steps the part of a class or label moves,
    "balanced-accuracy": lambda held, others: held,  # by the numbers of examples that have it and have it not
    "macro-f1": lambda held, others: held,
    "auroc": lambda held, others: held * others,
    "macro-auroc": lambda held, others: held * others,
    "map": lambda held, others: held * (held + 1),
    "f1": lambda held, others: held,
}
HELD = 2  # seeds on which runners are tuned, where they are: none of them races
SAME = 0.005  # of a share: half a point makes no difference in practice


@dataclass(frozen=True)
class Runner:
    """What one run gave: an entry of the tables, done or failed."""

    data: str
    model: str
    method: str
    seed: int
    folder: str  # of the run, below the comparison's
    reason: str | None = None  # why it failed; None: it is done
    test: float | None = None  # the metric, on test
    val: float | None = None
    seconds: float = 0.0
    steps: int = 0
    passes: float = 0.0
    training: tuple[float | None, ...] = ()  # the metric on training examples, at the end of every generation


@dataclass(frozen=True)
class Rules:
    """What a comparison freezes before its first run, for all of its settings."""

    looks: tuple[int, ...] = LOOKS
    seeds: int = LOOKS[-1]  # the most that may be spent on a method
    first: int = 0  # the first seed
    same: float | None = None  # differences up to this do not matter, in the metric's unit; None: by the metric
    prove_worse: bool = False
    exploratory: tuple[str, ...] = ()

    def race(
        self, methods: Iterable[str], outcomes: Sequence[Runner], steps: int, overlap: float, metric: Metric
    ) -> Race:
        """The race of one setting, its scores in so many :func:`steps`; a control that failed up to the first look is
        none.
        """
        names, scores = list(methods), self.scores(outcomes, metric)
        enough = min(self.looks[0], self.seeds)
        lost = {name for name, runs in scores.items() if len(runs) >= enough and np.isnan([*runs.values()]).all()}
        asked = [name for name in names if not plain(name)]
        return Race(
            methods=tuple(name for name in asked if name not in self.exploratory),
            controls=tuple(name for name in names if plain(name) and name != BASELINE and name not in lost),
            looks=self.looks,
            seeds=self.seeds,
            same=(SAME if metric.share else 0.0) if self.same is None else self.same,
            overlap=overlap,
            grain=1 / steps if metric.name in (ACCURACY.name, *BY_CLASS) else 0.0,
            prove_worse=self.prove_worse,
            exploratory=tuple(name for name in asked if name in self.exploratory),
        )

    def scores(self, outcomes: Iterable[Runner], metric: Metric) -> dict[str, dict[int, float]]:
        """What each runner's runs are worth by seed, counted from the first; NaN: the run failed."""
        found: dict[str, dict[int, float]] = {}
        for o in outcomes:
            worth = metric.worth(o.test)
            found.setdefault(o.method, {})[o.seed - self.first] = worth if worth > float("-inf") else float("nan")
        return found


def steps(data: Any, metric: Metric) -> int:
    """In how many steps a score on test goes from 0 to 1: its examples, or the classes or labels times those of the one
    that moves in the fewest.
    """
    y = getattr(data.test, "y", None) if metric.name in BY_CLASS else None
    if y is None:
        return int(data.describe()["sizes"]["test"])
    y = np.asarray(y)
    counts = y.astype(np.int64).sum(0) if y.ndim > 1 else np.unique(y, return_counts=True)[1]
    held = counts[(counts > 0) & (counts < len(y))]
    return len(held) * int(BY_CLASS[metric.name](held, len(y) - held).min()) if len(held) else len(y)


def plain(method: str) -> bool:
    """Whether nothing is asked about a method: the baseline and the controls; for learners from tasks, MAML as it is.

    >>> plain("long"), plain("maml:rate=0.4"), plain("maml+l2f")
    (True, True, False)
    """
    return method in (BASELINE, *CONTROLS) or ("+" not in method and method.partition(":")[0] == TASKS_CONTROL)


def rounds(
    race: Race, scores: Scores, seconds: Mapping[str, float], baseline: str | None = BASELINE
) -> Iterator[list[tuple[str, int]]]:
    """The runs (runner, seed) of each round; the last may not have ended yet, and has the most urgent first.

    Without a method to judge, all seeds are one round; without a control to judge by, there is the first round only.
    """
    if not race.entered or not race.controls:
        seeds = min(race.looks[0], race.seeds) if race.entered else race.seeds
        beside = [] if baseline is None else [baseline]
        yield [(runner, seed) for seed in range(seeds) for runner in (*race.controls, *race.entered, *beside)]
        return
    seen: dict[str, dict[int, float]] = {}
    while wanted := _round(race, _frozen(seen), baseline):
        if any(seed not in scores.get(runner, {}) for runner, seed in wanted):
            yield _with(baseline, next_runs(race, seen, seconds), seen)
            return
        yield wanted
        for runner, seed in wanted:
            seen.setdefault(runner, {})[seed] = scores[runner][seed]


@lru_cache(maxsize=256)
def _round(
    race: Race, seen: tuple[tuple[str, tuple[tuple[int, float], ...]], ...], baseline: str | None
) -> list[tuple[str, int]]:
    """Kept, since a policy is asked after every run and begins at the start each time."""
    scores = {runner: dict(runs) for runner, runs in seen}
    return _with(baseline, next_runs(race, scores, dict.fromkeys(race.entered, 1.0)), scores)


def _frozen(scores: Scores) -> tuple[tuple[str, tuple[tuple[int, float], ...]], ...]:
    return tuple((runner, tuple(runs.items())) for runner, runs in scores.items())


def _with(baseline: str | None, wanted: list[tuple[str, int]], seen: Scores) -> list[tuple[str, int]]:
    """Ordinary training goes along with the controls: nothing is judged by it, but everything is shown beside it."""
    if baseline is None:
        return wanted
    seeds = dict.fromkeys(seed for _, seed in wanted if seed not in seen.get(baseline, {}))
    return [*wanted, *((baseline, seed) for seed in seeds)]
