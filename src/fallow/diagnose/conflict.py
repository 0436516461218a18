"""Do tasks pull the shared initialisation in different directions? (L2F's supplement, section F and figure G)

The paper's formula for its degree of conflict is not in its supplement, so this definition is ours. With g_i and h_i
the meta-gradients of task i by the two halves of its queries,

    conflict between tasks     1 − mean over i ≠ j of cos(g_i, h_j)
    conflict within a task     1 − mean over i of cos(g_i, h_i)

0: all pull alike; 1: they know nothing of each other; above 1: they pull against each other. Halves on both sides make
the two comparable: gradients of fewer examples are noisier, and noise alone lowers a cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from fallow.adaptation.learner import Learner
from fallow.adaptation.objective import Params
from fallow.base.errors import RequestError
from fallow.data.tasks import TaskBatch
from fallow.diagnose.intervals import Probed, half_width
from fallow.diagnose.landscape import still


@dataclass(frozen=True)
class Conflict:
    """The cosines of all pairs of half-tasks (tasks, tasks), and what they say."""

    cosines: np.ndarray  # cos(g_i, h_j): on the diagonal within a task, elsewhere between tasks

    @property
    def within(self) -> Probed:
        """Conflict within a task, with its 95 % interval over the tasks."""
        return _estimate(np.diag(self.cosines), 1.0)

    @property
    def between(self) -> Probed:
        """Conflict between tasks, with its 95 % interval over the tasks.

        A mean over pairs of n tasks varies as 2/√n times the deviation of each task's mean over its own pairs.
        """
        tasks = len(self.cosines)
        both = (self.cosines + self.cosines.T) / 2
        return _estimate((both.sum(1) - np.diag(both)) / (tasks - 1), 2.0)

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {"tasks": len(self.cosines), "between": self.between.describe(), "within": self.within.describe()}


def conflict(learner: Learner, batch: TaskBatch, *, steps: int | None = None, order: int = 2) -> Conflict:
    """Of the tasks of a meta-batch, over the gradients of θ_0, all tasks at once.

    The gradients are those that meta-training averages: of the query loss after the inner loop, through it (``order``
    2) or past it (1). ``steps`` 0 asks for the loss before adaptation. Every second query belongs to the same half, so
    that with an even number of queries a class both halves hold all classes alike.

    >>> from torch import nn
    >>> learner = Learner(nn.Linear(1, 1), nn.functional.mse_loss, steps=2)
    >>> x = torch.randn(3, 6, 1)
    >>> conflict(learner, (x, 2 * x, x, 2 * x)).cosines.shape
    (3, 3)
    """
    if not isinstance(learner, Learner):
        raise RequestError(
            f"{type(learner).__name__} has no initialisation that tasks share: give what MAML or L2F trained"
        )
    x, y, query_x, query_y = batch
    if len(x) < 2:
        raise RequestError(f"there is {len(x)} task: a conflict is between at least two")
    if query_x.shape[1] < 2:
        raise RequestError("each task has one query: two halves need at least two")
    last = learner.steps if steps is None else steps
    if last < 0 or order not in (1, 2):
        raise RequestError(f"steps is {last} and order {order}: steps are a whole number from 0, the order 1 or 2")
    meta = {child: {name: p.detach() for name, p in held.items()} for child, held in learner.meta().items()}
    objective = learner.objective(False)

    def loss(theta: Params, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        """L_query after the inner loop of one task."""
        path = learner.path(meta | {"model": theta}, x, y, order=order, batched=False, pure=True, steps=last)
        *_, (params, _) = path
        return objective(params, query_x, query_y, learner.statistics_at(last, query_x, False))[0]

    every = vmap(grad(loss), (None, 0, 0, 0, 0), randomness="different")
    with still(learner):
        halves = [every(meta["model"], x, y, query_x[:, half::2], query_y[:, half::2]) for half in (0, 1)]
    g, h = (_directions(list(found.values())) for found in halves)
    return Conflict((g @ h.T).double().cpu().numpy())


def _directions(found: Sequence[Tensor]) -> Tensor:
    """The gradient of every task as one row of length 1; a gradient of 0 has no direction and stays 0."""
    return torch.nn.functional.normalize(torch.cat([t.flatten(1) for t in found], 1), eps=1e-30)


def _estimate(cosines: np.ndarray, factor: float) -> Probed:
    value, half = 1 - float(cosines.mean()), factor * half_width(cosines)
    return Probed(value, value - half, value + half)
