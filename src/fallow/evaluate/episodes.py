"""How well tasks are learned: mean and 95 % interval over many of them, before adaptation and after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fallow.evaluate.statistics import Estimate, interval


@dataclass
class Evaluation:
    """Query losses of tasks (steps + 1, tasks), and accuracies where targets are classes.

    >>> found = Evaluation(torch.tensor([[3.0, 5.0], [1.0, 2.0]]), None)
    >>> found.loss.mean, [step.mean for step in found.steps]
    (1.5, [4.0, 1.5])
    """

    losses: Tensor
    accuracies: Tensor | None
    alone: Tensor | None = None  # (tasks,) of every query on its own, where the others' statistics count otherwise

    @property
    def tasks(self) -> int:
        """How many were judged."""
        return self.losses.shape[1]

    @property
    def loss(self) -> Estimate:
        """After adaptation, with Student's interval over tasks."""
        return interval(self.losses[-1].tolist())

    @property
    def accuracy(self) -> Estimate | None:
        """After adaptation, with Student's interval over tasks."""
        return None if self.accuracies is None else interval(self.accuracies[-1].tolist())

    @property
    def steps(self) -> list[Estimate]:
        """Accuracy (or loss, without classes) before adaptation and after each inner step."""
        rows = self.losses if self.accuracies is None else self.accuracies
        return [interval(row.tolist()) for row in rows]

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        found: dict[str, Any] = {"tasks": self.tasks, "loss": self.loss._asdict()}
        if self.accuracy is not None:
            found["accuracy"] = self.accuracy._asdict()
        if self.alone is not None:  # of what judges: accuracy, or else the loss
            found["inductive"] = interval(self.alone.tolist())._asdict()
        return found | {"steps": [step._asdict() for step in self.steps]}


def evaluate(judge: Callable[[Any], Any], batches: Iterable[Any], all_reduce: Callable[..., Any] | None = None,
             place: tuple[int, int] | None = None) -> Evaluation:  # fmt: skip
    """Judge the tasks of all batches; with several processes each brings the tasks from ``place`` (first, of all)."""
    found = [judge(batch) for batch in batches]
    losses = torch.cat([each.losses for each in found], 1).double()
    right = [each.accuracies for each in found if each.accuracies is not None]
    accuracies = torch.cat(right, 1).double() if right else None
    apart = [each.alone for each in found if each.alone is not None]
    alone = torch.cat(apart).double()[None] if apart else None
    if all_reduce is not None and place is not None:

        def gathered(rows: Tensor) -> Tensor:
            first, count = place
            whole = rows.new_zeros(len(rows), count)
            whole[:, first : first + rows.shape[1]] = rows
            return all_reduce(whole, reduce_op="sum")

        losses = gathered(losses)
        accuracies, alone = (None if rows is None else gathered(rows) for rows in (accuracies, alone))
    return Evaluation(
        losses.cpu(), None if accuracies is None else accuracies.cpu(), None if alone is None else alone[0].cpu()
    )
