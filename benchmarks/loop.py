"""What fallow's loop costs: ``fit`` against a bare PyTorch loop, ``seal`` and ``llf`` against ``normal``.

The bare loop is what a careful person writes by hand: tensors in memory, a permutation an epoch, a fused SGD,
the cosine set by hand; ``*_default`` uses torch's default SGD and ``CosineAnnealingLR`` instead.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import convert_conv2d_weight_memory_format

from benchmarks.timing import Work, compare, interleave
from fallow import models
from fallow.core import loop
from fallow.data import Data, load
from fallow.training.prepare import prepare

BATCH, LR = 32, 0.01


def bare(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4, fused=True)
    steps, total = epochs * -(-len(x) // BATCH), torch.zeros(())
    done = 0
    model.train()
    for _ in range(epochs):
        for index in torch.randperm(len(x)).split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * done / steps))
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[index]), y[index], label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            done += 1
    return done


def bare_default(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-len(x) // BATCH))
    done = 0
    model.train()
    for _ in range(epochs):
        for index in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[index]), y[index], label_smoothing=0.1).backward()
            optimizer.step()
            schedule.step()
            done += 1
    return done


def fitted(model: str, source: Data, method: str, generations: int, epochs: int) -> Callable[[], Work]:
    """A rival that trains by ``fit``'s loop; what comes before the first step is not timed."""

    def get_ready() -> Work:
        ctx = prepare(model, source, method, generations=generations, epochs=epochs, batch_size=BATCH, lr=LR)

        def work() -> int:
            loop.run(ctx)
            return generations * epochs * ctx.clock.steps

        return work

    return get_ready


def measure(repetitions: int | None = None) -> dict[str, Any]:
    digits = replace(load("digits", val=0.0), test=None)
    rivals: dict[str, Callable[[], Work]] = {}
    pairs: dict[str, tuple[str, str]] = {}
    # short turns: a noisy machine changes its mood within a second
    for name, spec, examples, epochs in (("mlp", "mlp:hidden=(64,)", 1408, 5), ("scnn", "scnn", 64, 10)):
        part = replace(digits, train=digits.train.subset(torch.arange(examples)))
        x, y = part.train.x.float(), part.train.y
        x = (x - x.mean()) / x.std()

        def by_hand(
            train: Callable[..., int], spec: str = spec, x: Any = x, y: Any = y, epochs: int = epochs
        ) -> Callable[[], Work]:
            return lambda: partial(train, models.build(spec, shape=digits.shape, classes=10), x, y, epochs)

        rivals[f"fit {name}"] = fitted(spec, part, "long", 1, epochs)
        rivals[f"bare {name}"] = by_hand(bare)
        rivals[f"default {name}"] = by_hand(bare_default)
        pairs[f"fit_vs_bare_{name}"] = (f"fit {name}", f"bare {name}")
        pairs[f"fit_vs_default_{name}"] = (f"fit {name}", f"default {name}")
    first = compare(interleave(rivals, repetitions or 40), pairs)

    few = {"": ("scnn", 64), "_mlp": ("mlp:hidden=(64,)", 320)}
    for name, (spec, examples) in few.items():
        part = replace(digits, train=digits.train.subset(torch.arange(examples)))
        for method in ("seal", "llf"):
            ratio, spread = per_step(spec, part, method, repetitions or 12)
            first["ratios"][f"{method}_vs_normal{name}"] = ratio
            first["spread"][f"{method}_vs_normal{name}"] = spread
    convolutions = formats(repetitions or 8)
    return {key: value | convolutions.get(key, {}) for key, value in first.items()} | {
        "images_per_second": convolutions["images_per_second"]
    }


def formats(repetitions: int) -> dict[str, Any]:
    """``fit`` with its weights in channels_last, as it trains, against the same with contiguous weights."""
    rivals: dict[str, Callable[[], Work]] = {}
    pairs: dict[str, tuple[str, str]] = {}
    for name, spec, examples in (("scnn8", "scnn:width=8", 320), ("resnet18w16", "resnet18:width=16", 96)):
        draw = torch.Generator().manual_seed(0)
        x = torch.randint(256, (examples, 1, 28, 28), generator=draw, dtype=torch.uint8)
        grey = load((x, torch.arange(examples) % 10), val=0.0, test=0.0)

        def rival(kind: torch.memory_format, spec: str = spec, grey: Data = grey) -> Callable[[], Work]:
            def get_ready() -> Work:
                ctx = prepare(spec, grey, "normal", epochs=1, batch_size=BATCH, lr=LR, augment="crop")
                convert_conv2d_weight_memory_format(ctx.model, kind)

                def work() -> int:
                    loop.run_epoch(ctx)
                    return ctx.clock.steps

                return work

            return get_ready

        rivals[f"{name} channels_last"] = rival(torch.channels_last)
        rivals[f"{name} contiguous"] = rival(torch.contiguous_format)
        pairs[f"channels_last_{name}"] = (f"{name} channels_last", f"{name} contiguous")
    found = compare(interleave(rivals, repetitions), pairs)
    speed = {name: round(BATCH / clocks["cpu"] * 1e6) for name, clocks in found["microseconds"].items()}
    return found | {"images_per_second": speed}


def per_step(model: str, source: Data, method: str, repetitions: int) -> tuple[float, tuple[float, float]]:
    """The median ratio of a method's step to an ordinary one, and its middle half; each pair side by side.

    Only what happens inside epochs counts: what a generation's edge costs is paid once, not per step.
    """
    torch.set_num_threads(1)
    ratios = []
    for repetition in range(repetitions + 1):
        order = ("long", method) if repetition % 2 else (method, "long")
        times = {name: _inside_epochs(model, source, name) for name in order}
        ratios.append(times[method] / times["long"])
    low, middle, high = statistics.quantiles(ratios[1:], n=4)  # the first pair warms up
    return round(middle, 4), (round(low, 4), round(high, 4))


def _inside_epochs(model: str, source: Data, method: str) -> float:
    """CPU seconds of a step, in two generations of ten epochs."""
    ctx = prepare(model, source, method, generations=2, epochs=10, batch_size=BATCH, lr=LR)
    spent, inner = 0.0, loop.run_epoch

    def timed(ctx: Any) -> None:
        nonlocal spent
        began = time.process_time()
        inner(ctx)
        spent += time.process_time() - began

    loop.run_epoch = timed
    try:
        loop.run(ctx)
    finally:
        loop.run_epoch = inner
    return spent / (20 * ctx.clock.steps)
