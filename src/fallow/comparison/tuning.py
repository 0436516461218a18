"""Every runner races with settings of its own: the same number of trials for each, the controls included.

Trials are trainings on the first two seeds, which then take no part in the race, and only validation judges them: a
trial has no test examples. The first trial is the runner as it was asked for; the others are spread over the ranges of
the learning rate, of the weight decay and of the settings that the method itself says matter. All of them train for
a quarter of the epochs; the best quarter of them, two at least, train whole, on both seeds, and the best of these is
chosen. Settings are halved against settings of the same runner only: methods never race over epochs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fallow.core.ranges import OneOf, Range
from fallow.core.ranges import log as by_order
from fallow.core.settings import Settings
from fallow.evaluate.metrics import Metric
from fallow.evaluate.score import key_of
from fallow.experiment import Outcome, Outcomes, Run
from fallow.methods import build
from fallow.report.words import duration, many

SHORT = 4  # the part of the epochs, and of the trials, that the first round has and leaves
PRIMES = (5, 2, 3, 7, 11, 13, 17, 19, 23, 29)  # whose roots spread a method's own settings
WORK = "fallow.comparison.work:trial"
UNTUNED = "untuned: all runners use the settings as given; --tune 8 tunes each of them with the same number of trials"

Chosen = dict[str, Any]  # settings by name: "lr", "weight_decay", or "sam.rho" for a method's own


@dataclass(frozen=True)
class TunedRunner:
    """What tuning chose for a runner, and what it cost."""

    chosen: Chosen  # {}: as it was
    trials: int
    trainings: int
    seconds: float
    passes: float

    def words(self) -> str:
        """The settings that were chosen, as a person writes them."""
        return said(self.chosen) or "as given"


def said(chosen: Chosen) -> str:
    """Settings in words.

    >>> said({"sam.rho": 0.1, "lr": 0.02})
    'rho 0.1, lr 0.02'
    """
    values = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in chosen.items()}
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in values.items())


def cost(found: Sequence[TunedRunner], count: int) -> str:
    """What tuning all runners cost, in words."""
    spent = sum(each.seconds for each in found)
    return (
        f"tuned by {many(count, 'trial')} per runner on validation, on seeds that are not in the race: "
        f"{sum(each.trainings for each in found)} trainings, {duration(spent)} of compute"
    )


def space(spec: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Range | OneOf]:
    """The ranges of a runner's settings, without those that were given: the user wants these as they are."""
    found: dict[str, Range | OneOf] = {}
    lr, decay = settings.get("lr", Settings.lr), settings.get("weight_decay", Settings.weight_decay)
    parts = build(spec).parts
    fixed = {*given, *(name for part in parts for name in part.ignores)}
    if "lr" not in fixed:
        found["lr"] = by_order(lr / 8, lr * 8)
    if "weight_decay" not in fixed and not isinstance(decay, dict):
        found["weight_decay"] = by_order(decay / 20, decay * 20) if decay else by_order(1e-5, 1e-2)
    for part in parts:
        default = type(part)().settings()
        free = {key: where for key, where in part.ranges.items() if part.settings()[key] == default[key]}
        found |= {f"{part.name}.{key}": where for key, where in free.items()}
    return found


def trials(where: Mapping[str, Range | OneOf], count: int) -> list[Chosen]:
    """So many settings: first as it was, then spread evenly over the ranges, the same each time.

    The i-th point is i·α modulo 1 with irrational α: evenly spread from the first few points on. The first two are
    Roberts's (2018) for the plane, so that all runners try the same learning rates and decays.
    """
    if not where:
        return [{}]
    alpha = (0.7548776662466927, 0.5698402909980532, *(math.sqrt(prime) for prime in PRIMES))
    points = ([i * step % 1 for step in alpha[: len(where)]] for i in range(1, count))
    return [{}, *({key: each.at(u) for (key, each), u in zip(where.items(), at, strict=True)} for at in points)]


def with_settings(run: Run, chosen: Chosen) -> Run:
    """A run with other settings: the training's, and the method's own."""
    own = {key: value for key, value in chosen.items() if "." in key}
    training = {key: value for key, value in chosen.items() if "." not in key}
    changes = {"settings": run.arguments["settings"] | training, **({"own": own} if own else {})}
    return dataclasses.replace(run, arguments=run.arguments | changes)


class Tuning:
    """The trials of one runner: which of them are wanted, and in the end what was chosen."""

    def __init__(self, held: Sequence[Run], count: int, given: Mapping[str, Any]) -> None:
        """``held`` are the runner's trainings on the seeds to tune on, with the settings as they were."""
        asked = held[0].arguments
        self.trials = trials(space(asked["method"], asked["settings"], given), count)
        finalists = min(len(self.trials), max(2, round(count / SHORT)))
        epochs = asked["settings"]["epochs"]
        self.short = [] if len(self.trials) == finalists else [
            self._trial(held[0], i, max(1, round(epochs / SHORT))) for i in range(len(self.trials))
        ]  # fmt: skip
        self.whole = [[self._trial(run, i, epochs) for run in held] for i in range(len(self.trials))]
        self.finalists = finalists

    def _trial(self, run: Run, number: int, epochs: int) -> Run:
        asked = with_settings(run, self.trials[number])
        settings = asked.arguments["settings"]
        length = "whole" if epochs == settings["epochs"] else "short"
        return dataclasses.replace(
            asked, name=f"{run.name}-trial{number}-{length}", work=WORK,
            cost=run.cost * epochs / settings["epochs"],
            arguments=asked.arguments | {"settings": settings | {"epochs": epochs}},
        )  # fmt: skip

    def wanted(self, ended: Outcomes, score: str, metric: Metric) -> list[Run]:
        """The trials that are missing, in the round that the tuning is in; none: it is over."""
        missing = [run for run in self.short if run.name not in ended]
        if missing or len(self.trials) == 1:
            return missing
        return [run for i in self._best(ended, score, metric) for run in self.whole[i] if run.name not in ended]

    def chosen(self, ended: Outcomes, score: str, metric: Metric) -> TunedRunner:
        """What won, of those that trained whole."""
        if len(self.trials) == 1:
            return TunedRunner({}, 1, 0, 0.0, 0.0)
        final = self._best(ended, score, metric)
        best = max(final, key=lambda i: (*_worth([ended[run.name] for run in self.whole[i]], score, metric), -i))
        ran = {run.name for run in (*self.short, *(run for i in final for run in self.whole[i]))}
        done = [ended[name] for name in sorted(ran)]
        passes = sum((each.value or {}).get("passes", 0.0) for each in done)
        return TunedRunner(self.trials[best], len(self.trials), len(done), sum(each.seconds for each in done), passes)

    def _best(self, ended: Outcomes, score: str, metric: Metric) -> list[int]:
        """The trials that train whole."""
        order = list(range(len(self.trials)))
        if self.short:
            order.sort(key=lambda i: (*(-x for x in _worth([ended[self.short[i].name]], score, metric)), i))
        return order[: self.finalists]


def _worth(done: Sequence[Outcome], score: str, metric: Metric) -> tuple[float, float]:
    """The metric on validation, larger is better, and minus the loss, which decides between equals."""
    scores = [(each.value or {}).get(score) or {} for each in done]
    values = [metric.worth(each.get(key_of("val", metric.name))) for each in scores]
    losses = [each.get("val_loss", math.inf) for each in scores]
    return sum(values) / len(done), -sum(losses) / len(done)
