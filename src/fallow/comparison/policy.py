"""Which runs a comparison wants: a race over seeds in every setting, a data set with a model."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from fallow.base.names import slug
from fallow.comparison import labels
from fallow.comparison.plan import TASKS, Plan
from fallow.comparison.race import BASELINE, Runner, rounds, steps
from fallow.comparison.recipes import with_recipes
from fallow.comparison.tuning import TunedRunner, Tuning, with_settings
from fallow.evaluate.metrics import Metric
from fallow.evaluate.score import key_of
from fallow.experiment import Outcome, Outcomes, Policy, Run

WORK = "fallow.comparison.work:train"  # of a run that races

Setting = tuple[str, str]  # a data set and a model


def policy(
    plan: Plan, loaded: Mapping[str, Any], versions: Mapping[str, str], metric: Metric, workers: int = 1
) -> Policy:
    """The runs of the round that each setting is in, as far as the plan's minutes of so many workers last."""
    settings = _settings(plan, loaded, versions)
    tunings = _tunings(plan, settings)

    def wanted(ended: Outcomes) -> Sequence[Run]:
        speed = Speed(ended)
        found: list[Run] = []
        for (source, model), cell in settings.items():
            trials = [tuning.wanted(ended, plan.score, metric) for tuning in tunings[source, model].values()]
            if any(trials):
                found += chain.from_iterable(trials)
                continue
            chosen = {name: t.chosen(ended, plan.score, metric).chosen for name, t in tunings[source, model].items()}
            data = loaded[source]
            entries = [
                entry(each, plan.score, metric)
                for each in ended.values()
                if races(each.run) and (each.run.arguments["data"], each.run.arguments["model"]) == (source, model)
            ]
            rules = plan.rules(metric)
            methods = [method for method in plan.methods if (method, 0) in cell]
            race = rules.race(methods, entries, steps(data, metric), data.overlap, metric)
            seconds = {method: speed(cell[method, 0]) for method in methods}
            baseline = BASELINE if BASELINE in plan.methods else None
            now = list(rounds(race, rules.scores(entries, metric), seconds, baseline))[-1:]
            here = [cell[who] for each in now for who in each if cell[who].name not in ended]
            if not here and plan.labels and plan.seeds > 1:
                examples, found_here = data.describe()["sizes"]["train"], labels.runners(entries, metric)
                here = [run for run in labels.wanted(cell, examples, found_here, plan.seeds) if run.name not in ended]
            found += [with_settings(run, chosen.get(run.arguments["method"], {})) for run in here]
        return found if plan.minutes is None else speed.within(60 * plan.minutes * workers, found)

    return wanted


def races(run: Run) -> bool:
    """Whether a run is part of the race: no trial of settings, and on all labels."""
    return run.work == WORK and "keep" not in run.arguments["load"]


def settled(spec: str, history: list[dict[str, Any]]) -> Any:
    """A method with what its training chose on validation."""
    from fallow.methods import build

    return build(spec).settled(history)


def learned(
    plan: Plan, loaded: Mapping[str, Any], ended: Outcomes, metric: Metric
) -> dict[Setting, labels.LabelCurves | None]:
    """What labels are worth, by data set and model."""
    entries: dict[Setting, list[Runner]] = {}
    parts: dict[Setting, dict[tuple[str, int, int], float | None]] = {}
    for each in ended.values():
        asked = each.run.arguments
        source, model = asked["data"], asked["model"]
        examples = loaded[source].describe()["sizes"]["train"]
        if each.run.work == WORK:
            made = entry(each, plan.score, metric)
            kept = asked["load"].get("keep", examples)
            parts.setdefault((source, model), {})[made.method, kept, made.seed] = made.test
        if races(each.run):
            entries.setdefault((source, model), []).append(made)
    return {
        (source, model): labels.learned(
            labels.runners(here, metric), parts[source, model], loaded[source].describe()["sizes"]["train"], metric
        )
        for (source, model), here in entries.items()
    }


def tuned(
    plan: Plan, loaded: Mapping[str, Any], ended: Outcomes, metric: Metric
) -> dict[Setting, dict[str, TunedRunner]]:
    """What was chosen for every runner whose tuning is over, by data set and model."""
    tunings = _tunings(plan, _settings(plan, loaded, dict.fromkeys(loaded, "")))
    return {
        setting: {
            method: tuning.chosen(ended, plan.score, metric)
            for method, tuning in here.items()
            if not tuning.wanted(ended, plan.score, metric)
        }
        for setting, here in tunings.items()
    }


def _settings(
    plan: Plan, loaded: Mapping[str, Any], versions: Mapping[str, str]
) -> dict[Setting, dict[tuple[str, int], Run]]:
    """Of every setting, the runs by method and by seed, counted from the first that races; before 0 are those held."""
    found: dict[Setting, dict[tuple[str, int], Run]] = {}
    for run in runs(plan, loaded, versions):
        asked = run.arguments
        here = found.setdefault((asked["data"], asked["model"]), {})
        here[asked["method"], asked["seed"] - plan.first] = run
    return found


