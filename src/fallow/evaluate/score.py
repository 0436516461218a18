"""Loss and metrics of a model on a stream of batches, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.evaluate.metrics import NO_LABEL
from fallow.weights.layers import modes_kept

if TYPE_CHECKING:
    from fallow.evaluate.metrics import Metric

Judge = Callable[[Tensor, Tensor], "dict[str, float]"]  # outputs and targets to metrics by name


class Score(NamedTuple):
    """A mean loss, the metrics by name, and the outputs that they are of."""

    loss: float
    metrics: dict[str, float]
    examples: int
    output: Tensor | None = None
    y: Tensor | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, where the targets are classes."""
        return self.metrics.get("accuracy")

    def row(self, part: str) -> dict[str, float]:
        """For the record of an epoch: ``val_loss``, ``val_accuracy``, …"""
        return {f"{part}_loss": self.loss} | {key_of(part, name): value for name, value in self.metrics.items()}

    def better(self, other: Score | None, metric: Metric | None) -> bool:
        """Whether this is the better score: by the metric in its own direction, then by loss; one without a number
        (AUROC of a single class) is the worst.
        """
        if other is None:
            return True
        if metric is None or not {metric.name} <= set(self.metrics) & set(other.metrics):
            return self.loss < other.loss
        mine, theirs = (metric.worth(score.metrics[metric.name]) for score in (self, other))
        return mine > theirs or (mine == theirs and self.loss < other.loss)


def key_of(part: str, metric: str) -> str:
    """A metric's key in a record.

    >>> key_of("test", "balanced-accuracy")
    'test_balanced_accuracy'
    """
    return f"{part}_{metric.replace('-', '_')}"


def right(output: Tensor, y: Tensor) -> dict[str, float]:
    """The accuracy alone, where the targets are classes."""
    if y.is_floating_point() or output.ndim != y.ndim + 1 or not y.numel():
        return {}
    if output.shape[1] == 1 or output[:, 0].shape != y.shape:
        return {}  # one output for two classes, or classes on another axis, as of tokens
    judged = int((y != NO_LABEL).sum())
    return {"accuracy": int((output.argmax(1) == y).sum()) / judged} if judged else {}


@torch.no_grad()
def score(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    criterion: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    judge: Judge = right,
    engine: Any = None,
    limit: int | None = None,
) -> Score:
    """Evaluate on all batches, or on those that hold the first ``limit`` examples.

    The host waits for the device only at the end; with an ``engine`` of several processes each brings its own share
    of the batches, and all get the same score.
    """
    losses: list[Tensor] = []
    found: list[tuple[Tensor, Tensor]] = []
    seen = 0
    with modes_kept(model):
        model.eval()
        for x, y in batches:
            output = model(x)
            losses.append(criterion(output, y) * len(y))
            found.append((output, y))
            seen += len(y)
            if limit is not None and seen >= limit:
                break
    if not found and (engine is None or engine.world_size == 1):
        return Score(float("nan"), {}, 0)
    loss = sum(torch.stack(losses).tolist()) if losses else 0.0
    output, y = (torch.cat(parts) for parts in zip(*found, strict=True))
    if engine is not None and engine.world_size > 1:
        sums = torch.tensor([loss, seen], dtype=torch.float64, device=output.device)
        loss, seen = engine.all_reduce(sums, reduce_op="sum").tolist()
        output, y = (gather(tensor, engine) for tensor in (output, y))
    return Score(loss / seen, judge(output, y), int(seen), output.cpu(), y.cpu())


def gather(mine: Tensor, engine: Any) -> Tensor:
    """The rows of all processes, in their order: each adds its own to zeros, for their numbers may differ."""
    counts = torch.zeros(engine.world_size, dtype=torch.long, device=mine.device)
    counts[engine.global_rank] = len(mine)
    counts = engine.all_reduce(counts, reduce_op="sum")
    before = int(counts[: engine.global_rank].sum())
    rows = mine.new_zeros(int(counts.sum()), *mine.shape[1:])
    rows[before : before + len(mine)] = mine
    return engine.all_reduce(rows, reduce_op="sum")
