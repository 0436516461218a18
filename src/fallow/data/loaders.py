"""Batches that come from torch's own loaders: a user's DataLoader, a map-style Dataset, files on disk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.data.augment import apply, draw
from fallow.data.batching import ITEMS, MOVES, ORDER, Batching, generator
from fallow.data.examples import Files
from fallow.data.normalise import normalise
from fallow.data.randomness import Randomness, reseed
from fallow.data.targets import Target

Batch = tuple[Tensor, Tensor]


class DatasetStream:
    """Streams a map-style Dataset, or `Files` (which are augmented too), normalised on the device.

    The worker processes fetch whole batches, named by their step. Each item is drawn under its own seed,
    (seed, epoch, place in the order), so that random transforms come out the same wherever an epoch is
    resumed, whatever the number of workers or processes.
    """

    resumable = True

    def __init__(
        self,
        part: Dataset[Any],
        target: Target,
        mean: Tensor | None,
        std: Tensor | None,
        plan: Batching,
        *,
        seed: int,
        policy: str,
        shape: tuple[int, ...],
        device: torch.device,
        workers: int,
    ) -> None:
        self.plan = plan
        self.steps = plan.steps
        self._part = part
        self._target = target
        self._mean = None if mean is None else mean.to(device)
        self._std = None if std is None else std.to(device)
        self._seed = seed
        self._policy = policy
        self._shape = shape
        self._device = device
        self._workers = workers

    def share(self, step: int) -> float:
        """The weight of this process's gradient at ``step``, see `Batching.share`."""
        return self.plan.share(step)

    def epoch(self, index: int, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch ``index`` from step ``start``, each (x, y)."""
        self.plan.check()
        return self._epoch(index, start)

    def _epoch(self, index: int, start: int) -> Iterator[Batch]:
        order = self.plan.order(self._seed, index).tolist()
        steps = range(start, self.steps)
        fetched = self._fetch(order, [self.plan.mine(step) for step in steps], mix(self._seed, index, ITEMS))
        for step, (x, y) in zip(steps, fetched, strict=True):
            if self._policy != "none":
                (begin, end), (first, last) = self.plan.batch(step), self.plan.mine(step)
                source = generator(self._seed, index, MOVES, step)
                moves = draw(end - begin, self._shape, self._policy, source)  # for all processes
                x = apply(x, moves[first - begin : last - begin])
            yield self._normalised(x), y

    def weigh(self, weights: Tensor) -> None:
        """Let epochs draw examples with replacement, each in proportion to its weight."""
        self.plan = replace(self.plan, weights=weights)

    def ordered(self) -> Iterator[Batch]:
        """For evaluation: this process's slice in order, unaugmented, in large batches."""
        slices = list(self.plan.evaluation(4 * prod(self._shape), self._device))
        for x, y in self._fetch(list(range(self.plan.n)), slices, mix(self._seed, ITEMS)):
            yield self._normalised(x), y

    def _normalised(self, x: Tensor) -> Tensor:
        return x if self._mean is None else normalise(x, self._mean, self._std)

    def _fetch(self, order: list[int], slices: list[tuple[int, int]], seed: int) -> Iterator[Batch]:
        loader = DataLoader(
            _Batches(self._part, self._target, order, slices, seed),
            batch_size=None,  # an item of _Batches is a batch
            shuffle=False,
            num_workers=self._workers,
            pin_memory=self._device.type == "cuda",
            generator=Generator(),  # the default generator would lose a draw for the workers' seeds
        )
        for x, y in loader:
            yield x.to(self._device, non_blocking=True), y.to(self._device, non_blocking=True)


class _Batches(Dataset[Batch]):
    """Slices of an order as collated batches."""

    def __init__(
        self, part: Dataset[Any], target: Target, order: list[int], slices: list[tuple[int, int]], seed: int
    ) -> None:
        self.part, self.target, self.order, self.slices, self.seed = part, target, order, slices, seed

    def __len__(self) -> int:
        return len(self.slices)

    def __getitem__(self, step: int) -> Batch:
        places = range(*self.slices[step])
        if isinstance(self.part, Files):  # nothing random in decoding
            items = [self.part[self.order[place]] for place in places]
        else:
            with Randomness(self.seed):
                items = [self._item(place) for place in places]
        x, y = default_collate(items)
        return x, self.target.cast(y, x)

    def _item(self, place: int) -> tuple[Any, Any]:
        reseed(mix(self.seed, place))
        item = self.part[self.order[place]]
        if not (isinstance(item, tuple | list) and len(item) == 2):
            raise RequestError(f"item {self.order[place]} of the Dataset is no (x, label) pair: return two values")
        return item[0], item[1]


class LoaderStream:
    """Streams a user's DataLoader: its order, its batches, its transforms; normalised on the device.

    In an epoch its generators are seeded by (seed, epoch), and it draws from streams of its own, so that what a
    method draws changes nothing; they come back as they were. Resuming at a step fetches and drops the batches before
    it. (Workers that persist carry their random state from epoch to epoch: with them, random transforms do not replay.)
    Several processes need a DistributedSampler in the loader; it gives all of them batches of equal sizes,
    so that every share is 1.
    """

    def __init__(
        self,
        part: DataLoader[Any],
        target: Target,
        mean: Tensor | None,
        std: Tensor | None,
        *,
        seed: int,
        device: torch.device,
        rank: int,
        world: int,
    ) -> None:
        self.steps = length(part)
        self.resumable = not part.persistent_workers
        self._loader = part
        self._target = target
        self._mean = None if mean is None else mean.to(device)
        self._std = None if std is None else std.to(device)
        self._seed = seed
        self._device = device
        self._samplers = samplers(part)
        distributed = [s for s in self._samplers if isinstance(s, DistributedSampler)]
        if world > 1 and not any((s.num_replicas, s.rank) == (world, rank) for s in distributed):
            raise RequestError(
                f"a DataLoader cannot be shared by {world} processes as it is: "
                f"give it a DistributedSampler(num_replicas={world}, rank=…), or pass its Dataset instead"
            )

    def share(self, step: int) -> float:
        """Always 1: a DistributedSampler gives all processes batches of equal sizes."""
        return 1.0

    def epoch(self, index: int, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch ``index`` from step ``start``, each (x, y)."""
        for sampler in self._samplers:
            if isinstance(sampler, DistributedSampler):
                sampler.set_epoch(index)
        return self._batches(self._loader, mix(self._seed, index, ORDER), start)

    def weigh(self, weights: Tensor) -> None:
        """Refused: a DataLoader has its own order."""
        raise RequestError("a DataLoader draws its examples itself: give it a WeightedRandomSampler")

    def ordered(self) -> Iterator[Batch]:
        """For evaluation, in the middle of an epoch, too: every batch of the loader, in whatever order it has."""
        another = copy.copy(self._loader)
        vars(another)["persistent_workers"] = False  # those that persist have one iterator, which an epoch may be using
        return self._batches(another, mix(self._seed, ITEMS), 0)

    def _batches(self, loader: DataLoader[Any], seed: int, start: int) -> Iterator[Batch]:
        own = Randomness(seed, generators(loader))
        with own:
            iterator = iter(loader)
        for step in range(self.steps):
            with own:
                batch = next(iterator, None)
            if batch is None:
                raise RequestError(
                    f"the DataLoader ended after {step} of {self.steps} batches: its length must be true"
                )
            if step >= start:
                x, y = pair(batch)
                x, y = x.to(self._device), self._target.cast(y, x).to(self._device)
                yield x if self._mean is None else normalise(x, self._mean, self._std), y


def length(loader: DataLoader[Any]) -> int:
    """The batches of a loader, or a `RequestError`."""
    try:
        return len(loader)
    except TypeError as error:
        raise RequestError(
            "the DataLoader has no length: give its IterableDataset a __len__, or use a map-style Dataset"
        ) from error


def samplers(loader: DataLoader[Any]) -> list[Any]:
    """Whatever chooses the order of a loader."""
    return [loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]


def generators(loader: Any) -> list[Generator]:
    """The generators that a loader and its samplers were given; anything else has none."""
    if not isinstance(loader, DataLoader):
        return []
    found = (getattr(owner, "generator", None) for owner in (loader, *samplers(loader)))
    return list({id(own): own for own in found if isinstance(own, Generator)}.values())


def pair(batch: Any) -> Batch:
    """A loader's batch as (x, y), or a `RequestError`."""
    if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(b, Tensor) for b in batch)):
        raise RequestError(
            f"the DataLoader gives {_kind(batch)}: let it give (x, y), two tensors (collate_fn can do it)"
        )
    x, y = batch
    return x, y


def _kind(batch: Any) -> str:
    name = type(batch).__name__
    return f"a {name} of {', '.join(type(b).__name__ for b in batch)}" if isinstance(batch, tuple | list) else name
