"""Which runs a comparison wants: methods × seeds × data sets × models, all of them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from fallow.comparison.plan import Plan, model_for, settings_for, slug
from fallow.experiment import Policy, Run, grid


def policy(plan: Plan, loaded: Mapping[str, Any], versions: Mapping[str, str]) -> Policy:
    """The whole grid, whatever its first outcomes are."""
    return grid(runs(plan, loaded, versions))


def runs(plan: Plan, loaded: Mapping[str, Any], versions: Mapping[str, str]) -> list[Run]:
    """Every run of a plan, a seed after another, for the data of the first seed and the digests of the data.

    A run costs its forward-backward passes. Where these are to be equal, a method that needs several in a step has
    fewer epochs.
    """
    from fallow.methods import build

    found: list[Run] = []
    for source in plan.data:
        data = loaded[source]
        examples = data.describe()["sizes"]["train"]
        settings = settings_for(plan, examples)
        steps = -(-examples // settings["batch_size"])
        for seed in range(plan.seed, plan.seed + plan.seeds):
            here = []
            for model in plan.models or (model_for(data.shape),):
                for spec in plan.methods:
                    method = build(spec)
                    own = dict(settings)
                    generations, each = method.plan(settings["generations"], settings["epochs"])
                    if plan.budget == "passes" and method.passes != 1:
                        each = max(1, round(each / method.passes))
                        own |= {"generations": generations, "epochs": each}  # of which its plan is the same
                    arguments = {
                        "data": source, "version": versions[source], "load": plan.load_options(), "model": model,
                        "weights": plan.weights, "method": spec, "seed": seed, "settings": own,
                    }  # fmt: skip
                    cost = generations * each * steps * method.passes
                    name = _name(data.name, source, model, spec, seed)
                    work = "fallow.comparison.work:train"
                    here.append(Run(name, work, arguments, cost, paths={"root": os.getcwd()}))
            found += sorted(here, key=lambda run: -run.cost)
    return found


def epochs(run: Run) -> int:
    """Of all generations of a run together."""
    from fallow.methods import build

    settings = run.arguments["settings"]
    generations, each = build(run.arguments["method"]).plan(settings["generations"], settings["epochs"])
    return generations * each


def _name(name: str, source: str, model: str, method: str, seed: int) -> str:
    """A name to recognise, and a digest, since two sources may have the same name."""
    digest = hashlib.sha256(json.dumps([source, model, method]).encode()).hexdigest()[:6]
    return f"{slug(name)}-{slug(model.partition(':')[0])}-{slug(method)}-{digest}-seed{seed}"
