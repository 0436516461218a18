"""The thesis' network for comparisons with the exact inverse: 14×14 images, 32 hidden units, a decay per weight."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.data import load
from fallow.hypergradients.inner import Inner
from fallow.hypergradients.krylov import lanczos
from fallow.hypergradients.penalty import SquaredDecay
from fallow.hypergradients.products import flat
from fallow.hypergradients.solvers import CG, MINRES, Identity, Neumann

Problem = tuple[Inner, Tensor, float]


@pytest.fixture(scope="module", params=[50, 1000], ids=["on the way", "converged"])
def problem(request) -> Problem:
    """H after some steps on 50 digits, the validation gradient of 50 others, and |λmin|."""
    torch.manual_seed(0)
    digits = load("digits", train=50, val=50 / 100, seed=0)
    (x, y), (val_x, val_y) = ((enlarge(part.x), part.y) for part in (digits.train, digits.val))
    model = nn.Sequential(nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 10)).double()
    params = list(model.parameters())
    decay = SquaredDecay([torch.full_like(p, -4.0) for p in params])
    adam = torch.optim.Adam(params, lr=1e-3)
    for _ in range(request.param):
        adam.zero_grad()
        (functional.cross_entropy(model(x), y) + decay(params)).backward()
        adam.step()
    A = Inner([lambda: functional.cross_entropy(model(x), y)], params, decay)
    b = flat(torch.autograd.grad(functional.cross_entropy(model(val_x), val_y), params), params)
    *_, space = lanczos(A, b, 150)
    return A, b, max(0.0, -space.extremes()[0])


def enlarge(x: Tensor) -> Tensor:
    images = functional.interpolate(x.double(), (14, 14), mode="bilinear", antialias=True).flatten(1)
    return (images - images.mean()) / images.std()


def cosine(problem: Problem, solver) -> tuple[float, float]:
    """To the inverse with the same damping, and the damping."""
    A, b, _ = problem
    found = solver(A, b)
    exact = CG(5000, found.damping)(A, b)  # the dense matrix has 44 million entries
    assert exact.reason == "converged"
    return float(torch.cosine_similarity(found.x, exact.x, 0)), found.damping


@pytest.mark.parametrize("solver", [CG(10), MINRES(10)], ids=str)
def test_ten_products_are_enough_with_automatic_damping(problem: Problem, solver) -> None:
    near, damping = cosine(problem, solver)
    assert near > 0.999
    assert damping > problem[2]


def test_more_products_need_less_damping_and_stay_above_the_negative_curvature(problem: Problem) -> None:
    found = [cosine(problem, CG(products)) for products in (3, 5, 10, 20)]
    assert all(near > 0.999 for near, _ in found)
    dampings = [damping for _, damping in found]
    assert dampings == sorted(dampings, reverse=True)
    assert dampings[-1] > problem[2]


def test_more_terms_do_not_hurt(problem: Problem) -> None:
    """As the thesis has it they do; against a damped reference every method gains by them."""
    A, b, lowest = problem
    rho = 2 * lowest + 0.02
    exact = CG(5000, rho)(A, b).x

    def near(solver) -> float:
        return float(torch.cosine_similarity(solver(A, b).x, exact, 0))

    neumann = [near(Neumann(terms, damping=rho)) for terms in (3, 10, 50)]
    cg = [near(CG(products, rho)) for products in (3, 5, 10)]
    assert neumann == sorted(neumann)
    assert cg == sorted(cg)
    assert near(Identity()) < neumann[0] < cg[0]
