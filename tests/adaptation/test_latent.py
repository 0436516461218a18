"""LEO against its equations, one example after another, and its meta-gradient against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow import Episodes, RequestError
from fallow.adaptation.attenuation import Attenuator
from fallow.adaptation.features import Features, of_tasks
from fallow.adaptation.latent import LatentLearner, LEONetwork, losses_of

WIDTH, LATENT, WAYS, SHOTS, TASKS, STEPS, TUNING = 6, 3, 3, 2, 2, 2, 2


def learner(attenuate: str = "") -> LatentLearner:
    torch.manual_seed(0)
    made: list[Attenuator | None] = [None, None]
    if attenuate:
        sizes = [{str(i): i for i in range(count)} for count in (LATENT, WIDTH)]
        made = [Attenuator(each, 3, None, 0.7, constant=attenuate == "constant") for each in sizes]
    net = LEONetwork(WIDTH, LATENT, 0.5, 0.3)
    return LatentLearner(
        net, ways=WAYS, steps=STEPS, tuning_steps=TUNING, of_codes=made[0], of_weights=made[1]
    ).double()  # fmt: skip


def features_of_tasks() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    x, query_x = torch.randn(TASKS, WAYS * SHOTS, WIDTH).double(), torch.randn(TASKS, WAYS * 3, WIDTH).double()
    return x, torch.arange(WAYS).repeat(TASKS, SHOTS), query_x, torch.arange(WAYS).repeat(TASKS, 3)


def noise() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    codes = torch.randn(TASKS, WAYS, LATENT, generator=draw, dtype=torch.float64)
    return codes, torch.randn(TASKS, STEPS + 1, WAYS, WIDTH, generator=draw, dtype=torch.float64)


def test_the_encoder_is_the_mean_over_all_pairs() -> None:
    net, (x, y, *_) = learner().net, features_of_tasks()
    mean, std = net.encode(x, y, WAYS)
    for task in range(TASKS):
        for way in range(WAYS):
            mine = [i for i in range(WAYS * SHOTS) if y[task, i] == way]
            related = [
                net.relation(torch.cat([net.encoder(x[task, i]), net.encoder(x[task, j])]))
                for i in mine
                for j in range(WAYS * SHOTS)
            ]
            found = sum(related) / (WAYS * SHOTS**2)
            torch.testing.assert_close(mean[task, way], found[:LATENT])
            torch.testing.assert_close(std[task, way], found[LATENT:].exp())


@pytest.mark.parametrize("attenuate", ["", "task"])
def test_the_path_is_that_of_a_naive_loop(attenuate: str) -> None:
    made, (x, y, *_) = learner(attenuate), features_of_tasks()
    net, drawn = made.net, noise()
    found = made.path(x, y, drawn)
    assert len(found) == 1 + STEPS + TUNING
    mean, std = net.encode(x, y, WAYS)
    for task in range(TASKS):

        def loss(w: Tensor, task: int = task) -> Tensor:
            return functional.cross_entropy(x[task] @ w.T, y[task])

        def decode(z: Tensor, step: int, task: int = task) -> Tensor:
            out = net.decoder(z)
            return out[:, :WIDTH] + (2 / (LATENT + WIDTH)) ** 0.5 * out[:, WIDTH:].exp() * drawn[1][task, step]

        z = mean[task] + std[task] * drawn[0][task]
        if attenuate:
            here = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(loss(decode(here, 0)), here)
            z = made.of_codes(slope.mean(0)) * z
        for step in range(STEPS):
            torch.testing.assert_close(found[step][task], decode(z, step))
            z = z - net.rate * torch.autograd.grad(loss(decode(z, step)), z, create_graph=True)[0]
        w = decode(z, STEPS)
        torch.testing.assert_close(found[STEPS][task], w)
        if attenuate:
            here = w.detach().requires_grad_()
            w = made.of_weights(torch.autograd.grad(loss(here), here)[0].mean(0)) * w
        for step in range(TUNING):
            w = w - net.tuning_rate * torch.autograd.grad(loss(w), w, create_graph=True)[0]
            torch.testing.assert_close(found[STEPS + 1 + step][task], w)


@pytest.mark.parametrize("attenuate", ["", "constant"])
def test_the_meta_gradient_equals_finite_differences(attenuate: str) -> None:
    made, (x, y, query_x, query_y) = learner(attenuate), features_of_tasks()

    def loss() -> Tensor:
        return losses_of(query_x, query_y, made.path(x, y, noise())[-1]).mean()

    names = [name for name, _ in made.named_parameters()]
    found = torch.autograd.grad(loss(), list(made.parameters()))
    for name, p, gradient in zip(names, made.parameters(), found, strict=True):
        place = int(gradient.abs().argmax())
        with torch.no_grad():
            p.view(-1)[place] += 1e-5
            above = float(loss())
            p.view(-1)[place] -= 2e-5
            below = float(loss())
            p.view(-1)[place] += 1e-5
        assert float(gradient.view(-1)[place]) == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-9), name
    assert {"net.rate", "net.tuning_rate"} <= set(names)


def test_without_noise_the_path_is_that_of_the_means_and_has_no_graph() -> None:
    made, (x, y, *_) = learner(), features_of_tasks()
    with torch.no_grad():
        found = made.path(x, y)
    zeros = tuple(torch.zeros_like(part) for part in noise())
    for a, b in zip(found, made.path(x, y, zeros), strict=True):
        torch.testing.assert_close(a, b.detach())
        assert not a.requires_grad


def test_orthogonality_is_the_distance_of_the_correlations_from_none() -> None:
    net = learner().net
    correlations = torch.corrcoef(net.decoder.weight.detach())
    expected = (correlations - torch.eye(len(correlations)).double()).square().mean()
    torch.testing.assert_close(net.orthogonality().detach(), expected)


@pytest.mark.parametrize("rotations", [False, True])
def test_embedded_tasks_are_the_same_tasks(rotations: bool, tasks: Episodes) -> None:
    images = Episodes(x=tasks.x, y=tasks.y, ways=3, shots=1, queries=2, rotations=rotations)
    torch.manual_seed(0)
    features = Features(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 3)))
    with torch.no_grad():
        fixed = images.embedded(features)
        for split in ("train", "test"):
            x, y, query_x, query_y = images.draw(split, 60, 8)
            found = fixed.draw(split, 60, 8)
            wanted = [(part - fixed.mean) / fixed.std for part in of_tasks(features, x, query_x)]
            torch.testing.assert_close(found[0], wanted[0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(found[2], wanted[1], atol=1e-4, rtol=1e-4)
            assert torch.equal(found[1], y)
            assert torch.equal(found[3], query_y)


def test_leo_wants_features_that_were_learned(tasks: Episodes) -> None:
    few = {"iterations": 2, "every": 1}
    with pytest.raises(RequestError, match="leo uses what a network has learned before, and mlp starts afresh"):
        fallow.fewshot("mlp", tasks, "leo", **few)
    given = Episodes(
        x=torch.randn(120, 8), y=torch.arange(120) // 6, ways=3, shots=1, queries=2, val_tasks=4, test_tasks=4
    )
    result = fallow.fewshot("mlp:hidden=()", given, "leo:latent=4+l2f", **few)  # features as data need no body
    assert result.test.losses.shape == (11, 4)
    assert any(name.startswith("learner.of_weights.net") for name in result.model.state_dict())
    with pytest.raises(RequestError, match="leo and anil do not go together: both decide what adapts"):
        fallow.LEO() + fallow.ANIL()
