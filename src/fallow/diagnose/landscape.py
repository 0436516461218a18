"""How smooth the way of few-shot learning is (L2F's supplement, section A, after Santurkar et al. 2018).

At every step from θ along u, the step that is taken there, the loss is looked at from other points of the same line:

    variation     max − min of L(θ − s·u) over the points s
    difference    ‖∇L(θ) − ∇L(θ − s·u)‖₂, its mean over the points
    smoothness    max over the points of ‖∇L(θ) − ∇L(θ − s·u)‖₂ / ‖s·u‖₂, the effective β

The supplement does not say where its points are. Ours are Santurkar's: from half a step to four.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fallow.adaptation.inner import descend, gradients
from fallow.adaptation.learner import Learner, Meta
from fallow.adaptation.objective import normalised
from fallow.base.errors import RequestError
from fallow.data.tasks import TaskBatch
from fallow.diagnose.checks import refuse_nonfinite
from fallow.diagnose.intervals import plain

POINTS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)  # in steps


@dataclass(frozen=True)
class Landscape:
    """What was seen along the steps; the last axis counts tasks, or meta-batches where θ_0 itself is learned."""

    points: np.ndarray  # s, in steps
    start: np.ndarray  # L(θ) at every step (steps, tasks)
    losses: np.ndarray  # L(θ − s·u) (steps, points, tasks)
    differences: np.ndarray  # ‖∇L(θ) − ∇L(θ − s·u)‖ (steps, points, tasks)
    distances: np.ndarray  # ‖s·u‖ (steps, points, tasks)

    @property
    def variation(self) -> np.ndarray:
        """Of the loss, at every step of every task (steps, tasks)."""
        return self.losses.max(1) - self.losses.min(1)

    @property
    def difference(self) -> np.ndarray:
        """Of the gradients, the mean over the points (steps, tasks)."""
        return self.differences.mean(1)

    @property
    def smoothness(self) -> np.ndarray:
        """The effective β (steps, tasks); 0 where the gradient is 0 and nothing moves."""
        moved = self.distances > 0
        return np.divide(self.differences, self.distances, out=np.zeros_like(self.differences), where=moved).max(1)

    def means(self) -> dict[str, float]:
        """The three over all steps and tasks: a point of figure A, B or C."""
        return {name: float(getattr(self, name).mean()) for name in ("variation", "difference", "smoothness")}

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        held = {name: plain(getattr(self, name).mean(-1)) for name in ("variation", "difference", "smoothness")}
        return {"points": plain(self.points), "tasks": self.start.shape[-1]} | self.means() | {"steps": held}


def landscape(learner: Learner, batch: TaskBatch, *, points: Sequence[float] = POINTS) -> Landscape:
    """Along the inner loop's own steps, on the support sets of tasks (tasks, n, …), all tasks at once.

    Figures A (tasks of meta-training) and B (of meta-validation). Only what the inner loop moves counts; L2F's
    attenuation comes before its first step.

    >>> from torch import nn
    >>> learner = Learner(nn.Linear(1, 1), nn.functional.mse_loss, steps=2)
    >>> x = torch.randn(3, 5, 1)
    >>> landscape(learner, (x, 2 * x, x, 2 * x)).smoothness.shape
    (2, 3)
    """
    shares = _checked(learner, points)
    x, y = batch[0], batch[1]
    objective, names = learner.objective(True), learner.adapted
    meta = {child: {name: p.detach() for name, p in held.items()} for child, held in learner.meta().items()}
    rows = []
    with still(learner):
        for step, (params, _) in enumerate(learner.path(meta, x, y, order=1, batched=True)):
            if step == learner.steps:
                break
            buffers = learner.statistics_at(step, x, True)
            here, loss = gradients(objective, params, names, x, y, order=1, buffers=buffers)
            moved = descend(params, names, here, learner.rates(meta, step))
            u = [params[name] - moved[name] for name in names]
            length = _norm(u, len(x))
            seen = []
            for share in shares:
                there = params | dict(
                    zip(names, torch._foreach_sub([params[n] for n in names], _times(u, share)), strict=True)
                )
                other, value = gradients(objective, there, names, x, y, order=1, buffers=buffers)
                seen.append([value, _norm(torch._foreach_sub(other, here), len(x)), share * length])
            rows.append((loss, seen))
    return _gather(points, rows)


def meta_landscape(
    learner: Learner,
    batches: Sequence[TaskBatch],
    *,
    rate: float = 1e-3,
    order: int = 2,
    points: Sequence[float] = POINTS,
) -> Landscape:
    """Along the steps of the initialisation itself: the query loss after the inner loop, down its gradient by ``rate``.

    Figure C. One step for every meta-batch of tasks, all of them from the present θ_0; what pieces learn beside it
    (L2F's g_φ) stays. Adam's own step is another one: this is the landscape, not the optimiser.
    """
    shares = _checked(learner, points)
    if not 0 < rate < float("inf"):
        raise RequestError(f"rate is {rate}: it must be above 0")
    if not batches:
        raise RequestError("there are no tasks: give one meta-batch at least")
    meta = {child: {name: p.detach() for name, p in held.items()} for child, held in learner.meta().items()}
    columns = []
    with still(learner):
        for batch in batches:
            theta = list(meta["model"].values())
            here, loss = _meta_gradient(learner, meta, theta, batch, order)
            u = _times(here, rate)
            length = _norm(u, 1)
            seen = []
            for share in shares:
                other, value = _meta_gradient(learner, meta, torch._foreach_sub(theta, _times(u, share)), batch, order)
                seen.append([value.view(1), _norm(torch._foreach_sub(other, here), 1), share * length])
            columns.append(_gather(points, [(loss.view(1), seen)]))
    joined = {key: np.concatenate([getattr(c, key) for c in columns], -1)
              for key in ("start", "losses", "differences", "distances")}  # fmt: skip
    return Landscape(points=columns[0].points, **joined)


def _meta_gradient(
    learner: Learner, meta: Meta, theta: Sequence[Tensor], batch: TaskBatch, order: int
) -> tuple[list[Tensor], Tensor]:
    """Of the mean query loss after adaptation, with respect to θ_0 alone."""
    with torch.enable_grad():
        leaves = [p.detach().requires_grad_() for p in theta]
        there = meta | {"model": dict(zip(meta["model"], leaves, strict=True))}
        loss, _ = learner.meta_loss(there, batch, None, order=order, batched=True)
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return list(found), loss.detach()


@contextmanager
def still(learner: Learner) -> Iterator[None]:
    """Look without a trace: no dropout, no running statistics moved, modes and random generators as before."""
    mode = learner.training
    refuse_nonfinite(learner)
    try:
        learner.eval()
        devices = range(torch.cuda.device_count())
        with torch.random.fork_rng(devices=devices), normalised(learner.model, learner.batch_norm, training=False):
            yield
    finally:
        learner.train(mode)


def _checked(learner: Learner, points: Sequence[float]) -> list[float]:
    if not isinstance(learner, Learner):
        raise RequestError(f"{type(learner).__name__} has no inner loop to look along: give what MAML or L2F trained")
    if not points or not all(0 < share < float("inf") for share in points):
        raise RequestError(f"points are {tuple(points)}: give some above 0, in steps")
    return [float(share) for share in points]


def _times(tensors: Sequence[Tensor], share: float) -> list[Tensor]:
    return list(torch._foreach_mul(list(tensors), share))


def _norm(tensors: Sequence[Tensor], tasks: int) -> Tensor:
    """‖·‖₂ over all tensors together, for every task."""
    return torch.stack([t.reshape(tasks, -1).square().sum(1) for t in tensors]).sum(0).sqrt()


def _gather(points: Sequence[float], rows: Sequence[tuple[Tensor, list[list[Tensor]]]]) -> Landscape:
    """To the host, once."""
    start = torch.stack([loss for loss, _ in rows]).double().cpu().numpy()
    seen = (
        torch.stack([torch.stack([torch.stack(three) for three in at], 1) for _, at in rows], 1).double().cpu().numpy()
    )
    return Landscape(np.array(points, dtype=float), start, seen[0], seen[1], seen[2])
