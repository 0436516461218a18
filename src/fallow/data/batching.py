"""Which examples make which batch: balanced, shuffled by (seed, epoch) alone, shared out over processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from fallow.base.errors import RequestError
from fallow.base.seeds import mix

ORDER, MOVES, ITEMS, UNLABELLED, VIEWS = range(5)  # purposes of the random streams of an epoch

# the largest batch in evaluation: beyond it activations leave a processor's cache (1024 grey images of 28 pixels: a
# third slower), while other devices want much to do at once
EVAL_EXAMPLES, EVAL_BYTES, EVAL_BYTES_ELSEWHERE = 512, 4 << 20, 64 << 20


@dataclass(frozen=True)
class Batching:
    """The batches of an epoch over ``n`` examples; ``batch_size`` counts those of all processes together.

    The sizes differ by at most one, so that no runt batch comes last (batch normalisation chokes on one
    example). Each process takes a contiguous slice of each batch; together they take all of it.

    >>> plan = Batching(n=10, batch_size=4)
    >>> [plan.batch(step) for step in range(plan.steps)]
    [(0, 4), (4, 7), (7, 10)]
    >>> [Batching(n=10, batch_size=4, rank=rank, world=2).mine(1) for rank in (0, 1)]
    [(4, 5), (5, 7)]
    """

    n: int
    batch_size: int
    rank: int = 0
    world: int = 1
    weights: Tensor | None = field(default=None, compare=False)  # of the examples to be drawn; None: each comes once

    def __post_init__(self) -> None:
        if self.n < 1:
            raise RequestError("there are no examples to make batches of: give at least one")
        if self.batch_size < 1:
            raise RequestError(f"batch_size is {self.batch_size}: give at least 1")
        if not 0 <= self.rank < self.world:
            raise RequestError(f"rank is {self.rank} of {self.world} processes: ranks go from 0 to world − 1")

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-self.n // self.batch_size)

    def batch(self, step: int) -> tuple[int, int]:
        """Where the batch of all processes begins and ends in the order of the epoch."""
        size, longer = divmod(self.n, self.steps)  # the first `longer` batches have one more
        return step * size + min(step, longer), (step + 1) * size + min(step + 1, longer)

    def mine(self, step: int) -> tuple[int, int]:
        """Where this process's slice of the batch begins and ends."""
        begin, end = self.batch(step)
        size = end - begin
        return begin + size * self.rank // self.world, begin + size * (self.rank + 1) // self.world

    def share(self, step: int) -> float:
        """n_local · world / n_global: the weight that makes averaged gradients those of the whole batch."""
        (begin, end), (first, last) = self.batch(step), self.mine(step)
        return (last - first) * self.world / (end - begin)

    def order(self, seed: int, epoch: int) -> Tensor:
        """The order of an epoch: a function of (seed, epoch), whatever else is drawn anywhere."""
        source = generator(seed, epoch, ORDER)
        if self.weights is not None:
            return torch.multinomial(self.weights, self.n, replacement=True, generator=source)
        return torch.randperm(self.n, generator=source)

    def check(self) -> None:
        """Refuse batches of which some process would get nothing."""
        begin, end = self.batch(self.steps - 1)
        if end - begin < self.world:
            raise RequestError(
                f"batches of {end - begin} cannot be shared by {self.world} processes: "
                f"use batch_size ≥ {self.world} or fewer processes"
            )

    def evaluation(self, example_bytes: int, device: torch.device) -> Iterator[tuple[int, int]]:
        """Begin and end of this process's batches in evaluation: in order, as large as is fast."""
        size = evaluated_at_once(example_bytes, device)
        first, last = self.n * self.rank // self.world, self.n * (self.rank + 1) // self.world
        for begin in range(first, last, size):
            yield begin, min(begin + size, last)


def evaluated_at_once(example_bytes: int, device: torch.device) -> int:
    """Examples in a batch of evaluation."""
    most = EVAL_BYTES if device.type == "cpu" else EVAL_BYTES_ELSEWHERE
    return max(1, min(EVAL_EXAMPLES, most // max(1, example_bytes)))


def generator(*numbers: int) -> Generator:
    """A generator on the CPU (the same draws for every device), seeded by the numbers."""
    return torch.Generator().manual_seed(mix(*numbers))
