"""What a comparison trains where nothing is said: the recipe of its data, and what short trials add to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib

from fallow.base.errors import WorkError
from fallow.comparison.plan import AUTO, Plan
from fallow.comparison.work import augmented
from fallow.experiment import each
from fallow.models import starts_trained
from fallow.training import augmentation
from fallow.training.recipes import recipe


def with_recipes(plan: Plan, loaded: Mapping[str, Any]) -> Plan:
    """The plan with a recipe for every data set and model that has none yet."""
    if plan.fewshot:
        return plan
    found = {}
    for source, data in loaded.items():
        known = dict(plan.recipes.get(source, {}))
        for name in plan.models or (AUTO,):
            if name in known or (name == AUTO and set(known) - set(plan.models)):
                continue
            model = None if name == AUTO else name
            freeze = plan.settings.get("freeze") is not None
            # of one that starts afresh beside others nothing is frozen
            afresh = freeze and len(plan.models) > 1 and plan.weights is None and not starts_trained(name)
            how = {"quick": plan.quick, "frozen": freeze and not afresh}
            chosen = recipe(data, model, **how)
            if plan.minutes is not None:
                runs = len(plan.methods) * min(plan.looks[0], plan.seeds)
                short = recipe(data, model, minutes=plan.minutes * joblib.cpu_count() / runs, **how)
                chosen = min(chosen, short, key=lambda each: each["epochs"])
            if afresh:
                chosen["augment"] = "auto"
            if chosen["augment"] == "try":  # what was tried before holds for all
                chosen["augment"] = next((a for own in known.values() if (a := own["augment"]) != "auto"), "try")
            known[chosen.pop("model")] = chosen
        found[source] = known
    return replace(plan, recipes=found)


def with_trials(
    plan: Plan, versions: Mapping[str, str], loaded: Mapping[str, Any], folder: Path, **where: Any
) -> tuple[Plan, dict[str, str]]:
    """The plan with the augmentation that trials on the first seed's split found, and what to say of them, by data."""
    recipes, said = dict(plan.recipes), {}
    for source, chosen in plan.recipes.items():
        tried = [model for model, own in chosen.items() if (own | plan.settings)["augment"] == "try"]
        if not tried:
            continue
        model, settings = tried[0], plan.recipe(source, tried[0])
        asked = {
            "data": source, "version": versions[source], "load": plan.load_options(), "model": model,
            "seed": plan.seed, "settings": settings,
        }  # fmt: skip

        def losses(policies: Sequence[str], asked: dict[str, Any] = asked) -> dict[str, list[float]]:
            jobs = {f"{policy}-{asked['version'][:8]}": asked | {"augment": policy} for policy in policies}
            found = each(augmented, jobs, folder / "trials", paths={"root": os.getcwd()}, what="trial", **where)
            return dict(zip(policies, found.values(), strict=True))

        try:
            best, said[source] = augmentation.choose(loaded[source].shape, losses)
        except WorkError as error:  # the race has a row for whatever fails
            best, said[source] = "auto", f"{augmentation.TRIED} of augmentations failed: {error}."
        recipes[source] = {m: own | ({"augment": best} if m in tried else {}) for m, own in chosen.items()}
    return replace(plan, recipes=recipes), said
