"""Advantages, divergences, Fisher products and meta-gradients against exact references, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.func import functional_call

from fallow.control.advantage import RIDGE, advantages, discounted, features, generalised, linear_baseline
from fallow.control.policy import Gaussian, divergence, log_probability, metric
from fallow.control.surrogate import policy_gradient, surrogate
from fallow.control.trust_region import Region, TrustRegionStep, fisher, line_search, natural_step
from fallow.data.environments import Trajectories
from fallow.hypergradients.products import flat, shaped
from tests.control.small import lived

METHODS = [
    "maml-trpo:thin=1", "maml-trpo:steps=2,thin=1", "maml-trpo:thin=1+l2f", "maml-trpo:thin=1+l2f:gamma=constant",
    "maml-trpo:thin=1+meta-sgd", "maml-trpo:thin=1+anil",
]  # fmt: skip


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def distribution(output: Tensor) -> Independent:
    mean, log_std = output.chunk(2, -1)
    return Independent(Normal(mean, log_std.exp()), 1)


def test_advantages_are_the_sums_of_the_papers() -> None:
    rewards, values = some(2, 3, 7), some(2, 3, 7, seed=1)
    gamma, decay = 0.9, 0.7
    expected = torch.zeros_like(rewards)
    running = torch.zeros(2, 3, dtype=torch.float64)
    for t in reversed(range(7)):
        following = values[..., t + 1] if t < 6 else 0.0
        running = rewards[..., t] + gamma * following - values[..., t] + gamma * decay * running
        expected[..., t] = running
    torch.testing.assert_close(generalised(rewards, values, gamma, decay), expected, atol=1e-12, rtol=0)
    sums = sum(gamma**k * rewards[..., 2 + k] for k in range(5))
    torch.testing.assert_close(discounted(rewards, gamma)[..., 2], sums, atol=1e-12, rtol=0)
    torch.testing.assert_close(discounted(rewards, 0.0), rewards)


def test_the_baseline_is_least_squares_in_every_task() -> None:
    observations, returns = some(2, 30, 5, 3), some(2, 30, 5, seed=1)
    found = linear_baseline(observations, returns)
    for task in range(2):
        phi = features(observations[task]).flatten(0, 1)
        rows = torch.cat([phi, math.sqrt(RIDGE) * torch.eye(phi.shape[1], dtype=torch.float64)])
        target = torch.cat([returns[task].flatten(), torch.zeros(phi.shape[1], dtype=torch.float64)])
        solution = torch.linalg.lstsq(rows, target[:, None]).solution
        torch.testing.assert_close(found[task].flatten(), (phi @ solution).flatten(), atol=1e-7, rtol=0)
    time = features(observations)[0, 0, :, -4:]
    torch.testing.assert_close(time[3], torch.tensor([1.0, 0.03, 0.0009, 0.000027], dtype=torch.float64))


def test_advantages_of_a_task_have_mean_0_and_deviation_1() -> None:
    seen = Trajectories(some(2, 4, 5, 3), some(2, 4, 5, 2), some(2, 4, 5, seed=1), some(2, 4, 5, 4))
    found = advantages(seen, 0.9, 0.8).flatten(1)
    torch.testing.assert_close(found.mean(1), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.std(1), torch.ones(2, dtype=torch.float64), atol=1e-6, rtol=0)


def test_probabilities_and_divergences_are_those_of_normal_distributions() -> None:
    old, new, actions = some(6, 4), some(6, 4, seed=1), some(6, 2, seed=2)
    torch.testing.assert_close(log_probability(old, actions), distribution(old).log_prob(actions))
    torch.testing.assert_close(divergence(old, new), kl_divergence(distribution(old), distribution(new)))
    curved = torch.autograd.functional.hessian(lambda o: divergence(old[0], o), old[0])
    torch.testing.assert_close(metric(old[0], some(4, seed=3)), curved @ some(4, seed=3), atol=1e-12, rtol=0)


def test_surrogates_have_the_policy_gradient_where_the_policy_acted() -> None:
    output, y = some(6, 4).requires_grad_(), torch.cat([some(6, 2, seed=1), some(6, 1, seed=2)], -1)
    for clip in (None, 0.2):
        ours = torch.autograd.grad(surrogate(output, y, output.detach(), clip), output)
        torch.testing.assert_close(ours, torch.autograd.grad(policy_gradient(output, y), output))
    other = some(6, 4, seed=5)
    ratio = (log_probability(other, y[:, :2]) - log_probability(output.detach(), y[:, :2])).exp()
    expected = -torch.stack([
        min(r * a, max(0.8, min(1.2, float(r))) * a) for r, a in zip(ratio, y[:, 2], strict=True)
    ]).mean()  # fmt: skip
    torch.testing.assert_close(surrogate(other, y, output, 0.2), expected)


@pytest.mark.parametrize("method", METHODS)
def test_fisher_products_are_those_of_the_dense_matrix(method: str) -> None:
    """The Hessian of the mean divergence of the adapted policies, by all that is learned across tasks."""
    ctx, learner, met, params = lived(method)
    product = learner.curvature(ctx, params)
    for seed in range(2):
        v = some(sum(p.numel() for p in params), seed=seed)
        kl = divergence(met.old, learner.again(met, 2)).mean()
        slopes = torch.autograd.grad(kl, params, create_graph=True)
        assert max(float(s.detach().abs().max()) for s in slopes) < 1e-12  # nothing diverges yet
        hessian = flat(torch.autograd.grad(slopes, params, shaped(v, params)), params)
        torch.testing.assert_close(product(v), hessian, atol=1e-12, rtol=1e-8)


def test_fisher_products_are_those_of_the_score() -> None:
    """F = E[∇log π·∇log πᵀ], the expectation written out by the exact moments of a normal distribution."""
    policy = Gaussian(nn.Linear(3, 2), 2, std=0.7).double()
    x = some(5, 3)
    params = list(policy.parameters())
    jacobian = torch.autograd.functional.jacobian(
        lambda *p: functional_call(policy, dict(zip(dict(policy.named_parameters()), p, strict=True)), (x,)),
        tuple(params),
    )
    rows = torch.cat([j.flatten(2) for j in jacobian], -1)  # (states, outputs, parameters)
    weights = torch.tensor([0.7**-2, 0.7**-2, 2, 2], dtype=torch.float64)
    dense = torch.einsum("sop,o,soq->pq", rows, weights, rows) / 5
    product = fisher(policy(x), params)
    found = torch.stack([product(unit) for unit in torch.eye(len(dense), dtype=torch.float64)])
    torch.testing.assert_close(found, dense, atol=1e-12, rtol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_the_meta_policy_gradient_is_that_of_finite_differences(method: str) -> None:
    ctx, learner, met, params = lived(method)
    ctx.backward(met)
    gradient = flat([p.grad for p in params], params)

    def loss(at: Tensor) -> float:
        with torch.no_grad():
            for p, new in zip(params, shaped(at, params), strict=True):
                p.copy_(new)
            return float(surrogate(learner.again(met, 2), met.query[1], met.old).mean())

    start = torch.cat([p.detach().flatten() for p in params]).clone()
    for seed in range(3):
        v = some(len(start), seed=seed)
        v /= v.norm()
        if "l2f" in method and "constant" not in method:
            # the embedding is a constant to the meta-gradient: along φ alone are both the same function
            own = sum(p.numel() for p in learner.learner.model.parameters())
            v[:own] = 0
        h = 1e-5
        slope = (loss(start + h * v) - loss(start - h * v)) / (2 * h)
        assert slope == pytest.approx(float(gradient @ v), rel=1e-6, abs=1e-9)


def test_first_order_gradients_leave_the_inner_curvature_out() -> None:
    ctx, learner, met, params = lived("maml-trpo:order=1")
    ctx.backward(met)
    found = flat([p.grad for p in params], params)
    *_, adapted = learner.learner.path(
        learner.learner.meta(), *met.supports[0], order=1, batched=True
    )  # fmt: skip
    output = torch.stack([
        functional_call(learner.learner.model, {n: p[i] for n, p in adapted[0].items()}, (met.query[0][i],))
        for i in range(3)
    ])  # fmt: skip
    loss = surrogate(output, met.query[1], met.old).sum() / 3
    by_task = torch.autograd.grad(loss, list(adapted[0].values()))
    torch.testing.assert_close(found, torch.cat([g.sum(0).flatten() for g in by_task]), atol=1e-12, rtol=0)


def test_a_natural_step_solves_the_system_and_ends_at_the_region() -> None:
    root = some(4, 4)
    matrix, g = root @ root.T + torch.eye(4, dtype=torch.float64), some(4, seed=1)
    step = natural_step(lambda v: matrix @ v, g, Region(max_kl=0.02, damping=0.0))
    exact = torch.linalg.solve(matrix, g)
    torch.testing.assert_close(step / step.norm(), exact / exact.norm(), atol=1e-9, rtol=0)
    assert 0.5 * float(step @ matrix @ step) == pytest.approx(0.02)


def test_a_line_search_takes_the_first_share_that_is_better_and_inside() -> None:
    p = torch.zeros(1, dtype=torch.float64)

    def measure() -> tuple[float, float]:
        return float((p - 0.5).square()), float(p.square())

    region = Region(max_kl=0.45)
    found = line_search([p], torch.tensor([-1.0], dtype=torch.float64), measure, 0.25, region)
    assert found.share == pytest.approx(0.64)  # 1 is outside and no better, 0.8 is outside
    assert float(p) == pytest.approx(0.64)
    p.zero_()
    assert line_search([p], torch.ones(1, dtype=torch.float64), measure, 0.25, region) == TrustRegionStep(
        0.0, 0.25, 0.0
    )
    assert float(p) == 0.0


def test_a_policy_starts_with_the_deviation_asked_for() -> None:
    assert float(Gaussian(nn.Linear(2, 1), 1, std=0.5)(torch.zeros(1, 2)).detach()[0, 1]) == pytest.approx(
        math.log(0.5)
    )
