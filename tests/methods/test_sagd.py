from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import fallow
from fallow.methods import SAGD
from tests.core.small import TINY, Net, equal, points, weights


def climbs(method: SAGD, overall: float, times: int = 4000) -> float:
    """The share of steps whose gradient is turned round at this moment of the training."""
    model = nn.Linear(2, 1)
    ctx = SimpleNamespace(rng=torch.Generator().manual_seed(0), clock=SimpleNamespace(overall=overall), model=model)
    turned = 0
    for _ in range(times):
        model.weight.grad = torch.ones(1, 2)  # the bias has none
        method.before_step(ctx)
        assert model.weight.grad.tolist() in ([[1, 1]], [[-method.scale] * 2])
        turned += int(model.weight.grad[0, 0] < 0)
    return turned / times


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
