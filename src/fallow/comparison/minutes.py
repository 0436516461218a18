"""A race within a time: how many seeds it allows, by the measured speed, before the first of them runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fallow.comparison.plan import Plan
from fallow.comparison.policy import runs
from fallow.evaluate.race import looks_until

LEAST = 2  # seeds: one cannot be judged


def paces(plan: Plan, loaded: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Seconds of a forward-backward pass by data set and model, by a few steps of the plainest method."""
    from fallow.training.pace import seconds_per_pass

    found: dict[tuple[str, str], float] = {}
    for run in runs(dataclasses.replace(plan, seeds=1, tune=0, folds=0), loaded, dict.fromkeys(plan.data, "")):
        asked = run.arguments
        setting = asked["data"], asked["model"]
        if setting not in found and asked["method"] == plan.methods[0]:
            found[setting] = seconds_per_pass(
                asked["model"], loaded[asked["data"]], asked["method"], weights=plan.weights, threads=1, workers=0,
                seed=asked["seed"], **asked["settings"],
            )  # fmt: skip
    return found


def within(plan: Plan, loaded: Mapping[str, Any], workers: int, pace: Mapping[tuple[str, str], float]) -> Plan:
    """The plan with as many seeds as its minutes allow if no method is dropped, and looks up to the last of them.

    To be frozen before the first run: nothing here depends on what a run gives. A race of fewer looks has a stronger
    last one, so that it sees more in the same time than a longer race that is cut off.
    """
    assert plan.minutes is not None
    one = runs(dataclasses.replace(plan, seeds=1, tune=0, folds=0), loaded, dict.fromkeys(plan.data, ""))
    seconds = sum(run.cost * pace[run.arguments["data"], run.arguments["model"]] for run in one)
    tuning = seconds * trainings(plan.tune)
    allowed = int((60 * plan.minutes * workers - tuning) / seconds)
    if plan.folds:
        allowed = max(plan.folds, allowed // plan.folds * plan.folds)
    seeds = min(max(LEAST, allowed), plan.seeds)
    if seeds >= plan.looks[-1]:
        return plan
    looks = tuple(k for k in plan.looks if k <= seeds) if plan.folds else looks_until(seeds)
    return dataclasses.replace(plan, seeds=seeds, looks=looks)


def trainings(trials: int) -> float:
    """Whole trainings that tuning a runner takes: a quarter of one for each trial, and the finalists on two seeds."""
    from fallow.comparison.race import HELD
    from fallow.comparison.tuning import SHORT

    finalists = max(2, round(trials / SHORT))
    return 0.0 if not trials else HELD * min(trials, finalists) + (trials / SHORT if trials > finalists else 0.0)
