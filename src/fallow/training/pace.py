"""How long a training will take: a few steps of ordinary training are timed, and thrown away, before it begins."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from fallow.core.context import Context
from fallow.training.prepare import prepare

STEPS, SECONDS = 12, 1.0  # at most so many steps, and no more after this time
FORWARD = 1 / 3  # of a pass: looking at a validation example costs no gradient


def seconds_per_pass(
    model: str | None, data: Any, method: str = "normal", *, threads: int | None = None, **options: Any
) -> float:
    """The time of a forward-backward pass over a batch, with its share of the looks at validation.

    ``options`` are those of :func:`fallow.fit`; ``threads`` those of the process that will train, where it is another.
    The first step, which finds its memory and its kernels, does not count. The caller's random state is untouched.
    """
    if options.get("augment") == "try":  # which would be a training of its own
        options["augment"] = "none"
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())), _threads(threads):
        ctx = prepare(model, data, method, **options)
        times = list(timed(ctx))
    pace = statistics.median(times[1:] or times) / ctx.method.passes
    looked = (ctx.data.describe()["sizes"].get("val") or 0) / (ctx.clock.steps * ctx.settings.batch_size)
    return pace * (1 + FORWARD * looked)


def timed(ctx: Context) -> Iterator[float]:
    """The steps' times. The loss is read after each: only then has a GPU done it."""
    ctx.wrapped.train()
    began = last = time.monotonic()
    for batch in islice(ctx.batches(), STEPS):
        ctx.method.update(ctx, lambda batch=batch: ctx.backward(batch)).item()  # type: ignore[misc]
        now = time.monotonic()
        yield now - last
        last = now
        if now - began > SECONDS:
            return


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
