"""The two losses of a meta-update, in the middle of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from fallow.core.context import Batch, Context
from fallow.hypergradients.products import Loss
from fallow.hypergradients.statistics import BatchStatistics

VALIDATION = 2000  # examples: always the same, so that losses of two meta-updates can be compared
APART = 1 << 40  # names epochs of training data that the training itself never comes to


@contextmanager
def as_evaluated(ctx: Context) -> Iterator[None]:
    """The plain model in evaluation: nothing random, nothing updated, and no exchange of gradients to wait for."""
    wrapped, ctx.wrapped = ctx.wrapped, ctx.model
    ctx.model.eval()
    try:
        yield
    finally:
        ctx.wrapped, ctx.output, ctx.loss = wrapped, None, None
        ctx.wrapped.train()


def training_loss(ctx: Context, batches: int) -> tuple[Loss, Tensor, float]:
    """What the method trains by, but for our penalty, on some batches of an epoch of their own; these; their number."""
    fresh = islice(ctx.train.epoch(APART + ctx.clock.step_index), batches)
    x, y = (torch.cat(parts) for parts in zip(*fresh, strict=True))
    mean = over_processes(ctx, len(x))

    def loss() -> Tensor:
        ctx.loss = value = ctx.method.loss(ctx, (x, y))
        extra = ctx.method.penalty(ctx, (x, y))
        return (value if extra is None else value + extra) * (len(x) / mean)

    return loss, x, mean * ctx.engine.world_size / ctx.settings.batch_size


def validation_loss(
    ctx: Context, batches: int, statistics: BatchStatistics, trained: Tensor
) -> tuple[list[Loss], float]:
    """The loss on validation in chunks of so many batches, and the number of batches in all.

    Batch norms have the statistics of ``trained``, examples that were trained on.
    """
    assert ctx.val is not None
    left, size = -(-VALIDATION // ctx.engine.world_size), batches * ctx.settings.batch_size
    chunks: list[Batch] = []
    for x, y in ctx.val.ordered():
        chunks += zip(x[:left].split(size), y[:left].split(size), strict=True)
        left -= len(x)
        if left <= 0:
            break
    mean = over_processes(ctx, sum(len(x) for x, _ in chunks))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        with statistics.of(trained):
            return ctx.plain_loss(ctx.model(x), y) * (len(x) / mean)

    return [partial(loss, x, y) for x, y in chunks], mean * ctx.engine.world_size / ctx.settings.batch_size


def over_processes(ctx: Context, count: int) -> float:
    """The mean count: by it each process weighs its share of a loss that is averaged over them."""
    return float(ctx.engine.all_reduce(torch.tensor(float(count), device=ctx.device)))
