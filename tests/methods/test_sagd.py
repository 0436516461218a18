from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import fallow
from fallow.methods import SAGD
from fallow.methods.forget.sagd import climb
from tests.core.small import TINY, Net, equal, points, weights


def climbs(method: SAGD, overall: float, times: int = 4000) -> float:
    """The share of steps that climb at this moment of the training."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    draw = torch.Generator().manual_seed(0)
    ctx = SimpleNamespace(rng=draw, clock=SimpleNamespace(overall=overall), model=model, optimizer=optimizer)
    turned = 0
    for _ in range(times):
        torch.nn.init.zeros_(model.weight)
        model.weight.grad = torch.ones(1, 2)  # the bias has none
        method.before_step(ctx)
        up = model.weight.grad is None
        assert model.weight.tolist() == [[0.5 * method.scale * up] * 2]
        turned += up
    return turned / times


class Watched(SAGD):
    """Keeps the loss of the batch before and after every step, and whether the step climbed."""

    name = "watched"

    def begin(self, ctx) -> None:
        self.steps: list[tuple[bool, float, float]] = []

    def update(self, ctx, gradients):
        before = gradients().item()
        ctx.step()
        climbed = ctx.model.first.weight.grad is None
        self.steps.append((climbed, before, gradients().item()))
        return torch.tensor(before)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_climbing_step_raises_the_loss_whatever_the_momentum(momentum: float) -> None:
    spy = Watched(0.3)
    fallow.fit(
        Net(), points(), spy, lr=0.02, momentum=momentum, weight_decay=0.0, batch_size=16, epochs=100, generations=1
    )
    up = [after - before for climbed, before, after in spy.steps if climbed]
    assert len(up) > 5
    assert min(up) > 0


def test_momentum_stays_as_it_was_while_climbing() -> None:
    model = nn.Linear(2, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.2)
    for _ in range(2):
        model(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
        optimizer.step()
    kept = [optimizer.state[p]["momentum_buffer"].clone() for p in model.parameters()]
    wanted = [p.detach() * (1 - 0.1 * 0.2) + 0.1 * 0.5 * p.grad for p in model.parameters()]
    climb(optimizer, 0.5)
    optimizer.step()
    for p, value, buffer in zip(model.parameters(), wanted, kept, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=1e-14, atol=1e-14)
        assert torch.equal(optimizer.state[p]["momentum_buffer"], buffer)


@pytest.mark.parametrize("overall", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_climbs_as_often_as_it_says(probability: float, overall: float) -> None:
    wanted = probability * (1 - overall)
    found = climbs(SAGD(probability, scale=0.5), overall)
    assert abs(found - wanted) < 4 * (wanted * (1 - wanted) / 4000) ** 0.5


def test_cools_down_to_nothing() -> None:
    shares = [climbs(SAGD(0.4), t) for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0
    assert climbs(SAGD(0.0), 0.0) == 0


def test_weight_decay_shrinks_whichever_way_the_gradient_points() -> None:
    """With a loss that is flat, climbing and descending are the same: w shrinks by 1 − ηλ a step."""
    net = Net()
    start = weights(net)
    fallow.fit(
        net, points(), SAGD(0.49), loss=lambda output, y: 0 * output.sum(), lr=0.1, weight_decay=0.5, momentum=0.0,
        schedule="constant", generations=1, epochs=5, batch_size=8,
    )  # fmt: skip
    for name, value in weights(net).items():
        torch.testing.assert_close(value, start[name] * 0.95**10)


def test_a_probability_of_0_is_ordinary_training() -> None:
    a = fallow.fit(Net(), points(), SAGD(0.0), **TINY).network
    b = fallow.fit(Net(), points(), "long", **TINY).network
    assert equal(weights(a), weights(b))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a decay is learned better from longer trainings
@pytest.mark.parametrize(
    ("one", "other", "lr"),
    [
        ("sagd:probability=0.4", "swa:start=0.5", 0.05),
        ("implicit-decay:inner=8,warmup=8", "seal:share=0.5", 1e-4),  # whose ascent is hastened
        ("implicit-decay:inner=8,warmup=8", "seal:share=0.5,ascent=adaptive", 0.05),
    ],
)
def test_in_either_order_a_climb_has_the_rate_of_its_moment_and_no_decay_in_its_gradient(
    one: str, other: str, lr: float
) -> None:
    settings = {"generations": 2, "epochs": 8, "batch_size": 16, "momentum": 0.9, "lr": lr, "label_smoothing": 0}
    a, b = (
        weights(fallow.fit(Net(dtype=torch.float64), points(64), spec, **settings).model)
        for spec in (f"{one}+{other}", f"{other}+{one}")
    )
    assert equal(a, b)
