"""600 few-shot episodes by the public cross-domain protocol: in the span of their supports against a loop of SGD.

``span_vs_loop_1``, ``_5``, ``_50``: 5-way episodes of so many shots on 1280 cached features, everything from rows of
the table to accuracies included. A ratio is the loop's time an episode, measured on a few, over ours, measured on many.
The loop is ``torch.optim.SGD`` on a linear layer, from the same heads with the same minibatches; what it ends with is
compared weight by weight and answer by answer.
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Work, compare, interleave
from fallow.base.seeds import mix
from fallow.evaluate.heads import LinearHead
from fallow.evaluate.learners import learn
from fallow.evaluate.sampling import DrawnEpisodes, episodes
from fallow.evaluate.span import CDFSL, descend, fresh_heads, orders

WIDTH, WAYS, QUERIES, EPISODES = 1280, 5, 15, 600
SHOTS = {1: (4, 600, 12), 5: (2, 600, 10), 50: (1, 60, 2)}  # episodes timed in the loop, in the span, and compared


def table() -> tuple[Tensor, Tensor]:
    """Features of 20 classes such as a network gives after its last ReLU."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(20).repeat(100)
    x = torch.randn(20, WIDTH, generator=draw)[y] / 4 + torch.randn(len(y), WIDTH, generator=draw)
    return x.relu_().div_(2), y


def loop(x: Tensor, y: Tensor, start: LinearHead, seed: int) -> nn.Linear:
    """One episode as one writes it."""
    head = nn.Linear(WIDTH, WAYS)
    with torch.no_grad():
        head.weight.copy_(start.weight)
        head.bias.copy_(start.bias)
    descent = torch.optim.SGD(
        head.parameters(), lr=CDFSL.rate, momentum=CDFSL.momentum, dampening=CDFSL.dampening, weight_decay=CDFSL.decay
    )
    rng = np.random.default_rng(seed)
    for _ in range(CDFSL.epochs):
        for batch in torch.from_numpy(rng.permutation(len(x))).split(CDFSL.batch):
            descent.zero_grad()
            functional.cross_entropy(head(x[batch]), y[batch]).backward()
            descent.step()
    return head


def looped(x: Tensor, drawn: DrawnEpisodes, count: int) -> tuple[LinearHead, Tensor]:
    """The heads and answers of the first episodes."""
    shots = drawn.support.shape[2]
    y = torch.arange(WAYS).repeat_interleave(shots)
    heads, answers = [], []
    for i in range(count):
        start = fresh_heads([mix(0, i)], WAYS, WIDTH)
        head = loop(x[drawn.support[i].flatten()], y, LinearHead(start.weight[0], start.bias[0]), mix(0, i))
        heads.append(head)
        answers.append(head(x[drawn.query[i].flatten()]).argmax(1))
    weight, bias = (torch.stack([getattr(head, kind).detach() for head in heads]) for kind in ("weight", "bias"))
    return LinearHead(weight, bias), torch.stack(answers)


def agreement(x: Tensor, drawn: DrawnEpisodes, count: int) -> tuple[float, bool]:
    """The largest difference of a weight, and whether every query has the same answer."""
    seeds = [mix(0, i) for i in range(count)]
    support, query = (x[rows[:count].flatten(1)] for rows in drawn)
    y = torch.arange(WAYS).repeat_interleave(drawn.support.shape[2])
    ours = descend(support, y, fresh_heads(seeds, WAYS, WIDTH), orders(seeds, len(y), CDFSL.epochs))
    theirs, answers = looped(x, drawn, count)
    worst = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    return worst, bool((ours(query).argmax(-1) == answers).all())


def peak() -> int:
    """The most memory, in bytes, that a process of its own has held after all 50-shot episodes."""
    torch.set_num_threads(1)
    x, y = table()
    learn(x, episodes(y, WAYS, 50, QUERIES, EPISODES, seed=0))
    held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(held.split()[1]) * 1024


def measure(repetitions: int | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    x, y = table()
    found: dict[str, dict[str, Any]] = {"ratios": {}, "spread": {}, "microseconds": {}}
    said: dict[str, Any] = {}
    for shots, (few, many, compared) in SHOTS.items():
        drawn = episodes(y, WAYS, shots, QUERIES, EPISODES, seed=0)
        worst, equal = agreement(x, drawn, compared)
        said[f"largest difference of a weight, {shots} shots, {compared} episodes"] = f"{worst:.1e}"
        said[f"all answers equal, {shots} shots"] = equal

        def by_loop(drawn: DrawnEpisodes = drawn, few: int = few) -> Work:
            return lambda: len(looped(x, drawn, few)[1])

        def in_span(drawn: DrawnEpisodes = drawn, many: int = many) -> Work:
            some = DrawnEpisodes(drawn.support[:many], drawn.query[:many])
            return lambda: len(learn(x, some))

        rivals = {f"loop {shots}": by_loop, f"span {shots}": in_span}
        times = interleave(rivals, repetitions or 3)
        some = compare(times, {f"span_vs_loop_{shots}": (f"loop {shots}", f"span {shots}")})
        for key, values in found.items():
            values.update(some[key])
    drawn = episodes(y, WAYS, 5, QUERIES, EPISODES, seed=0)
    began = time.process_time()
    learn(x, drawn)
    seconds = {"600 5-shot episodes, one thread": time.process_time() - began}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        said["peak memory of 600 50-shot episodes, MB"] = round(pool.apply(peak) / 1e6)
    return {**found, "counts": said, "seconds": seconds}
