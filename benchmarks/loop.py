"""What fallow's loop costs: ``fit`` against a bare PyTorch loop, ``seal`` and ``llf`` against ``normal``.

The bare loop is what a careful person writes by hand: tensors in memory, a permutation an epoch, a fused SGD,
the cosine set by hand; ``*_default`` uses torch's default SGD and ``CosineAnnealingLR`` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.timing import Work, compare, interleave
from fallow import models
from fallow.core import loop
from fallow.data import Data, load
from fallow.fitting import prepare

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
    digits = load("digits", val=0.0)
    digits = replace(digits, test=None)
    x, y = digits.train.x.float(), digits.train.y
    x = (x - x.mean()) / x.std()
    few = replace(digits, train=digits.train.subset(torch.arange(256)))
    rivals: dict[str, Callable[[], Work]] = {}
    pairs: dict[str, tuple[str, str]] = {}
    for name, spec, epochs in (("mlp", "mlp:hidden=(64,)", 10), ("scnn", "scnn", 1)):

        def by_hand(loop: Callable[..., int], spec: str = spec, epochs: int = epochs) -> Callable[[], Work]:
            return lambda: partial(loop, models.build(spec, shape=digits.shape, classes=10), x, y, epochs)

        rivals[f"fit {name}"] = fitted(spec, digits, "long", 1, epochs)
        rivals[f"bare {name}"] = by_hand(bare)
        rivals[f"default {name}"] = by_hand(bare_default)
        pairs[f"fit_vs_bare_{name}"] = (f"fit {name}", f"bare {name}")
        pairs[f"fit_vs_default_{name}"] = (f"fit {name}", f"default {name}")
    for name, spec, source, epochs in (("", "mlp:hidden=(64,)", digits, 20), ("_scnn", "scnn", few, 20)):
        for method in ("long", "seal", "llf"):
            rivals[method + name] = fitted(spec, source, method, 2, epochs)
            if method != "long":  # long: as many steps as the others, all of them ordinary
                pairs[f"{method}_vs_normal{name}"] = (method + name, "long" + name)
    return compare(interleave(rivals, repetitions or 7), pairs)
