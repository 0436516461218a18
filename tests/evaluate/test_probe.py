"""Probes against scikit-learn and plain loops, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import NearestCentroid
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.evaluate.heads import LinearHead, nearest, principal, ridge
from fallow.evaluate.logistic import logistic
from fallow.evaluate.probe import linear_probe, seal_probe
from fallow.evaluate.span import fresh_heads, orders


def points(n: int, width: int, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Overlapping classes, off the origin, with axes of very different lengths."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = centres[y] + 2 * torch.randn(n, width, generator=draw, dtype=torch.float64)
    return x * torch.logspace(-1, 1, width, dtype=torch.float64) + 3, y


@pytest.mark.parametrize(("n", "width"), [(200, 12), (40, 60), (30, 29), (30, 30)])
def test_logistic_is_scikit_learns_for_every_strength(n: int, width: int) -> None:
    (x, y), (others, _) = points(n, width), points(300, width, seed=5)
    strengths = torch.tensor([100.0, 1.0, 1e-2, 1e-3])
    heads = logistic(x, y, strengths)
    for i, strength in enumerate(strengths.tolist()):
        theirs = LogisticRegression(C=1 / strength, solver="newton-cg", tol=1e-10, max_iter=10000).fit(x.numpy(), y)
        assert np.abs(heads.weight[i].numpy() - theirs.coef_).max() < 1e-4
        bias = heads.bias[i] - heads.bias[i].mean()  # what all classes share is free
        assert np.abs(bias.numpy() - (theirs.intercept_ - theirs.intercept_.mean())).max() < 1e-3
        assert (heads(others)[i].argmax(1).numpy() == theirs.predict(others.numpy())).all()


def test_logistic_meets_its_condition_where_classes_are_separable() -> None:
    """The gradient of the objective vanishes even with a penalty that hardly holds the weights."""
    x, y = points(60, 80)
    for strength in (1e-6, 1e-3, 1.0):
        head = logistic(x, y, strength)
        weight, bias = head.weight.requires_grad_(), head.bias.requires_grad_()
        loss = (
            functional.cross_entropy(LinearHead(weight, bias)(x), y, reduction="sum")
            + strength / 2 * weight.square().sum()
        )
        found = torch.autograd.grad(loss, [weight, bias])
        assert max(g.norm().item() for g in found) < 1e-4 * strength * weight.norm().item()


def test_logistic_of_many_problems_is_that_of_each() -> None:
    problems = torch.stack([points(20, 50, seed=i)[0] * (i + 1) for i in range(5)])
    y = points(20, 50)[1]
    strengths = torch.tensor([1.0, 0.1, 10.0, 1e-3, 1.0])
    together = logistic(problems, y, strengths)
    for i, x in enumerate(problems):
        alone = logistic(x, y, float(strengths[i]))
        torch.testing.assert_close(together.weight[i], alone.weight, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(together.bias[i], alone.bias, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize(("n", "width"), [(200, 12), (40, 60)])
def test_ridge_is_scikit_learns_for_classes_and_for_numbers(n: int, width: int) -> None:
    x, y = points(n, width)
    numbers = torch.randn(n, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 7
    strengths = torch.tensor([1e-2, 1.0, 50.0])
    for targets, plain in ((y, functional.one_hot(y)), (numbers, numbers), (numbers[:, 0], numbers[:, :1])):
        heads = ridge(x, targets, strengths)
        for i, strength in enumerate(strengths.tolist()):
            theirs = Ridge(alpha=strength, solver="svd").fit(x.numpy(), plain.numpy())
            np.testing.assert_allclose(heads.weight[i].numpy(), np.atleast_2d(theirs.coef_), atol=1e-8)
            np.testing.assert_allclose(heads.bias[i].numpy(), theirs.intercept_, atol=1e-7)


def test_ridge_of_many_problems_is_that_of_each() -> None:
    problems = torch.stack([points(20, 50, seed=i)[0] for i in range(4)])
    y = points(20, 50)[1]
    together = ridge(problems, y, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    for i, x in enumerate(problems):
        torch.testing.assert_close(together.weight[i], ridge(x, y, i + 1.0).weight)


def test_nearest_is_scikit_learns_and_takes_many_problems() -> None:
    x, y = points(60, 10)
    others = points(200, 10, seed=2)[0]
    both = torch.stack([x, x + torch.randn_like(x)])
    for head, one in zip(nearest(both, y)(others), both, strict=True):
        assert (head.argmax(1).numpy() == NearestCentroid().fit(one.numpy(), y).predict(others.numpy())).all()


@pytest.mark.parametrize("kind", ["nearest", "ridge", "logistic"])
def test_a_class_without_an_example_is_never_answered(kind: str) -> None:
    x, y = points(40, 5)
    x, y = x[y != 1], y[y != 1]
    probe = linear_probe((x, y), (x, y), kind)
    wanted = NearestCentroid().fit(x, y).predict(x) if kind == "nearest" else y.numpy()
    said = probe.head(x).argmax(1)
    assert not (said == 1).any()
    assert (said.numpy() == wanted).mean() > (0.999 if kind == "nearest" else 0.5)


def test_features_that_do_not_vary_tell_nothing() -> None:
    """As those of a network whose units are dead: the most common class, and the mean of numbers."""
    x, y = torch.ones(6, 3), torch.tensor([2, 2, 2, 0, 1, 1])
    for kind in ("ridge", "logistic"):
        assert linear_probe((x, y), (x, y), kind).score(x, y) == 0.5
    assert linear_probe((x, y.double()), (x, y.double()), "ridge").score(x, y.double()) == pytest.approx(0)


def test_principal_axes_keep_distances_and_drop_what_is_noise() -> None:
    x = points(20, 50)[0]
    x[10:] = x[:10]  # of rank 9 after centring
    axes = principal(x)
    torch.testing.assert_close(axes.z @ axes.axes.mT, x - x.mean(0))
    assert (axes.values > 0).sum() == 9
    torch.testing.assert_close(axes.scale, (x - x.mean(0)).square().sum() / 50)


def test_the_strength_is_chosen_on_validation_and_does_not_depend_on_the_features_scale() -> None:
    train, validation, test = points(60, 40), points(400, 40, seed=1), points(400, 40, seed=2)
    probe = linear_probe(train, validation)
    assert probe.validation[probe.chosen] == max(probe.validation) > min(probe.validation)
    assert probe.best(*test)[1] >= probe.score(*test)
    larger = linear_probe((train[0] * 10, train[1]), (validation[0] * 10, validation[1]))
    assert larger.chosen == probe.chosen
    torch.testing.assert_close(larger.head.weight * 10, probe.head.weight, atol=1e-5, rtol=1e-4)
    flat = linear_probe((train[0], train[1]), (validation[0][:0], validation[1][:0]), "nearest")
    assert flat.settings == (0.0,)


def test_a_ridge_probe_of_numbers_scores_by_r2() -> None:
    from sklearn.metrics import r2_score

    x, _ = points(300, 10)
    y = x @ torch.arange(20, dtype=torch.float64).view(10, 2) + torch.randn(300, 2, dtype=torch.float64)
    probe = linear_probe((x[:100], y[:100]), (x[100:200], y[100:200]), "ridge")
    theirs = r2_score(y[200:].numpy(), probe.head(x[200:]).numpy())
    assert probe.score(x[200:], y[200:]) == pytest.approx(theirs)
    assert theirs > 0.9
    with pytest.raises(RequestError, match="numbers: take ridge"):
        linear_probe((x, y[:, 0]), (x, y[:, 0]))
    with pytest.raises(RequestError, match="did you mean 'ridge'"):
        linear_probe((x, y), (x, y), "rigde")


def test_all_rates_of_seals_probe_are_loops_of_sgd() -> None:
    (x, y), validation = points(70, 9), points(50, 9, seed=1)
    probe = seal_probe((x / 10, y), (validation[0] / 10, validation[1]), epochs=5, seed=3)
    start, order = fresh_heads([3], 4, 9), orders([3], 70, 5)[0]
    for i, rate in enumerate(probe.settings):
        head = nn.Linear(9, 4, dtype=torch.float64)
        with torch.no_grad():
            head.weight.copy_(start.weight[0])
            head.bias.copy_(start.bias[0])
        descent = torch.optim.SGD(head.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        for some in order:
            for batch in some.split(32):
                descent.zero_grad()
                functional.cross_entropy(head(x[batch] / 10), y[batch]).backward()
                descent.step()
        torch.testing.assert_close(probe.heads.weight[i], head.weight.detach(), atol=1e-12, rtol=1e-10)
        torch.testing.assert_close(probe.heads.bias[i], head.bias.detach(), atol=1e-12, rtol=1e-10)
        right = (head(validation[0] / 10).argmax(1) == validation[1]).double().mean().item()
        assert probe.validation[i] == right
