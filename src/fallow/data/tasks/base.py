"""What tasks are: numbered, each a function of (seed, split, number) alone, drawn many at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown
from fallow.base.seeds import mix
from fallow.data.content import together
from fallow.data.targets import Classes, Target
from fallow.data.tasks.recipe import OTHER, TaskRecipe

SPLITS = ("train", "val", "test")
NUMBERS = 1 << 19  # in the inputs of tasks that are evaluated side by side
LARGE = 10_000  # classes or examples in a task
BLOCK = 64  # tasks drawn at a time, so that a task does not depend on the size of the meta-batch

Kind = TypeVar("Kind", bound="Tasks")

# support inputs (B, n, …) and targets (B, n, …), query inputs and targets
TaskBatch = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(eq=False, kw_only=True)
class Tasks:
    """A distribution of tasks, each with a support set to adapt to and a query set to be judged by.

    A subclass draws blocks of tasks (:meth:`block`), in whatever form is cheap to keep, and makes meta-batches of
    them (:meth:`batch`). The training tasks follow from the training's seed; those for validation and test from
    ``seed``, so that all methods and all trainings are judged by the same ones.
    """

    name: str
    shape: tuple[int, ...]  # of one input
    classes: list[str]  # one for each number that the model gives
    loss: Callable[[Tensor, Tensor], Tensor]  # of (output, targets) of one task
    model: str  # what to take when no model is named; "": the recipe's
    shots: int
    seed: int = 0
    per_epoch: int = 500  # meta-batches between two looks at validation
    val_tasks: int = 100
    test_tasks: int = 600
    notes: list[str] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    pictures: bool = False

    def block(self, split: str, draw: torch.Generator) -> tuple[Tensor, ...]:
        """``BLOCK`` tasks as tensors on the CPU; the first axis counts tasks."""
        raise NotImplementedError

    def batch(self, split: str, drawn: tuple[Tensor, ...], device: torch.device) -> TaskBatch:
        """The meta-batch that these rows of blocks stand for, on the device."""
        raise NotImplementedError

    def draw(
        self, split: str, first: int, count: int, *, seed: int | None = None, device: torch.device | str = "cpu"
    ) -> TaskBatch:
        """The tasks ``first`` to ``first + count`` of a split, the same ones at every call.

        >>> from fallow.data.tasks import Sinusoid
        >>> x, y, query_x, query_y = Sinusoid(shots=5).draw("train", 0, 3)
        >>> x.shape, query_x.shape
        (torch.Size([3, 5, 1]), torch.Size([3, 5, 1]))
        """
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        return self.batch(split, self._rows(split, first, count, seed), torch.device(device))

    def _rows(self, split: str, first: int, count: int, seed: int | None) -> tuple[Tensor, ...]:
        pieces = []
        chosen = self.seed if seed is None else seed
        while count > 0:
            number, begin = divmod(first, BLOCK)
            end = min(BLOCK, begin + count)
            pieces.append([rows[begin:end] for rows in self._block(split, number, chosen)])
            first, count = first + end - begin, count - (end - begin)
        return tuple(torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*pieces, strict=True))

    def _block(self, split: str, number: int, seed: int) -> tuple[Tensor, ...]:
        key = (split, number, seed)
        kept = self.__dict__.setdefault("_kept", {})
        if key not in kept:
            generator = torch.Generator().manual_seed(mix(seed, SPLITS.index(split), number))
            kept[key] = self.block(split, generator)
            if len(kept) > 2:  # a meta-batch may lie across two
                del kept[next(iter(kept))]
        return kept[key]

    def changed(self: Kind, **changes: Any) -> Kind:
        """The same tasks with other counts or another seed."""
        other = copy.copy(self)
        for key, value in changes.items():
            setattr(other, key, value)
        other.__dict__.pop("_kept", None)
        return other

    def stream(
        self,
        split: str,
        *,
        batch_size: int,
        seed: int,
        device: torch.device | str = "cpu",
        rank: int = 0,
        world: int = 1,
        kind: torch.dtype = torch.float32,
    ) -> TaskStream | None:
        """What the loop iterates: meta-batches of ``batch_size`` tasks over all processes; None if there are none."""
        count = {"train": None, "val": self.val_tasks, "test": self.test_tasks}[split]
        if count == 0:
            return None
        return self.streams(self, split, batch_size, count, seed, torch.device(device), rank, world, kind)

    @property
    def streams(self) -> type[TaskStream]:
        """What a split is iterated by."""
        return TaskStream

    @property
    def recipe(self) -> TaskRecipe:
        """What to do when nothing is said: the inner loop, and the meta-training."""
        return OTHER

    @property
    def target(self) -> Target:
        """What the tasks' targets are: classes, or the numbers that the model gives."""
        return Classes(self.classes)

    @property
    def overlap(self) -> float:
        """Of the test tasks of two seeds, for the statistics: they are the same ones, as from a test set of its own."""
        return 0.0

    def content(self) -> str:
        """What identifies the tasks, whatever the training's seed."""
        return together(self.describe())

    def understood(self, augment: str = "none") -> str:
        """What was understood, in a sentence."""
        kind = f"{len(self.classes)}-way {self.shots}-shot" if self.target.kind == "classes" else f"{self.shots}-shot"
        return f"{kind} tasks, {self.val_tasks} for validation and {self.test_tasks} for test"

    def normalisation(self) -> dict[str, Any] | None:
        """How inputs were centred and scaled, if they were."""
        return None

    def describe(self) -> dict[str, Any]:
        """As plain values, for the record of a run."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "classes": self.classes,
            "sizes": {"train": None, "val": self.val_tasks, "test": self.test_tasks},
            "shots": self.shots,
            "seed": self.seed,
            "per_epoch": self.per_epoch,
        }


@dataclass
class TaskStream:
    """Meta-batches of one split: an endless supply for training, a fixed number of tasks for evaluation."""

    tasks: Tasks
    split: str
    batch_size: int
    count: int | None  # of tasks; None: endless
    seed: int
    device: torch.device
    rank: int = 0
    world: int = 1
    kind: torch.dtype = torch.float32
    resumable: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < self.world:
            raise RequestError(
                f"a meta-batch of {self.batch_size} tasks is too small for {self.world} processes: "
                "each needs one task at least"
            )

    @property
    def steps(self) -> int:
        """Meta-batches in an epoch."""
        return self.tasks.per_epoch

    def mine(self, count: int) -> tuple[int, int]:
        """The tasks of this process, of ``count``."""
        return self.rank * count // self.world, (self.rank + 1) * count // self.world

    def share(self, step: int) -> float:
        """n_local · world / n_global of a meta-batch: 1 in one process."""
        begin, end = self.mine(self.batch_size)
        return (end - begin) * self.world / self.batch_size

    def epoch(self, index: int, start: int = 0) -> Iterator[TaskBatch]:
        """The meta-batches of epoch ``index`` from step ``start``."""
        begin, end = self.mine(self.batch_size)
        for step in range(index * self.steps + start, (index + 1) * self.steps):
            first = step * self.batch_size + begin
            yield self._cast(self.tasks.draw(self.split, first, end - begin, seed=self.seed, device=self.device))

    def ordered(self) -> Iterator[TaskBatch]:
        """For evaluation: this process's tasks of the ``count``, in meta-batches."""
        begin, end = self.mine(BLOCK if self.count is None else self.count)
        for first in range(begin, end, self.together):
            yield self._cast(self.tasks.draw(self.split, first, min(self.together, end - first), device=self.device))

    def _cast(self, batch: TaskBatch) -> TaskBatch:
        x, y, query_x, query_y = (part.to(self.kind) if part.is_floating_point() else part for part in batch)
        return x, y, query_x, query_y

    @cached_property
    def together(self) -> int:
        """Tasks to evaluate side by side: as many as keep their inputs small; it needs no graph."""
        x, _, query_x, _ = self.tasks.draw(self.split, 0, 1)
        return max(1, min(BLOCK, NUMBERS // (x.numel() + query_x.numel())))
