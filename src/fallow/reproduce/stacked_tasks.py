"""Many meta-trainings as one: the learners of a table share their shapes, so that one compiled function trains all.

A 2 × 40 network is so small that a meta-iteration is spent on calling operations; a stack of learners (seeds and
settings) shares each call. Learner by learner it is the training of :func:`fallow.fewshot`: the same start, the
same tasks, the same Adam.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import grad, vmap

from fallow import methods, models
from fallow.adaptation.learner import Learner, Meta
from fallow.base.errors import WorkError
from fallow.base.seeds import mix
from fallow.data.tasks import Tasks
from fallow.experiment import heed
from fallow.methods.fewshot.maml import MAML, complete
from fallow.methods.fewshot.piece import Piece

AHEAD = 256  # meta-batches that are drawn at a time
CLIP = 10.0  # the largest norm of a learner's meta-gradient: now and then an inner loop diverges


def build(tasks: Tasks, method: str, seed: int) -> Learner:
    """The learner that ``fewshot(None, tasks, method, seed=seed)`` starts from."""
    made = complete(methods.build(method), tasks.recipe)
    parts = made.parts
    (maml,) = (part for part in parts if isinstance(part, MAML))
    assert maml.steps is not None
    assert maml.rate is not None
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(mix(seed, 0))
        model = models.build(tasks.model, shape=tasks.shape, classes=len(tasks.classes))
        pieces = [part for part in parts if isinstance(part, Piece)]
        return Learner(
            model, tasks.loss, steps=maml.steps, rate=maml.rate, optimizer=maml.optimizer, batch_norm=maml.batch_norm,
            adapt_norms=maml.adapt_norms, pieces=pieces,
        )  # fmt: skip


def train(
    members: Sequence[tuple[Tasks, int]],
    method: str,
    *,
    iterations: int,
    meta_batch: int = 4,
    lr: float = 1e-3,
    compile: bool = True,
) -> tuple[list[Learner], list[int]]:
    """Meta-train a learner for each (tasks, seed), all in step; their models must not hold buffers.

    A meta-gradient that is not finite, because an inner loop has diverged, is no reason to lose a learner: it counts
    as 0. With the learners comes how often that happened to each.
    """
    learners = [build(tasks, method, seed) for tasks, seed in members]
    first = learners[0]
    metas = [learner.meta() for learner in learners]
    stack: Meta = {
        child: {name: torch.stack([meta[child][name].detach() for meta in metas]) for name in held}
        for child, held in metas[0].items()
    }
    held = [p for child in stack.values() for p in child.values()]

    def one(meta: Meta, *task: Tensor) -> Tensor:
        return first.meta_loss(meta, task, None, order=2, batched=False, pure=True)[0]  # type: ignore[arg-type]

    def loss(stack: Meta, *batch: Tensor) -> Tensor:
        """The sum over the learners of the mean over their tasks: no learner's gradient knows of another's."""
        return vmap(vmap(one, (None, 0, 0, 0, 0)), 0)(stack, *batch).mean(1).sum()

    def gradients(stack: Meta, *batch: Tensor) -> tuple[list[Tensor], Tensor]:
        """Of every learner, clipped, and whether they are finite."""
        found = [g.flatten(1) for child in grad(loss)(stack, *batch).values() for g in child.values()]
        norm = torch.stack([g.square().sum(1) for g in found]).sum(0).sqrt()
        fine = torch.isfinite(norm)
        factor = (CLIP / norm.clamp(min=CLIP))[:, None]
        return [torch.where(fine[:, None], factor * g, 0).view_as(p) for g, p in zip(found, held, strict=True)], fine

    torch.compiler.reset()  # it gives up on a function that it has compiled for eight shapes
    gradient = torch.compile(gradients, fullgraph=True, dynamic=False) if compile else gradients
    lost = torch.zeros(len(learners), dtype=torch.long)
    adam = torch.optim.Adam(held, lr=lr, fused=True)
    for begin in range(0, iterations, AHEAD):
        heed()
        count = min(AHEAD, iterations - begin)
        drawn = [tasks.draw("train", begin * meta_batch, count * meta_batch, seed=seed) for tasks, seed in members]
        ahead = [
            torch.stack(each).unflatten(1, (count, meta_batch)).transpose(0, 1).contiguous()  # strides are compiled in
            for each in zip(*drawn, strict=True)
        ]
        for i in range(count):
            found, fine = gradient(stack, *(each[i] for each in ahead))
            for p, g in zip(held, found, strict=True):
                p.grad = g.contiguous()  # fused Adam reads memory as it lies: a transposed gradient would be another
            adam.step()
            lost += ~fine
    for place, (learner, (_, seed)) in enumerate(zip(learners, members, strict=True)):
        with torch.no_grad():
            for child, parameters in learner.meta().items():
                for name, p in parameters.items():
                    p.copy_(stack[child][name][place])
        if not all(torch.isfinite(p).all() for p in learner.parameters()):
            raise WorkError(f"{method} diverged with seed {seed}: its weights are no longer finite")
    return learners, lost.tolist()
