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

    The sums stay on the device, so that the host waits only once; with ``all_reduce`` each process brings
    its own share of the batches.
    """
    training = model.training
    model.eval()
    sums: Tensor | None = None  # loss, correct, classified, examples
    seen = 0
    try:
        for x, y in batches:
            output = model(x)
            classified = not y.is_floating_point() and output.ndim == y.ndim + 1
            correct = (output.argmax(1) == y).sum() if classified else output.new_zeros(())
            counts = output.new_tensor([float(y.numel() if classified else 0), float(len(x))], dtype=torch.float64)
            part = torch.stack([criterion(output, y).double() * len(x), correct.double()])
            part = torch.cat([part, counts])
            sums = part if sums is None else sums + part
            seen += len(x)
            if limit is not None and seen >= limit:
                break
    finally:
        model.train(training)
    if sums is None:
        sums = torch.zeros(4, dtype=torch.float64)
    if all_reduce is not None:
        sums = all_reduce(sums, reduce_op="sum")
    loss, right, classes, examples = sums.tolist()
    if not examples:
        return Score(float("nan"), None, 0)
    return Score(loss / examples, right / classes if classes else None, int(examples))
