"""N-way K-shot episodes from any labelled examples whose classes are split."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import is_whole, require_whole
from fallow.base.seeds import mix
from fallow.data.layout import layout, numeric
from fallow.data.normalise import normalise, statistics
from fallow.data.tasks.base import BLOCK, LARGE, SPLITS, TaskBatch, Tasks
from fallow.data.tasks.recipe import TaskRecipe, recipe_of

PIECE = 256  # examples to embed at a time


@dataclass(eq=False, kw_only=True)
class Episodes(Tasks):
    """Tasks of ``ways`` classes with ``shots`` support and ``queries`` query examples each.

    ``x`` holds the examples (uint8 images or float32), ``y`` their class indices, ``names`` the classes' names. Arrays
    are read as :func:`fallow.fit` reads them, and an array ``y`` may hold the names themselves. ``splits`` maps train,
    val and test to classes, by index or name, that do not overlap; None: 64, 16 and 20 % of them, drawn by ``seed``.
    With ``rotations`` every image class counts four times, turned by 0, 90, 180 and 270 degrees, as is usual for
    Omniglot. ``train_ways`` lets training have more classes in a task than evaluation.

    >>> y = torch.arange(30).repeat_interleave(4)
    >>> tasks = Episodes(name="noise", x=torch.randn(120, 2), y=y, ways=3, shots=1, queries=2)
    >>> x, y, query_x, query_y = tasks.draw("train", 0, 8)
    >>> x.shape, y[0].tolist(), query_y[0].tolist()
    (torch.Size([8, 3, 2]), [0, 1, 2], [0, 0, 1, 1, 2, 2])
    """

    name: str = "episodes"
    x: Tensor
    y: Tensor
    names: Sequence[str] | None = None
    splits: Mapping[str, Sequence[int | str]] | None = None
    ways: int = 5
    shots: int = 1
    queries: int = 15
    rotations: bool = False
    train_ways: int | None = None
    shape: tuple[int, ...] = ()
    classes: list[str] = field(default_factory=list)
    loss: Any = functional.cross_entropy
    model: str = ""

    def __post_init__(self) -> None:
        for key, least in (("ways", 2), ("shots", 1), ("queries", 1), ("train_ways", 2)):
            value = getattr(self, key)
            if value is not None:
                require_whole(key, value, least, LARGE)
        if not isinstance(self.x, Tensor):
            self.x = layout({"train": numeric(self.x, "x")}, [])["train"]
        if self.x.is_floating_point() and (bad := int((~self.x.isfinite().flatten(1).all(1)).sum())):
            raise RequestError(f"x has NaN or infinite values in {bad} examples: replace them, or leave those out")
        self.y, self.labels = numbered(self.y, self.names)
        if len(self.x) != len(self.y):
            raise RequestError(f"there are {len(self.x)} examples but {len(self.y)} labels: give one for each")
        self.shape = tuple(self.x.shape[1:])
        self.pictures = len(self.shape) == 3
        if self.rotations and not (self.pictures and self.shape[1] == self.shape[2]):
            raise RequestError(f"examples of shape {self.shape} cannot be turned: rotations need square images")
        self.classes = [str(i + 1) for i in range(self.ways)]
        self.model = self.model or self.recipe.model
        chosen = disjoint(self.splits or carve(self.y.unique(), self.seed), self.labels)
        self.tables = {split: self._table(split, chosen.get(split, ())) for split in SPLITS}
        self.mean, self.std = statistics(self.x[self.tables["train"][0].unique()])

    def _table(self, split: str, classes: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The examples of every class of a split: indices (classes, most), padded with the first, and counts."""
        if not len(classes):
            if split == "train":
                raise RequestError("the split 'train' has no classes: tasks are drawn from them")
            setattr(self, f"{split}_tasks", 0)
            return torch.zeros(0, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
        ways = self._ways(split)
        turned = " (each counts four times, turned)" if self.rotations else ""
        if len(classes) * (4 if self.rotations else 1) < ways:
            raise RequestError(
                f"the split {split!r} has {len(classes)} classes{turned}: {ways}-way tasks need {ways}; take fewer "
                "ways, or name the classes of every split (splits, --splits)"
            )
        order = self.y.argsort(stable=True)
        counts = torch.bincount(self.y, minlength=len(self.labels))
        begins = counts.cumsum(0) - counts
        needed = self.shots + self.queries
        for label in classes:
            if counts[label] < needed:
                raise RequestError(
                    f"class {self.labels[label]!r} has {int(counts[label])} images: {self.shots} shots and "
                    f"{self.queries} queries need {needed}; take fewer, or leave the class out"
                )
        chosen = torch.as_tensor(list(classes))
        places = torch.arange(int(counts[chosen].max()))
        places = torch.where(places < counts[chosen, None], places, 0)
        return order[begins[chosen, None] + places], counts[chosen]

    @property
    def recipe(self) -> TaskRecipe:
        return recipe_of(self.shape)

    def _ways(self, split: str) -> int:
        return self.train_ways if split == "train" and self.train_ways is not None else self.ways

    def block(self, split: str, draw: torch.Generator) -> tuple[Tensor, ...]:
        """Which examples (tasks, ways, shots + queries), and how often each class is turned (tasks, ways).

        In the tasks that judge, all classes come up equally often: no accuracy hangs on which ones were drawn.
        """
        table, counts = self.tables[split]
        turns = 4 if self.rotations else 1
        # the positions of the largest random numbers are a draw without replacement
        keys = torch.rand(BLOCK, len(table) * turns, generator=draw)
        ways = self._ways(split)
        classes = keys.topk(ways).indices if split == "train" else dealt(keys, ways)
        chosen, turned = classes // turns, classes % turns
        keys = torch.rand(*chosen.shape, table.shape[1], generator=draw)
        keys.masked_fill_(torch.arange(table.shape[1]) >= counts[chosen][..., None], -1.0)
        places = keys.topk(self.shots + self.queries).indices
        return table[chosen[..., None], places], turned

    def examples(self, split: str, count: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Any ``count`` examples of a split, with the numbers of their classes (turned ones have their own)."""
        table, counts = self.tables[split]
        turns = 4 if self.rotations else 1
        draw = torch.Generator().manual_seed(seed)
        labels = torch.randint(len(table) * turns, (count,), generator=draw)
        chosen = labels // turns
        places = (torch.rand(count, generator=draw) * counts[chosen]).long()
        x = self.pixels(table[chosen, places][None, :, None].to(device), (labels % turns)[None].to(device))
        return x.view(count, *self.shape), labels.to(device)

    def count(self, split: str) -> int:
        """The classes of a split, turned ones included."""
        return len(self.tables[split][0]) * (4 if self.rotations else 1)

    def pixels(self, examples: Tensor, turned: Tensor) -> Tensor:
        """The normalised examples (tasks, ways, n, …), turned."""
        x = self._on(examples.device)[examples.flatten()]
        x = normalise(x, self.mean.to(x.device), self.std.to(x.device)).view(*examples.shape, *self.shape)
        return turn(x, turned) if self.rotations else x

    def batch(self, split: str, drawn: tuple[Tensor, ...], device: torch.device) -> TaskBatch:
        examples, turned = (rows.to(device, non_blocking=True) for rows in drawn)
        tasks, ways, each = examples.shape
        x = self.pixels(examples, turned)
        y = torch.arange(ways, device=device).expand(tasks, ways)
        k = self.shots
        return (
            x[:, :, :k].reshape(tasks, ways * k, *self.shape), y.repeat_interleave(k, 1),
            x[:, :, k:].reshape(tasks, ways * (each - k), *self.shape), y.repeat_interleave(each - k, 1),
        )  # fmt: skip

    def _on(self, device: torch.device) -> Tensor:
        """The examples on the device, moved there once."""
        if self.x.device != device:
            self.x = self.x.to(device)
        return self.x

    def embedded(self, features: Callable[[Tensor], Tensor]) -> Episodes:
        """The same tasks of what ``features`` says of every example, computed once; turned classes are classes then."""
        turns = 4 if self.rotations else 1
        device = self.x.device
        pieces = [
            features(self.pixels(rows[None, :, None], torch.full((1, len(rows)), turn, device=device))[0, :, 0])
            for turn in range(turns)
            for rows in torch.arange(len(self.x), device=device).split(PIECE)
        ]
        splits = {
            split: [turns * label + turn for label in held for turn in range(turns)]
            for split, held in self.describe()["splits"].items()
        }
        return Episodes(
            name=self.name, x=torch.cat(pieces).float(),
            y=torch.cat([turns * self.y + turn for turn in range(turns)]), splits=splits, ways=self.ways,
            shots=self.shots, queries=self.queries, train_ways=self.train_ways, seed=self.seed,
            per_epoch=self.per_epoch, val_tasks=self.val_tasks, test_tasks=self.test_tasks,
        )  # fmt: skip

    def normalisation(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def describe(self) -> dict[str, Any]:
        content = hashlib.sha256(self.y.cpu().numpy().tobytes() + self.x.cpu().numpy().tobytes()).hexdigest()[:16]
        tables = {
            split: sorted(set(self.y.cpu()[table.flatten()].tolist())) for split, (table, _) in self.tables.items()
        }
        return super().describe() | {
            "ways": self.ways, "queries": self.queries, "rotations": self.rotations, "train_ways": self.train_ways,
            "splits": tables, "content": content,
        }  # fmt: skip


def dealt(keys: Tensor, ways: int) -> Tensor:
    """Classes (tasks, ways) by random keys (tasks, classes): those that came up least so far, and of these at random.

    >>> dealt(torch.rand(6, 4), 2).flatten().bincount()
    tensor([3, 3, 3, 3])
    """
    seen = torch.zeros(keys.shape[1])
    found = []
    for each in keys:
        found.append((each - seen).topk(ways).indices)
        seen[found[-1]] += 1
    return torch.stack(found)


def numbered(y: Any, names: Sequence[str] | None) -> tuple[Tensor, list[str]]:
    """The number of every example's class, and the names by number.

    >>> numbered(["cat", "dog", "cat"], None)
    (tensor([0, 1, 0]), ['cat', 'dog'])
    """
    held = y if isinstance(y, Tensor) else np.asarray(y)
    if not isinstance(held, Tensor) and held.dtype.kind not in "biuf":
        words = [str(word) for word in held.ravel()]
        known = {name: i for i, name in enumerate(sorted(set(words)) if names is None else names)}
        if strange := set(words) - set(known):
            raise unknown("class in y", min(strange), known)
        held, names = torch.tensor([known[word] for word in words]).view(held.shape), list(known)
    labels = torch.as_tensor(held)
    if labels.ndim != 1 or not len(labels) or labels.is_floating_point() or int(labels.min()) < 0:
        raise RequestError(f"y has shape {tuple(labels.shape)} and type {labels.dtype}: give a class from 0 for each")
    count = int(labels.max()) + 1
    if names is not None and len(names) < count:
        raise RequestError(f"y holds class {count - 1}, and there are {len(names)} names: give one for each")
    return labels.long(), [str(i) for i in range(count)] if names is None else list(names)


def carve(classes: Tensor, seed: int) -> dict[str, list[int]]:
    """64, 16 and 20 % of the classes, as miniImageNet and CIFAR-FS divide theirs, drawn by seed."""
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(mix(seed, 5)))].tolist()
    train, val = round(0.64 * len(order)), round(0.16 * len(order))
    return {
        "train": sorted(order[:train]),
        "val": sorted(order[train : train + val]),
        "test": sorted(order[train + val :]),
    }


def disjoint(splits: Mapping[str, Sequence[int | str]], names: Sequence[str]) -> dict[str, list[int]]:
    """The classes of every split, by number. A class that is trained on is no new one: overlaps are refused.

    >>> disjoint({"train": ["cat", 2], "test": ["dog"]}, ["cat", "dog", "fox"])
    {'train': [0, 2], 'test': [1]}
    """
    number = {name: i for i, name in enumerate(names)}
    held: dict[int, str] = {}
    found: dict[str, list[int]] = {}
    for split, classes in splits.items():
        if split not in SPLITS:
            raise RequestError(f"splits hold {split!r}: give train, val and test")
        found[split] = []
        for one in classes.tolist() if isinstance(classes, Tensor) else classes:
            label = number.get(one, -1) if isinstance(one, str) else one
            if not is_whole(label, 0, len(names) - 1):
                raise RequestError(
                    f"the split {split!r} names class {one!r}: give names, or numbers from 0 to {len(names) - 1}"
                )
            if label in held:
                where = f"twice in {split}" if held[label] == split else f"in both {held[label]} and {split}"
                raise RequestError(f"class {names[label]!r} is {where}: each class belongs to one split, once")
            held[label] = split
            found[split].append(int(label))
    return found


def turn(x: Tensor, times: Tensor) -> Tensor:
    """Square images (tasks, ways, n, C, H, H), those of each class turned by 90° so many ``times`` (tasks, ways)."""
    side = x.shape[-1]
    pixels = torch.arange(side * side, device=x.device).view(side, side)
    sources = torch.stack([pixels.rot90(k).flatten() for k in range(4)])[times]  # (tasks, ways, pixels)
    flat = x.flatten(-2)
    return flat.gather(-1, sources[:, :, None, None].expand(flat.shape)).view(x.shape)
