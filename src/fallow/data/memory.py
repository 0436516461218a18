"""Batches of examples that lie in memory, on the device, with next to no Python per step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from fallow.data.augment import apply, draw
from fallow.data.batching import MOVES, Batching, generator
from fallow.data.examples import Examples
from fallow.data.normalise import normalise

CHUNK_EXAMPLES, CHUNK_BYTES = 4096, 8 << 20  # float32; larger chunks fall out of the processor's cache
WIDE = 64  # numbers at least that a network makes of a token
READY_BYTES = 64 << 20  # up to here, normalise all examples once and keep the copy


class MemoryStream:
    """Streams `Examples`: they move to the device once, and batches are cut from *chunks* of many batches.

    One gather, one augmentation and one normalisation serve a chunk; the batches are views of it. Chunks and
    their random moves follow from (seed, epoch, chunk) alone, so that an epoch can be resumed at any step. Where
    the answers are ``dense``, they move with their examples; what a crop brings in is of class 0.
    """

    resumable = True

    def __init__(
        self,
        part: Examples,
        mean: Tensor | None,
        std: Tensor | None,
        plan: Batching,
        *,
        seed: int,
        policy: str,
        device: torch.device,
        dense: bool = False,
    ) -> None:
        self.plan = plan
        self.steps = plan.steps
        self._seed = seed
        self._policy = policy
        self._dense = dense
        self._shape = tuple(part.x.shape[1:])
        self._bytes = (WIDE if part.x.dtype == torch.int64 else 1) * 4 * prod(self._shape)
        self._x = part.x.to(device)
        self._y = part.y.to(device)
        self._mean = None if mean is None else mean.to(device)
        self._std = None if std is None else std.to(device)
        self._ready = policy == "none" and len(part) * self._bytes <= READY_BYTES
        if self._ready:
            self._x = normalise(self._x, self._mean, self._std)
        largest = max(1, min(CHUNK_EXAMPLES, CHUNK_BYTES // self._bytes))
        self._per_chunk = max(1, largest // plan.batch_size)  # batches; the same on every process

    def share(self, step: int) -> float:
        """The weight of this process's gradient at ``step``, see `Batching.share`."""
        return self.plan.share(step)

    def epoch(self, index: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of epoch ``index`` from step ``start``, each (x, y)."""
        self.plan.check()
        return self._epoch(index, start)

    def _epoch(self, index: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = self.plan.order(self._seed, index)
        for chunk in range(start // self._per_chunk, -(-self.steps // self._per_chunk)):
            first = chunk * self._per_chunk
            slices = [self.plan.mine(step) for step in range(first, min(first + self._per_chunk, self.steps))]
            x, y = self._chunk(order, index, chunk, slices)
            sizes = [end - begin for begin, end in slices]
            batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
            yield from batches[max(0, start - first) :]

    def _chunk(self, order: Tensor, epoch: int, chunk: int, slices: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """The examples of this process in a chunk of batches, augmented and normalised."""
        places = torch.cat([torch.arange(begin, end) for begin, end in slices])
        chosen = order[places].to(self._x.device)
        x, y = self._x.index_select(0, chosen), self._y.index_select(0, chosen)
        if self._policy != "none":
            first = chunk * self._per_chunk
            begin = self.plan.batch(first)[0]
            end = self.plan.batch(first + len(slices) - 1)[1]
            source = generator(self._seed, epoch, MOVES, chunk)
            moves = draw(end - begin, self._shape, self._policy, source)  # for all processes
            x = apply(x, moves[places - begin])
            y = apply(y.unsqueeze(1), moves[places - begin]).squeeze(1) if self._dense else y
        return x if self._ready else normalise(x, self._mean, self._std), y

    def weigh(self, weights: Tensor) -> None:
        """Let epochs draw examples with replacement, each in proportion to its weight."""
        self.plan = replace(self.plan, weights=weights)

    def ordered(self) -> Iterator[tuple[Tensor, Tensor]]:
        """For evaluation: this process's slice in order, unaugmented, in large batches."""
        for begin, end in self.plan.evaluation(self._bytes, self._x.device):
            x = self._x[begin:end]
            x = x.clone() if self._ready else normalise(x, self._mean, self._std)  # a model may work in place
            yield x, self._y[begin:end]
