"""``augment="try"``: shifts and mirroring only where validation shows that they help."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.data.understood import MOVES

if TYPE_CHECKING:
    from fallow.core.settings import Settings
    from fallow.problems import Problem

CANDIDATES = {1: ("none",), 2: ("none", "crop"), 3: ("none", "crop", "flip", "flip+crop")}  # by the axes of an example
SEEDS = 3  # trials of each
SHARE, LEAST = 4, 2  # of the epochs of a generation a trial has a quarter, and at least two


def choose(problem: Problem, model: nn.Module | str | None, settings: Settings) -> tuple[str, str]:
    """The policy to train with, and a sentence on how it was found.

    Each candidate trains a few epochs, plainly, with three seeds. From the least change on, a candidate is taken only
    if it is better on validation than the one before in every one of them: by chance that is one time in eight.
    """
    if problem.data.val is None:
        raise RequestError("augment=try chooses on validation: give val above 0, or name an augmentation")
    candidates = CANDIDATES.get(len(problem.data.shape), ("none",))
    if len(candidates) == 1:
        return "none", "There is nothing to shift or to mirror in these examples."
    scores = {
        policy: [_score(problem, model, settings, policy, seed) for seed in range(SEEDS)] for policy in candidates
    }
    best = candidates[0]
    for policy in candidates[1:]:
        if all(new > old for new, old in zip(scores[policy], scores[best], strict=True)):
            best = policy
    name, sign = _judge(problem)
    means = ", ".join(f"{policy} {sign * sum(found) / SEEDS:.3f}" for policy, found in scores.items())
    return best, f"Short trials on validation ({name.replace('_', ' ')}: {means}): {MOVES[best]}."


def _score(problem: Problem, model: nn.Module | str | None, settings: Settings, policy: str, seed: int) -> float:
    """How good a short training is on validation, more is better."""
    from fallow.training.fit import fit

    few = max(LEAST, settings.epochs // SHARE)
    trial = replace(settings, generations=1, epochs=few, augment=policy, seed=mix(settings.seed, seed), patience=None)
    options: dict[str, Any] = trial.describe()
    name, sign = _judge(problem)
    fresh = copy.deepcopy(model) if isinstance(model, nn.Module) else model
    return sign * fit(fresh, problem.data, "normal", **options).last[f"val_{name}"]


def _judge(problem: Problem) -> tuple[str, int]:
    """What decides, and whether more of it is better."""
    if problem.metric is None:
        return "loss", -1
    return problem.metric.name, 1 if problem.metric.higher else -1
