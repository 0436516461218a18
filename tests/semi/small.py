"""A training that stands at its first step, in double precision, on little noisy images."""

from __future__ import annotations

import torch

from fallow.core.context import Context
from fallow.training.prepare import prepare
from tests.conftest import small_images

MODEL = "scnn:width=4,dense=16"


def standing(method: str, **changes) -> Context:
    settings = {"generations": 1, "epochs": 2, "batch_size": 16, "lr": 0.05, "seed": 4} | changes
    ctx = prepare(MODEL, small_images(n=24), method, **settings)
    ctx.method.begin_generation(ctx)
    ctx.wrapped.train()
    return ctx


def doubled(ctx: Context) -> tuple[torch.Tensor, ...]:
    """The first batch, with it and all networks in float64."""
    ctx.model.double()
    batch = next(iter(ctx.method.stream(ctx)))
    return tuple(t.double() if t.is_floating_point() else t for t in batch)
