"""Loss and accuracy of a model on a stream of batches, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Score(NamedTuple):
    """A mean loss, and the accuracy where the targets are classes."""

    loss: float
    accuracy: float | None
    examples: int

    def better(self, other: Score | None) -> bool:
        """Whether this is the better score: by accuracy, then by loss."""
        if other is None:
            return True
        mine, theirs = self.accuracy or 0.0, other.accuracy or 0.0
        return mine > theirs or (mine == theirs and self.loss < other.loss)


@torch.no_grad()
def score(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    criterion: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    all_reduce: Callable[..., Any] | None = None,
    limit: int | None = None,
) -> Score:
    """Evaluate on all batches, or on those that hold the first ``limit`` examples.

    The terms stay on the device, so that the host waits only at the end; with ``all_reduce`` each process brings
    its own share of the batches.
    """
    training = model.training
    model.eval()
    losses: list[Tensor] = []
    correct: list[Tensor] = []
    classified = seen = 0
    try:
        for x, y in batches:
            output = model(x)
            losses.append(criterion(output, y) * len(x))
            if not y.is_floating_point() and output.ndim == y.ndim + 1:
                correct.append((output.argmax(1) == y).sum())
                classified += y.numel()
            seen += len(x)
            if limit is not None and seen >= limit:
                break
    finally:
        model.train(training)
    loss = sum(torch.stack(losses).tolist()) if losses else 0.0
    right = sum(torch.stack(correct).tolist()) if correct else 0
    examples = seen
    if all_reduce is not None:
        place = losses[0].device if losses else None
        sums = torch.tensor([loss, right, classified, seen], dtype=torch.float64, device=place)
        loss, right, classified, examples = all_reduce(sums, reduce_op="sum").tolist()
    if not examples:
        return Score(float("nan"), None, 0)
    return Score(loss / examples, right / classified if classified else None, int(examples))
