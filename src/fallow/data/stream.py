"""What a training loop iterates: batches of float32 on the device, the same bits on every visit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from fallow.base.errors import RequestError
from fallow.data.augment import resolve
from fallow.data.batching import Batching, evaluated_at_once
from fallow.data.examples import Data, Examples, Files, Part
from fallow.data.loaders import DatasetStream, LoaderStream
from fallow.data.memory import MemoryStream
from fallow.data.normalise import resized
from fallow.data.texts import trimmed


class Stream(Protocol):
    """An endless supply of epochs, each a function of (seed, epoch) alone."""

    steps: int  # batches per epoch
    resumable: bool  # does `start` give the very bits of an uninterrupted epoch?

    def epoch(self, index: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Shuffled, augmented, normalised batches (x, y) of epoch ``index``, from step ``start`` on."""

    def share(self, step: int) -> float:
        """n_local · world / n_global of that step's batch: 1 in one process."""

    def weigh(self, weights: Tensor) -> None:
        """Let epochs draw examples with replacement, each in proportion to its weight."""

    def ordered(self) -> Iterator[tuple[Tensor, Tensor]]:
        """For evaluation: no shuffle, no augmentation, this process's slice only, large batches."""


class Changed(ABC):
    """A stream whose batches are changed on the way."""

    def __init__(self, inner: Stream) -> None:
        self.inner = inner
        self.steps, self.resumable = inner.steps, inner.resumable

    def epoch(self, index: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The inner stream's batches."""
        return map(self.change, self.inner.epoch(index, start))

    def share(self, step: int) -> float:
        """The inner stream's."""
        return self.inner.share(step)

    def weigh(self, weights: Tensor) -> None:
        """In the inner stream."""
        self.inner.weigh(weights)

    def ordered(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The inner stream's batches."""
        return map(self.change, self.inner.ordered())

    @abstractmethod
    def change(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The batch as the loop is to see it."""


class Cast(Changed):
    """A stream in another floating-point precision."""

    def __init__(self, inner: Stream, kind: torch.dtype) -> None:
        super().__init__(inner)
        self.kind = kind

    def change(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = (tensor.to(self.kind) if tensor.is_floating_point() else tensor for tensor in batch)
        return x, y


class Trimmed(Changed):
    """A stream of tokens, padded to the longest text of each batch."""

    def change(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return trimmed(batch[0]), batch[1]


class Resized(Changed):
    """A stream of images resized to ``size`` pixels a side; in evaluation in smaller batches, for they are larger."""

    def __init__(self, inner: Stream, size: int) -> None:
        super().__init__(inner)
        self.size = size

    def change(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = batch
        return resized(x, self.size), y

    def ordered(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The inner stream's batches, resized a part at a time."""
        for x, y in self.inner.ordered():
            part = evaluated_at_once(4 * x.shape[1] * self.size**2, x.device)
            yield from map(self.change, zip(x.split(part), y.split(part), strict=True))


def stream(
    part: Part,
    data: Data,
    *,
    batch_size: int,
    seed: int,
    augment: str = "none",
    device: torch.device | str = "cpu",
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
) -> Stream:
    """Stream a part of ``data``, with its statistics and size, in batches of ``batch_size`` over all processes.

    A user's Dataset or DataLoader brings its own augmentation: "auto" adds none, and any other is refused (put it
    into the Dataset). A DataLoader keeps its own batch size.

    >>> examples = Examples(torch.arange(10.0).view(5, 2), torch.arange(5))
    >>> data = Data("five", examples, None, None, list("abcde"), (2,))
    >>> batches = stream(data.train, data, batch_size=2, seed=0)
    >>> batches.steps, sorted(y for _, labels in batches.epoch(0) for y in labels.tolist())
    (3, [0, 1, 2, 3, 4])
    """
    found = _stream(part, data, batch_size, seed, augment, torch.device(device), rank, world, workers)
    if isinstance(part, Examples) and part.x.dtype == torch.int64:
        return Trimmed(found)
    return found if data.size is None else Resized(found, data.size)


def _stream(
    part: Part,
    data: Data,
    batch_size: int,
    seed: int,
    augment: str,
    place: torch.device,
    rank: int,
    world: int,
    workers: int,
) -> Stream:
    if isinstance(part, Examples | Files):
        policy = data.policy(augment)
        if policy == "try":
            raise RequestError("augment=try is decided by fallow.fit before it trains: name an augmentation here")
    elif augment in ("auto", "none"):
        policy = "none"
    else:
        resolve(augment, data.shape)  # a typing error is worth its own message
        raise RequestError(
            f"augment={augment} is for images that fallow loads, not for a {type(part).__name__}: "
            "augment inside the Dataset and use none"
        )
    if isinstance(part, DataLoader):
        return LoaderStream(part, data.target, data.mean, data.std, seed=seed, device=place, rank=rank, world=world)
    if isinstance(part, IterableDataset):
        raise RequestError("an IterableDataset cannot be shuffled or split: wrap it in a DataLoader")
    plan = Batching(len(part), batch_size, rank, world)  # type: ignore[arg-type]
    if isinstance(part, Examples):
        dense = data.target.kind == "dense"
        return MemoryStream(part, data.mean, data.std, plan, seed=seed, policy=policy, device=place, dense=dense)
    return DatasetStream(
        part,
        data.target,
        data.mean,
        data.std,
        plan,
        seed=seed,
        policy=policy,
        shape=data.shape,
        device=place,
        workers=workers,
    )
