"""Not only decay: a label smoothing, noise on the inputs, weights of examples, learned by the same function."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow import hypergradient
from fallow.hypergradients.cleaning import ExampleWeights
from fallow.hypergradients.noise import InputNoise
from fallow.hypergradients.schedule import T1T2, MetaSchedule
from fallow.hypergradients.smoothing import LabelSmoothing
from fallow.hypergradients.solvers import CG, Exact, Identity
from tests.hypergradients.problems import minimise


def blobs(n: int, seed: int, wrong: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Three overlapping classes; a share of the labels is wrong, and which."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]], dtype=torch.float64)
    right = torch.arange(n) % 3
    x = centres[right] + torch.randn(n, 2, generator=draw, dtype=torch.float64)
    spoilt = torch.rand(n, generator=draw) < wrong
    return x, torch.where(spoilt, (right + 1) % 3, right), spoilt


def test_the_gradient_of_a_label_smoothing_is_that_of_the_argmin() -> None:
    (x, y, _), (val_x, val_y, _) = blobs(30, 0, wrong=0.1), blobs(30, 1)
    model, smoothing = nn.Linear(2, 3).double(), LabelSmoothing(0.1).double()

    def train_loss() -> Tensor:
        return smoothing(model(x), y) + 1e-3 * sum(p.square().sum() for p in model.parameters())

    def val_loss() -> Tensor:
        return functional.cross_entropy(model(val_x), val_y)

    params = list(model.parameters())
    minimise(train_loss, params)
    [found], _ = hypergradient(train_loss, val_loss, model, smoothing, Exact(damping=0.0))
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            smoothing.raw += sign * 1e-4
        minimise(train_loss, params)
        ends.append(val_loss().item())
        with torch.no_grad():
            smoothing.raw -= sign * 1e-4
    assert found.item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5)


def test_a_label_smoothing_is_learned() -> None:
    """Wrong labels in training and none in validation: its strength settles where the validation loss is lowest."""
    (x, y, _), (val_x, val_y, _) = blobs(60, 0, wrong=0.2), blobs(200, 1)
    model, smoothing = nn.Linear(2, 3).double(), LabelSmoothing(0.01).double()

    def train_loss() -> Tensor:
        return smoothing(model(x), y) + 1e-3 * sum(p.square().sum() for p in model.parameters())

    def val_loss() -> Tensor:
        return functional.cross_entropy(model(val_x), val_y)

    outer = torch.optim.Adam(smoothing.parameters(), lr=0.3)
    inner = torch.optim.LBFGS(model.parameters(), max_iter=50)

    def closure() -> Tensor:
        inner.zero_grad()
        loss = train_loss()
        loss.backward()
        return loss

    losses = []
    for _ in range(30):
        inner.step(closure)
        [smoothing.raw.grad], record = hypergradient(train_loss, val_loss, model, smoothing, CG(9))
        losses.append(record.val_loss)
        outer.step()
    learned = losses[-1]
    by_hand = []
    for strength in (0.01, 0.1, 0.2, 0.3, 0.4):
        with torch.no_grad():
            smoothing.raw.fill_(torch.tensor(strength).logit())
        inner.step(closure)
        by_hand.append(val_loss().item())
    assert learned < losses[0]
    assert learned <= min(by_hand) + 1e-3


def test_the_gradient_of_an_input_noise_is_that_of_the_argmin() -> None:
    (x, y, _), (val_x, val_y, _) = blobs(30, 0, wrong=0.1), blobs(30, 1)
    model, noise, draw = nn.Linear(2, 3).double(), InputNoise(0.4).double(), torch.Generator()

    def train_loss() -> Tensor:  # the same noise in every call
        decay = 1e-3 * sum(p.square().sum() for p in model.parameters())
        return functional.cross_entropy(model(noise(x, draw.manual_seed(2))), y) + decay

    def val_loss() -> Tensor:
        return functional.cross_entropy(model(val_x), val_y)

    params = list(model.parameters())
    minimise(train_loss, params)
    [found], _ = hypergradient(train_loss, val_loss, model, noise, Exact(damping=0.0))
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            noise.raw += sign * 1e-4
        minimise(train_loss, params)
        ends.append(val_loss().item())
        with torch.no_grad():
            noise.raw -= sign * 1e-4
    assert found.item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5)


def test_an_input_noise_is_learned() -> None:
    """Few examples of many features: noise is ridge regression, and settles at the validation loss of the best one."""
    draw = torch.Generator().manual_seed(0)
    true = torch.randn(10, generator=draw, dtype=torch.float64)
    x, val_x = (torch.randn(n, 10, generator=draw, dtype=torch.float64) for n in (15, 200))
    y, val_y = (i @ true + 3 * torch.randn(len(i), generator=draw, dtype=torch.float64) for i in (x, val_x))
    w, noise = torch.zeros(10, dtype=torch.float64, requires_grad=True), InputNoise(0.1).double()
    copies, copied = x.repeat(400, 1), y.repeat(400)

    def train_loss() -> Tensor:
        return (noise(copies, draw.manual_seed(1)) @ w - copied).square().mean()

    def val_loss() -> Tensor:
        return (val_x @ w - val_y).square().mean()

    outer = torch.optim.Adam(noise.parameters(), lr=0.3)
    for _ in range(40):
        with torch.no_grad():  # the argmin itself
            w.copy_(torch.linalg.lstsq(noise(copies, draw.manual_seed(1)), copied).solution)
        [noise.raw.grad], record = hypergradient(train_loss, val_loss, [w], noise, CG(10, 0.0))
        outer.step()

    def ridge(penalty: float) -> float:
        found = torch.linalg.solve(x.T @ x / 15 + penalty * torch.eye(10, dtype=x.dtype), x.T @ y / 15)
        return (val_x @ found - val_y).square().mean().item()

    best = min(ridge(penalty) for penalty in torch.logspace(-2, 1, 40).tolist())
    assert record.val_loss == pytest.approx(best, rel=0.02)
    assert best < 0.9 * ridge(0.01)  # where it began


def test_mislabelled_examples_lose_their_weight() -> None:
    (x, y, wrong), (val_x, val_y, _) = blobs(90, 0, wrong=0.3), blobs(60, 1)
    model, clean = nn.Linear(2, 3).double(), ExampleWeights(len(x)).double()

    def train_loss() -> Tensor:
        losses = functional.cross_entropy(model(x), y, reduction="none")
        return clean(losses) + 1e-2 * sum(p.square().sum() for p in model.parameters())

    def val_loss() -> Tensor:
        return functional.cross_entropy(model(val_x), val_y)

    inner = torch.optim.SGD(model.parameters(), lr=0.5)
    outer = torch.optim.Adam(clean.parameters(), lr=0.3)
    schedule = MetaSchedule(warmup=60, inner=20)
    for step in range(1, 461):
        inner.zero_grad()
        train_loss().backward()
        inner.step()
        if schedule.due(step):
            [clean.raw.grad], _ = hypergradient(train_loss, val_loss, model, clean, CG(5))
            outer.step()
    weights = clean.weights.detach()
    above = (weights[~wrong][:, None] > weights[wrong]).double().mean()
    assert above > 0.9  # of all pairs of a right and a wrong label
    assert weights[wrong].median() < 0.3 < weights[~wrong].median()


def test_schedules() -> None:
    t1t2 = T1T2()
    assert [t1t2.due(step) for step in (1, 2, 3)] == [True] * 3
    assert t1t2.solver == Identity()
    for settings in ({"inner": 0}, {"warmup": -1}, {"inner": 2.5}):
        with pytest.raises(fallow.RequestError, match="whole number of steps"):
            MetaSchedule(**settings)
    with pytest.raises(fallow.RequestError, match="above 0 and below 1"):
        LabelSmoothing(0.0)
    with pytest.raises(fallow.RequestError, match="above 0"):
        InputNoise(0.0)
