from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

import fallow
from fallow.core.method import Method
from fallow.data.targets import Classes
from fallow.methods import BornAgain
from tests.core.small import TINY, Net, equal, points, weights


def by_hand(z, teacher, y, alpha: float, temperature: float) -> float:
    """(1 − α)·CE(z, y) + α·T²·KL(softmax(z̄/T) ‖ softmax(z/T)), example by example."""

    def softmax(row: list[float], t: float) -> list[float]:
        powers = [math.exp(value / t) for value in row]
        return [power / sum(powers) for power in powers]

    total = 0.0
    for row, soft, label in zip(z.tolist(), teacher.tolist(), y.tolist(), strict=True):
        q, p = softmax(row, temperature), softmax(soft, temperature)
        distance = sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True))
        total += -(1 - alpha) * math.log(softmax(row, 1.0)[label]) + alpha * temperature**2 * distance
    return total / len(y)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_loss_is_the_formula(alpha: float, temperature: float) -> None:
    student, teacher = Net(3, seed=1, dtype=torch.float64), Net(3, seed=2, dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    x, y = 3 * torch.randn(6, 4, generator=draw, dtype=torch.float64), torch.arange(6) % 3
    method = BornAgain(alpha, temperature)
    ctx = SimpleNamespace(
        model=student, predict=student, criterion=torch.nn.functional.cross_entropy, target=Classes("abc"),
        spend=lambda passes: None,
    )  # fmt: skip
    method.begin(ctx)
    method.teacher, method.taught = teacher, True
    wanted = by_hand(student(x), teacher(x), y, alpha, temperature)
    assert method.loss(ctx, (x, y)).item() == pytest.approx(wanted, rel=1e-13)


class Edges(Method):
    name = "edges"

    def begin(self, ctx) -> None:
        self.born, self.grown, self.teachers = [], [], []

    def begin_generation(self, ctx) -> None:
        self.born.append(weights(ctx.model))

    def end_generation(self, ctx) -> None:
        self.grown.append(weights(ctx.model))
        self.teachers.append(weights(ctx.method.methods[0].teacher))


def test_each_generation_is_fresh_and_taught_by_the_one_before() -> None:
    edges = Edges()
    fallow.fit("mlp:hidden=16", points(), BornAgain() + edges, **(TINY | {"generations": 3}))
    assert equal(edges.teachers[1], edges.grown[0])
    assert equal(edges.teachers[2], edges.grown[1])
    for before, after in zip(edges.grown, edges.born[1:], strict=False):
        assert not torch.equal(before["hidden1.linear.weight"], after["hidden1.linear.weight"])
        assert after["hidden1.linear.bias"].count_nonzero() == 0  # as at the start