def _tunings(plan: Plan, settings: Mapping[Setting, Mapping[tuple[str, int], Run]]) -> dict[Setting, dict[str, Tuning]]:
    """Of every setting, the tuning of every runner, where the plan has trials."""
    methods = plan.methods if plan.tune else ()
    return {
        setting: {
            method: Tuning([here[method, seed - plan.first] for seed in plan.held], plan.tune, plan.settings)
            for method in methods
            if (method, 0) in here
        }
        for setting, here in settings.items()
    }


class Speed:
    """How long runs take, by those that ended; in the unit of their costs before there are any."""

    def __init__(self, ended: Outcomes) -> None:
        done = [each for each in ended.values() if each.seconds > 0]
        self.spent = sum(each.seconds for each in done)
        self.rate = self.spent / sum(each.run.cost for each in done) if done else None

    def __call__(self, run: Run) -> float:
        return run.cost * (self.rate or 1.0)

    def within(self, seconds: float, runs: list[Run]) -> list[Run]:
        """Those that are likely to end within a time, with what was spent before; one to measure, to begin with."""
        if self.rate is None:
            return runs[:1]
        left, found = seconds - self.spent, []
        for run in runs:
            left -= self(run)
            if left < 0:
                break
            found.append(run)
        return found


def entry(ended: Outcome, score: str, metric: Metric) -> Runner:
    """What a run gave, by the epoch that counts; one whose test has no number (AUROC of a single class) has failed."""
    asked, value, reason = ended.run.arguments, ended.value or {}, ended.reason
    scores = value.get(score) or {}
    test, val = (scores.get(key_of(part, metric.name)) for part in ("test", "val"))
    if test is not None and not math.isfinite(test):
        test, val, reason = None, None, reason or f"its test {metric.words} is {test}"
    return Runner(
        asked["data"], asked["model"], asked["method"], asked["seed"], f"runs/{ended.run.name}", reason, test, val,
        value.get("seconds", 0.0), value.get("steps", 0), value.get("passes", 0.0),
        tuple(each.get("last", {}).get(key_of("train", metric.name)) for each in value.get("generations") or ()),
    )  # fmt: skip


def runs(plan: Plan, loaded: Mapping[str, Any], versions: Mapping[str, str]) -> list[Run]:
    """Every run that a plan may come to want, a seed after another; those to tune on come first.

    ``loaded`` has the data of the first seed, ``versions`` their digests. A run costs its forward-backward passes.
    Where these are to be equal, a method that needs several in a step has fewer epochs.
    """
    from fallow.methods import build
    from fallow.models import starts_trained

    plan = with_recipes(plan, loaded)
    found: list[Run] = []
    for source in plan.data:
        data = loaded[source]
        examples = data.describe()["sizes"]["train"]
        for seed in (*plan.held, *range(plan.first, plan.first + plan.seeds)):
            here = []
            for model in (data.model,) if plan.fewshot and not plan.models else plan.models_of(source):
                settings = TASKS | plan.settings if plan.fewshot else plan.recipe(source, model)
                steps = data.per_epoch if plan.fewshot else -(-examples // settings["batch_size"])
                learned_before = plan.weights is not None or starts_trained(model)
                for spec in plan.methods:
                    method = build(spec)
                    own = dict(settings)
                    if not learned_before and len(plan.models) > 1:
                        if any(part.pretrained for part in method.parts):
                            continue  # it runs with the others
                        own = {key: value for key, value in own.items() if key not in ("freeze", "input_size")}
                    generations, each = method.plan(settings["generations"], settings["epochs"])
                    if plan.budget == "passes" and method.passes != 1:
                        each = max(1, round(each / method.passes))
                        own |= {"generations": generations, "epochs": each}  # of which its plan is the same
                    arguments = {
                        "data": source, "version": versions[source], "load": plan.load_options(), "model": model,
                        "weights": plan.weights, "method": spec, "seed": seed, "settings": own,
                    }  # fmt: skip
                    cost = generations * each * steps * method.passes
                    name = run_name(data.name, source, model, spec, seed)
                    here.append(Run(name, WORK, arguments, cost, paths={"root": os.getcwd()}))
            found += sorted(here, key=lambda run: -run.cost)
    return found


def epochs(run: Run) -> int:
    """Of all generations of a run together."""
    from fallow.methods import build

    settings = run.arguments["settings"]
    generations, each = build(run.arguments["method"]).plan(settings["generations"], settings["epochs"])
    return generations * each


def run_name(name: str, source: str, model: str, method: str, seed: int) -> str:
    """A name to recognise, and a digest, since two sources may have the same name."""
    digest = hashlib.sha256(json.dumps([source, model, method]).encode()).hexdigest()[:6]
    return f"{slug(name)}-{slug(model.partition(':')[0])}-{slug(method)}-{digest}-seed{seed}"
