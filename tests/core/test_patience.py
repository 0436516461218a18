"""Early stopping ends a generation, never the training, and never an ascent."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import fallow
from fallow.base.errors import RequestError
from fallow.core.method import Method
from tests.core.small import Net, points


class Script:
    """A loss whose values on validation and test are written down beforehand."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def __call__(self, output, y):
        loss = functional.cross_entropy(output, y)
        if torch.is_grad_enabled() or len(y) != 12:  # the validation part has twelve examples
            return loss
        return 0 * loss + self.values.pop(0)


def fit(loss: Script, method="restart", **settings) -> fallow.Result:
    defaults = {"generations": 2, "epochs": 6, "batch_size": 8, "patience": 2}
    return fallow.fit(Net(), points(), method, loss=loss, **(defaults | settings))


def test_the_generation_ends_and_the_next_begins() -> None:
    class Ends(Method):
        name = "ends"

        def end_generation(self, ctx) -> None:
            ends.append((ctx.clock.generation, ctx.clock.epoch, ctx.clock.progress))

    ends: list[tuple] = []
    result = fit(Script(3, 2, 2.5, 2, 5, 4, 3, 3.5, 3.5), fallow.methods.build("restart") + Ends())
    assert [(row["generation"], row["epoch"]) for row in result.history] == [
        (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5),
    ]  # fmt: skip
    assert ends == [(0, 6, 1), (1, 6, 1)]
    assert [record["epochs"] for record in result.generations] == [4, 5]
    assert result.steps == 2 * 9
    assert result.history[4]["lr"] == result.history[0]["lr"]  # the schedule restarts


def test_patience_counts_looks_at_validation() -> None:
    result = fit(Script(1, 2, 2, 1, 2, 2), epochs=20, evaluate_every=2)
    assert [record["epochs"] for record in result.generations] == [6, 6]


def test_no_generation_ends_during_an_ascent() -> None:
    """Four epochs climb and get ever worse; the six that relearn have all their patience left.

    The first epoch of the ascent has forgotten little, so that its loss is no measure of what comes after it.
    """
    losses = (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    again = (0.1, 3, 4, 5, 2, 1.9, 1.8, 1.7, 1.7, 1.7)
    result = fit(Script(*losses, *again), "seal:share=0.4,scale=0.5", epochs=10)
    assert [row["phase"] for row in result.history[10:]] == ["ascent"] * 4 + ["descent"] * 6
    assert [record["epochs"] for record in result.generations] == [10, 10]


def test_patience_needs_validation() -> None:
    with pytest.raises(RequestError, match="patience waits for a lower validation loss"):
        fallow.fit(Net(), points(val=False), patience=2)
