"""A tiny control problem in float64, and what a policy lived through in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fallow.core.context import Context
from fallow.data.environments import Navigation
from fallow.methods import build
from fallow.methods.fewshot.acting import ActingMAML, Met
from fallow.methods.fewshot.fewshot import learner_of
from fallow.training.control import ControlResult
from fallow.training.prepare import prepare

FEW: dict[str, Any] = {"iterations": 4, "every": 2, "meta_batch": 3, "test_steps": 2}


def navigation(**settings: Any) -> Navigation:
    return Navigation(**({"shots": 3, "horizon": 6, "val_tasks": 3, "test_tasks": 4} | settings))


def seen(result: ControlResult) -> Tensor:
    """What the iterations of the last epoch met, on average."""
    return torch.tensor(
        [result.history[-1][key] for key in ("train_return", "train_return_before", "val_return", "kl")]
    )


def smooth() -> nn.Module:
    """A network without kinks, for finite differences."""
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))


def lived(method: str) -> tuple[Context, ActingMAML, Met, list[Tensor]]:
    """A method at its start, a meta-batch as it lived through it, and all that it learns across tasks."""
    torch.manual_seed(0)
    ctx = prepare(
        smooth(), navigation(), build(method), generations=1, epochs=1, batch_size=3, precision="float64",
        optimizer="adamw",
    )  # fmt: skip
    learner = learner_of(ctx.method)
    assert isinstance(learner, ActingMAML)
    params = [p for group in ctx.optimizer.param_groups for p in group["params"]]
    met = learner.met = learner.live(next(iter(ctx.train.epoch(0))))
    return ctx, learner, met, params
