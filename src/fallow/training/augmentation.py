"""``augment="try"``: shifts and mirroring only where validation shows that they help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.data.understood import MOVES
from fallow.weights.layers import copied

if TYPE_CHECKING:
    from fallow.core.settings import Settings
    from fallow.data import Data
    from fallow.problems import Problem

Losses = Callable[[Sequence[str]], "dict[str, list[float]]"]  # of short trainings with each policy, on validation

SHARE, LEAST = 4, 2  # of a training's epochs a trial has a quarter, and at least two
TRIED = "Short trials"  # how the sentence on them begins
PARTS = 100  # of validation, each with a loss, to see how far a difference is chance


def choose(shape: Sequence[int], losses: Losses) -> tuple[str, str]:
    """The policy for examples of this shape, and a sentence on how it was found.

    Shifts are tried against nothing, then mirroring beside the better of the two. The simpler one stays unless the
    other's loss on validation is lower by more than a standard error of their difference.
    """
    if len(shape) not in (2, 3, 4):
        return "none", f"{TRIED} were skipped: these examples cannot be shifted or mirrored."
    found = losses(["none", "crop"])
    best = "crop" if lower(found["crop"], found["none"]) else "none"
    if len(shape) > 2:
        mirrored = "flip+crop" if best == "crop" else "flip"
        found |= losses([mirrored])
        best = mirrored if lower(found[mirrored], found[best]) else best
    means = ", ".join(f"{policy} {sum(parts) / len(parts):.3f}" for policy, parts in found.items())
    return best, f"{TRIED} (loss on validation: {means}): {MOVES[best]}."


def lower(new: list[float], old: list[float]) -> bool:
    """Whether paired losses are lower by more than a standard error of the mean difference.

    >>> lower([0.9, 1.8, 2.7], [1.0, 2.0, 3.0]), lower([0.9, 2.8], [1.0, 2.0])
    (True, False)
    """
    gain = torch.tensor(old, dtype=torch.float64) - torch.tensor(new, dtype=torch.float64)
    chance = gain.std() / len(gain) ** 0.5 if len(gain) > 1 else torch.zeros(())
    return bool(gain.mean() > chance)


def tried(problem: Problem, model: nn.Module | str | None, settings: Settings, device: str) -> tuple[str, str]:
    """The policy for a training with these settings, by trials here and now."""
    if problem.data.val is None:
        raise RequestError("augment=try chooses on validation: give val above 0, or name an augmentation")
    return choose(
        problem.data.shape,
        lambda policies: {p: trial(problem.data, model, replace(settings, augment=p), device) for p in policies},
    )


def trial(data: Data, model: nn.Module | str | None, settings: Settings, device: str) -> list[float]:
    """The losses of parts of validation after a quarter of a training's epochs, plainly."""
    from fallow.core import loop
    from fallow.training.prepare import prepare

    epochs = max(LEAST, settings.generations * settings.epochs // SHARE)
    short = replace(settings, generations=1, epochs=epochs, evaluate_every=epochs, patience=None)
    fresh = copied(model) if isinstance(model, nn.Module) else model
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        ctx = prepare(fresh, replace(data, test=None), "normal", device=device, **short.describe())
        with closing(ctx):
            loop.run(ctx)
    output, y = ctx.outputs["val_last"], ctx.outputs["val_y"]
    return [float(ctx.plain_loss(*part)) for part in _parts(output, y)]


def _parts(output: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    count = min(PARTS, len(y))
    return list(zip(output.tensor_split(count), y.tensor_split(count), strict=True))
