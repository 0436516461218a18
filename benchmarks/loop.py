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
    digits = replace(load("digits", val=0.0), test=None)
    rivals: dict[str, Callable[[], Work]] = {}
    pairs: dict[str, tuple[str, str]] = {}
    # short turns: a noisy machine changes its mood within a second
    for name, spec, examples, epochs in (("mlp", "mlp:hidden=(64,)", 1408, 2), ("scnn", "scnn", 320, 1)):
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

    rivals, pairs = {}, {}
    for name, spec, examples in (("", "scnn", 64), ("_mlp", "mlp:hidden=(64,)", 320)):
        part = replace(digits, train=digits.train.subset(torch.arange(examples)))
        for method in ("long", "seal", "llf"):
            rivals[method + name] = fitted(spec, part, method, 2, 20)
            if method != "long":  # long: as many steps as the others, all of them ordinary
                pairs[f"{method}_vs_normal{name}"] = (method + name, "long" + name)
    second = compare(interleave(rivals, repetitions or 12), pairs)
    return {key: first[key] | second[key] for key in first}
