"""The thesis' tables on implicit meta-learning: their solvers and loops against what theory says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow.hypergradients import CG, Exact, Identity, MetaSchedule, Neumann
from fallow.reproduce import iml_cost, iml_exact, iml_inner
from fallow.reproduce.iml_grid import penalised
from fallow.reproduce.iml_inner import LOST, Bilevel, ClampedCG, Look, Sets, learn, sets, stopped
from tests.hypergradients.problems import error, operator, system


def blobs(n: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 4
    return torch.eye(4)[y].repeat(1, 2) + 0.3 * torch.randn(n, 8, generator=draw), y


@pytest.fixture
def few() -> Sets:
    return Sets(blobs(40, 0), blobs(40, 1), blobs(80, 2))


def test_guarded_conjugate_gradients_are_right_for_large_systems_only() -> None:
    """With b = O(1) nothing is guarded; a small b is guarded, and the error grows to that of no iterations."""
    matrix, b = system(30)
    exact = torch.linalg.solve(matrix, b)
    assert error(ClampedCG(30)(operator(matrix), 1e3 * b).x, 1e3 * exact) < 1e-3
    small = [error(ClampedCG(10)(operator(matrix), scale * b).x, scale * exact) for scale in (1e3, 1e-1, 1e-3)]
    assert small == sorted(small)
    assert small[-1] > 10 * error(CG(10, 0.0)(operator(matrix), 1e-3 * b).x, 1e-3 * exact)


def test_steps_are_those_of_autograd_on_the_whole_loss(few: Sets) -> None:
    learner = Bilevel(few, batch=40, seed=1)  # all of it: the order does not matter
    plain = Bilevel(few, batch=40, seed=1)
    adam = torch.optim.Adam(plain.params, lr=1e-4)
    for _ in range(5):
        learner.step()
        adam.zero_grad()
        (plain.loss(few.train) + plain.decay(plain.params)).backward()
        adam.step()
    for mine, right in zip(learner.params, plain.params, strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-6)


def test_one_weight_for_all_is_the_sum_of_squares_in_the_loss(few: Sets) -> None:
    learner = penalised(Bilevel(few, decay=False, batch=40, seed=1), 0.3)
    plain = Bilevel(few, decay=False, batch=40, seed=1)
    adam = torch.optim.Adam(plain.params, lr=1e-4)
    for _ in range(5):
        learner.step()
        adam.zero_grad()
        (plain.loss(few.train) + 0.3 * sum(p.square().sum() for p in plain.params)).backward()
        adam.step()
    for mine, right in zip(learner.params, plain.params, strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-6)


def test_every_example_comes_once_before_any_comes_again(few: Sets) -> None:
    learner = Bilevel(few, batch=16)
    seen: list[int] = []
    learner.loss = lambda batch: seen.extend(batch[0][:, 0].tolist()) or Bilevel.loss(learner, batch)
    for _ in range(5):
        learner.step()
    assert sorted(seen[:40]) == sorted(few.train[0][:, 0].tolist()) == sorted(seen[40:])


def test_a_decay_is_learned_and_the_same_again_to_the_bit(few: Sets, monkeypatch) -> None:
    monkeypatch.setattr(iml_inner, "INNER", 3e-3)  # fewer steps will do
    looks = [learn(Bilevel(few, seed=0), CG(5), MetaSchedule(10, 10), 300, 10) for _ in range(2)]
    assert looks[0] == looks[1]
    kept = learn(Bilevel(few, seed=0), None, MetaSchedule(10, 10), 300, 10)  # the decay stays as it was drawn
    assert looks[0][-1].val_loss < 0.5 * kept[-1].val_loss
    assert kept[0].decay == kept[-1].decay


def test_a_diverging_series_ends_in_chance(few: Sets) -> None:
    learner = Bilevel(few)
    with torch.no_grad():
        for raw in learner.decay.hyperparams:
            raw.fill_(20.0)  # a decay of 800, of which α = 0.1 makes 80
    assert learn(learner, Neumann(50, 0.1), MetaSchedule(1, 1), 5, 1)[-1] == LOST


def test_early_stopping_takes_the_lowest_loss_before_patience_ends() -> None:
    looks = [Look(loss, 0.0, 0.0, 0.0, 0.0) for loss in (3.0, 2.0, 2.5, 2.4, 1.0)]
    assert stopped(looks, patience=2).val_loss == 2.0
    assert stopped(looks, patience=3).val_loss == 1.0


def test_images_are_averaged_down_and_split_without_overlap() -> None:
    few = sets("digits", 4, 50, 0.5, 100, 0)
    assert [tuple(x.shape) for x, _ in (few.train, few.val, few.test)] == [(50, 16), (50, 16), (100, 16)]
    assert 0 <= few.train[0].min() < 0.1 < 0.9 < few.train[0].max() <= 1
    assert not (few.train[0][:, None] == few.val[0]).all(-1).any()
    full = sets("digits", 8, 50, 0.5, 100, 0).train[0].view(50, 4, 2, 4, 2)
    torch.testing.assert_close(few.train[0], full.mean((2, 4)).flatten(1))
    assert len(few.together.train[1]) == 100


@pytest.fixture(scope="module")
def compared() -> iml_exact.Compared:
    learner = Bilevel(sets("digits", 4, 50, 0.5, 50, 0), hidden=6, seed=0, dtype=torch.float64)
    learn(learner, CG(10), MetaSchedule(50, 50), 500, 500)
    return iml_exact.Compared(*iml_exact.system(learner))


@pytest.mark.filterwarnings("ignore:the Neumann series diverges")
def test_solvers_near_the_exact_inverse_where_theory_says_so(compared: iml_exact.Compared) -> None:
    rho, exact = compared.damped()
    values = torch.linalg.eigvalsh(compared.matrix)
    assert rho > -values[0]
    assert error(exact, Exact(rho)(compared.A, compared.b).x) < 1e-8
    near = compared.nearness(rho, exact)
    assert near["CG (50)"][0] > 0.9999  # its error falls by the condition number alone
    assert near["CG (3)"][1] > near["CG (10)"][1] > near["CG (50)"][1]
    assert near["Identity"][0] < near["CG (10)"][0]
    assert error(compared.matrix @ compared.undamped()[1], compared.b) < 1e-6


def test_peak_memory_is_what_was_held_at_one_time() -> None:
    def work() -> Tensor:
        first = torch.zeros(1_000_000)  # 4 MB
        second = first + 1
        del first
        return second + 1

    assert iml_cost.peak(work) == pytest.approx(8, rel=0.01)


def test_memory_of_solvers() -> None:
    """CG with a given damping and Neumann do not grow with their products; the automatic damping keeps its space."""
    learner = iml_cost.problem(100, iml_cost.PLANS["iml-table4.4"])
    A, b = iml_exact.system(learner)
    size = 4 * len(b) / 1e6

    def vectors(solver) -> float:
        return iml_cost.peak(lambda: solver(A, b)) / size

    assert vectors(Identity()) == pytest.approx(1, abs=0.1)
    assert vectors(CG(20, 1.0)) == pytest.approx(vectors(CG(5, 1.0)), abs=0.2)
    assert vectors(Neumann(50, 0.1)) == pytest.approx(vectors(Neumann(20, 0.1)), abs=0.2)
    assert vectors(CG(10)) - vectors(CG(5)) == pytest.approx(5, abs=0.2)
