"""How a meta-batch is worked through: all tasks side by side, one after another, or compiled.

Side by side (``vmap``) is fastest where a task is small: the cost of calling an operation is shared by all tasks.
One after another (``loop``) frees the graph of each task, so that memory does not grow with their number, and is
faster where a task fills the machine (convolutions with weights of their own for every task are slow on CPUs).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fallow.adaptation.implicit import implicit_gradient
from fallow.adaptation.learner import Learner, Meta
from fallow.data.tasks import TaskBatch

EXECUTIONS = ("auto", "vmap", "loop")
TRIALS, ENOUGH = 5, 0.5  # measurements, and the seconds after which there are no more


class _Known(torch.autograd.Function):
    """A loss whose gradient is already known: what backward() then gives."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[:count])
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        known = torch._foreach_mul(list(ctx.saved_tensors), outer[0])
        return None, None, *[None] * len(known), *known


def flat(meta: Meta) -> list[Tensor]:
    """The tensors of the meta-parameters, in order."""
    return [p for held in meta.values() for p in held.values()]


class Execution:
    """The meta-loss of a meta-batch, differentiable, in one of the ways above.

    ``compile`` turns the whole meta-gradient into one function by torch.compile: the first call takes a minute, the
    others a fraction of the time. It works for both ways.
    """

    def __init__(self, learner: Learner, kind: str = "auto", compile: bool = False) -> None:
        self.learner, self.kind, self.compile = learner, kind, compile
        self.implicit = hasattr(learner, "proximal")  # then every task solves a system of its own
        if self.implicit:
            self.kind = "loop"
        self.functions: dict[Any, Callable[..., Any]] = {}

    def __call__(self, batch: TaskBatch, weights: Tensor | None = None, *, order: int = 2) -> tuple[Tensor, Tensor]:
        """The mean query loss after adaptation, and the losses along the inner loop."""
        if self.kind == "auto":
            self.kind = self.choose(batch, weights, order)
        if self.kind == "vmap" and not self.compile:
            return self.learner.meta_loss(self.learner.meta(), batch, weights, order=order, batched=True)
        meta = self.learner.meta()
        if self.kind == "vmap":
            loss, trace, found = self.compiled(batch, weights, order, batched=True)
            return _Known.apply(loss, len(found), *found, *flat(meta)), trace
        tasks = len(batch[0])
        total: list[Any] = []
        for task in range(tasks):
            one = tuple(tensor[task] for tensor in batch)
            if self.implicit:
                loss, trace, found = implicit_gradient(self.learner, meta, one)
            elif self.compile:
                loss, trace, found = self.compiled(one, weights, order, batched=False)
            else:
                loss, trace, found = self.single(meta, one, weights, order)
            if not total:
                total = [loss, trace, [g.clone() for g in found]]  # of a + b, both have the same tensor as gradient
            else:
                total[0], total[1] = total[0] + loss, total[1] + trace
                torch._foreach_add_(total[2], found)
        torch._foreach_mul_(total[2], 1 / tasks)
        return _Known.apply(total[0] / tasks, len(total[2]), *total[2], *flat(meta)), total[1] / tasks

    def single(self, meta: Meta, one: Any, weights: Tensor | None, order: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Loss and meta-gradient of one task, by plain autograd; nothing of its graph stays."""
        with torch.enable_grad():
            loss, trace = self.learner.meta_loss(meta, one, weights, order=order, batched=False)
            found = torch.autograd.grad(loss, flat(meta), allow_unused=True, materialize_grads=True)
        return loss.detach(), trace, list(found)

    def compiled(self, batch: Any, weights: Tensor | None, order: int, *, batched: bool) -> Any:
        """Loss and meta-gradient by one compiled function (torch.func: the compiler cannot see autograd's tape)."""
        key = (order, batched, weights is None, self.learner.training)
        if key not in self.functions:
            learner = self.learner

            def loss(meta: Meta, batch: Any, weights: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                total, trace = learner.meta_loss(meta, batch, weights, order=order, batched=batched, pure=True)
                return total, (total.detach(), trace)

            self.functions[key] = torch.compile(torch.func.grad(loss, has_aux=True), fullgraph=True, dynamic=False)
        plain = {child: {n: p.detach() for n, p in held.items()} for child, held in self.learner.meta().items()}
        found, (total, trace) = self.functions[key](plain, batch, weights)
        return total, trace, flat(found)

    def choose(self, batch: TaskBatch, weights: Tensor | None, order: int) -> str:
        """The faster way, measured once on a meta-batch; a model that vmap cannot run is looped."""
        meta = self.learner.meta()

        def vmapped() -> None:
            loss, _ = self.learner.meta_loss(meta, batch, weights, order=order, batched=True)
            torch.autograd.grad(loss, flat(meta), allow_unused=True)

        def looped() -> None:
            self.single(meta, tuple(tensor[0] for tensor in batch), weights, order)

        try:
            together = _seconds(vmapped)
        except RuntimeError:
            return "loop"  # vmap cannot run every model: one that looks at its numbers, for instance
        chosen = "vmap" if together < len(batch[0]) * _seconds(looped) else "loop"
        if self.learner.batch_norm == "per-step":
            self.learner.statistics.fresh = {}
        return chosen


def _seconds(work: Callable[[], None]) -> float:
    """The shortest of a few trials, after a first that warms up; long ones are not repeated."""
    taken: list[float] = []
    with torch.random.fork_rng():
        while len(taken) < 2 or (len(taken) <= TRIALS and sum(taken) < ENOUGH):
            started = time.perf_counter()
            work()
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            taken.append(time.perf_counter() - started)
    return min(taken[1:])
