"""Landscape and conflict of few-shot learning, against one task after another in plain autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fallow.adaptation.learner import Learner
from fallow.base.errors import RequestError
from fallow.data.tasks import Sinusoid
from fallow.diagnose import Conflict, Onlooker, conflict, landscape, meta_landscape
from fallow.diagnose.alike import alike
from fallow.diagnose.watched import draw
from fallow.methods.fewshot.anil import ANIL
from fallow.methods.fewshot.l2f import L2F
from fallow.methods.fewshot.rates import LearnedRates
from fallow.training.meta import fewshot

POINTS = (0.5, 2.0, 4.0)
PIECES = {"maml": [], "l2f": [L2F()], "anil": [ANIL()], "learned-rates": [LearnedRates()]}


@pytest.fixture(params=PIECES)
def learner(request: pytest.FixtureRequest) -> Learner:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))
    made = Learner(model, functional.cross_entropy, steps=2, rate=0.3, pieces=PIECES[request.param]).double()
    with torch.no_grad():
        if hasattr(made, "learned_rates"):
            made.learned_rates.rate.mul_(torch.rand_like(made.learned_rates.rate) + 0.5)
    return made


@pytest.fixture
def batch() -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    x, query = (torch.randn(4, n, 2, generator=draw, dtype=torch.float64) for n in (6, 8))
    return x, torch.arange(6).expand(4, 6) % 3, query, torch.arange(8).expand(4, 8) % 3


def one_loss(learner: Learner, params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(functional_call(learner.model, params, (x,)), y)


def steps_of_one(learner: Learner, theta: dict[str, Tensor], x: Tensor, y: Tensor):
    """The inner loop of one task as the papers write it: (θ_i, step u_i) before each step, then (θ_steps, {})."""
    params = theta
    if hasattr(learner, "attenuator"):
        found = dict(
            zip(params, torch.autograd.grad(one_loss(learner, params, x, y), list(params.values())), strict=True)
        )
        layers = ["0", "2"]
        means = [torch.cat([found[f"{i}.weight"].flatten(), found[f"{i}.bias"]]).mean() for i in layers]
        gamma = learner.attenuator.net(torch.stack(means).detach())
        params = {name: gamma[layers.index(name[0])] * p for name, p in params.items()}
    moving = [name for name in params if name.startswith("2") or learner.adapted == learner.names]
    for step in range(learner.steps):
        loss = one_loss(learner, params, x, y)
        found = torch.autograd.grad(loss, [params[name] for name in moving], create_graph=True)
        rates = dict.fromkeys(moving, torch.tensor(learner.rate, dtype=torch.float64))
        if hasattr(learner, "learned_rates"):
            rates = {name: learner.learned_rates.rate[step, int(name[0]) // 2] for name in moving}
        u = {name: rates[name] * g for name, g in zip(moving, found, strict=True)}
        yield params, u
        params = params | {name: params[name] - u[name] for name in moving}
    yield params, {}


def norm(tensors) -> float:
    return math.sqrt(sum(float(t.detach().square().sum()) for t in tensors))


def test_the_inner_landscape_is_that_of_one_task_after_another(learner: Learner, batch) -> None:
    found = landscape(learner, batch, points=POINTS)
    theta = {name: p.detach().requires_grad_() for name, p in learner.model.named_parameters()}
    for task in range(4):
        x, y = batch[0][task], batch[1][task]
        for step, (params, u) in enumerate(steps_of_one(learner, theta, x, y)):
            if not u:
                continue

            def gradient(share: float, params=params, u=u, x=x, y=y) -> tuple[list[Tensor], float]:
                there = {n: p.detach() - share * u[n].detach() if n in u else p.detach() for n, p in params.items()}
                leaves = {n: p.requires_grad_() for n, p in there.items()}
                loss = one_loss(learner, leaves, x, y)
                return list(torch.autograd.grad(loss, [leaves[n] for n in u])), float(loss.detach())

            here, loss = gradient(0.0)
            assert found.start[step, task] == pytest.approx(loss, abs=1e-12)
            losses, ratios, differences = [], [], []
            for share in POINTS:
                there, value = gradient(share)
                losses.append(value)
                differences.append(norm([a - b for a, b in zip(there, here, strict=True)]))
                ratios.append(differences[-1] / (share * norm(u.values())))
            assert found.variation[step, task] == pytest.approx(max(losses) - min(losses), abs=1e-12)
            assert found.differences[step, :, task] == pytest.approx(differences, abs=1e-12)
            assert found.smoothness[step, task] == pytest.approx(max(ratios), abs=1e-12)
    assert found.means()["smoothness"] == pytest.approx(found.smoothness.mean())


def meta_loss(learner: Learner, theta: dict[str, Tensor], batch, task: int, half: slice = slice(None)) -> Tensor:
    *_, (params, _) = steps_of_one(learner, theta, batch[0][task], batch[1][task])
    return one_loss(learner, params, batch[2][task, half], batch[3][task, half])


def test_the_landscape_of_the_initialisation_is_that_of_the_mean_loss(learner: Learner, batch) -> None:
    batches = [tuple(t[:3] for t in batch), tuple(t[2:] for t in batch)]
    found = meta_landscape(learner, batches, rate=0.1, points=POINTS)
    theta = {name: p.detach().requires_grad_() for name, p in learner.model.named_parameters()}

    def gradient(point: dict[str, Tensor], part) -> tuple[list[Tensor], Tensor]:
        loss = torch.stack([meta_loss(learner, point, part, task) for task in range(len(part[0]))]).mean()
        return list(torch.autograd.grad(loss, list(point.values()))), loss

    for place, part in enumerate(batches):
        here, loss = gradient(theta, part)
        assert found.start[0, place] == pytest.approx(float(loss.detach()), abs=1e-12)
        for i, share in enumerate(POINTS):
            moved = {
                n: (p - share * 0.1 * g).detach().requires_grad_()
                for (n, p), g in zip(theta.items(), here, strict=True)
            }
            there, value = gradient(moved, part)
            assert found.losses[0, i, place] == pytest.approx(float(value.detach()), abs=1e-12)
            difference = norm([a - b for a, b in zip(there, here, strict=True)])
            assert found.differences[0, i, place] == pytest.approx(difference, abs=1e-11)
            assert found.distances[0, i, place] == pytest.approx(share * 0.1 * norm(here), abs=1e-12)


@pytest.mark.parametrize("steps", [None, 0])
def test_conflict_is_by_the_cosines_of_all_pairs_of_halves(learner: Learner, batch, steps) -> None:
    found = conflict(learner, batch, steps=steps)
    theta = {name: p.detach().requires_grad_() for name, p in learner.model.named_parameters()}
    if steps == 0:
        learner.steps = 0
    halves = []
    for half in (slice(0, None, 2), slice(1, None, 2)):
        rows = []
        for task in range(4):
            got = torch.autograd.grad(meta_loss(learner, theta, batch, task, half), list(theta.values()))
            rows.append(torch.cat([g.flatten() for g in got]))
        halves.append(rows)
    cosines = [[float(functional.cosine_similarity(g, h, dim=0)) for h in halves[1]] for g in halves[0]]
    assert found.cosines == pytest.approx(np.array(cosines), abs=1e-10)
    within = 1 - sum(cosines[i][i] for i in range(4)) / 4
    between = 1 - sum(cosines[i][j] for i in range(4) for j in range(4) if i != j) / 12
    assert found.within.value == pytest.approx(within, abs=1e-10)
    assert found.between.value == pytest.approx(between, abs=1e-10)


def test_the_interval_between_tasks_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    truth, held = 1 - 0.25, 0
    for _ in range(300):
        centre = np.full(4, 0.25)  # of squared length .25: what the products of two rows are on average
        rows = centre + draw.normal(size=(12, 4)) * 0.3
        found = Conflict(rows @ rows.T).between
        held += found.low <= truth <= found.high
    assert 0.9 <= held / 300 <= 0.995


@pytest.mark.parametrize("learner", ["l2f"], indirect=True)
def test_the_control_of_equal_scale_has_the_mean_gamma_of_the_tasks(learner: Learner, batch) -> None:
    theta = dict(learner.model.named_parameters())
    starts = [next(steps_of_one(learner, theta, x, y))[0] for x, y in zip(batch[0], batch[1], strict=True)]
    wanted = {name: torch.stack([start[name] for start in starts]).mean(0) for name in theta}
    same = alike(learner, batch)
    found, _ = next(same.path(same.meta(), batch[0], batch[1], order=1, batched=True))
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value.expand_as(found[name]), rtol=1e-12, atol=1e-14)
        assert not torch.allclose(starts[0][name], starts[1][name], rtol=1e-6, atol=0)  # γ did depend on the task
    assert learner.attenuator.net is not None
    with pytest.raises(RequestError, match="γ does not depend on the task"):
        alike(same, batch)


def test_looking_changes_nothing_and_the_training_stays_to_the_bit() -> None:
    tasks = Sinusoid(shots=5, val_tasks=4, test_tasks=4)
    method = "l2f+maml:execution=vmap"  # which is faster is measured otherwise, and the other one has other bits
    alone = fewshot(None, tasks, method, iterations=6, every=3)
    watch, control = (Onlooker(tasks=5, points=(1.0,), alike=mean) for mean in (False, True))

    def both(ctx) -> None:
        watch(ctx)
        control(ctx)

    watched = fewshot(None, tasks, method, iterations=6, every=3, observer=both)
    for name, value in alone.model.state_dict().items():
        assert torch.equal(value, watched.model.state_dict()[name])
    assert [seen.iteration for seen in watch.seen] == [3, 6]
    assert watch.seen[0].val.variation.shape == (5, 5)
    assert watch.seen[-1].describe()["conflict"]["tasks"] == 5
    looks = [seen.describe() for seen in watch.seen]
    for figure in "ABCG":
        (picture,) = draw(figure, {"L2F": looks, "again": looks})
        assert b"<svg" in picture.file()
        assert b"again" in picture.file()
        assert [picture] == draw(figure, {"L2F": looks, "again": looks})


def test_batch_norm_keeps_its_statistics_and_its_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    for behaviour in ("batch", "per-step", "frozen"):
        learner = Learner(model, functional.cross_entropy, steps=1, batch_norm=behaviour).train()
        before = {name: value.clone() for name, value in learner.state_dict().items()}
        x, y = torch.randn(2, 6, 2), torch.arange(6).expand(2, 6) % 3
        assert np.isfinite(landscape(learner, (x, y, x, y)).smoothness).all()
        assert np.isfinite(conflict(learner, (x, y, x, y)).cosines).all()
        assert learner.training
        assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


def test_a_gradient_of_zero_is_smooth_and_has_no_direction() -> None:
    learner = Learner(nn.Linear(1, 1), functional.mse_loss, steps=1)
    with torch.no_grad():
        learner.model.weight.zero_()
        learner.model.bias.zero_()
    x, y = torch.ones(2, 4, 1), torch.zeros(2, 4, 1)
    assert (landscape(learner, (x, y, x, y)).smoothness == 0).all()
    assert (conflict(learner, (x, y, x, y)).cosines == 0).all()


def test_what_cannot_be_measured_is_said_in_a_line(batch) -> None:
    learner = Learner(nn.Linear(2, 3), functional.cross_entropy).double()
    with pytest.raises(RequestError, match="at least two"):
        conflict(learner, tuple(t[:1] for t in batch))
    with pytest.raises(RequestError, match="two halves"):
        conflict(learner, (*batch[:2], batch[2][:, :1], batch[3][:, :1]))
    with pytest.raises(RequestError, match="above 0"):
        landscape(learner, batch, points=(0.0, 1.0))
    with pytest.raises(RequestError, match="no inner loop"):
        landscape(nn.Linear(2, 3), batch)
    with pytest.raises(RequestError, match="one meta-batch"):
        meta_landscape(learner, [])
    with pytest.raises(RequestError, match="nothing has been seen"):
        draw("A", {"MAML": []})
    with pytest.raises(RequestError, match="unknown figure"):
        draw("H", {"MAML": []})
