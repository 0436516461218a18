from __future__ import annotations

import warnings

import pytest
import torch

import fallow
from fallow.hypergradients.krylov import enough, lanczos
from fallow.hypergradients.solvers import CG, MINRES, Exact, Identity, Neumann, Nystrom
from tests.hypergradients.problems import damped, error, operator, system

CONVERGING = {
    "neumann": Neumann(4000),
    "neumann with alpha": Neumann(4000, alpha=0.09),
    "damped neumann": Neumann(2000, damping=0.3),
    "cg": CG(120),
    "cg without damping": CG(120, damping=0.0),
    "damped cg": CG(120, damping=0.3),
    "minres": MINRES(90),
    "damped minres": MINRES(90, damping=0.3),
    "nystrom": Nystrom(30),
    "damped nystrom": Nystrom(30, damping=0.3),
    "exact": Exact(),
    "damped exact": Exact(damping=0.3),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CONVERGING)
def test_solves_a_definite_system(name: str, seed: int) -> None:
    matrix, b = system(seed=seed)
    found = CONVERGING[name](operator(matrix), b)
    assert error(found.x, damped(matrix, found.damping, b)) < 1e-8
    assert found.damping == (0.3 if "damped" in name else pytest.approx(found.damping))
    if "nystrom" not in name:  # which adds to its damping what a low rank leaves out
        assert found.damping in (0.0, 0.3)
    assert found.residual is None or found.residual < 1e-8


@pytest.mark.parametrize("name", [name for name in CONVERGING if "neumann" not in name])
def test_solves_with_a_diagonal_apart(name: str) -> None:
    """The closed-form part of A is part of A, for Nyström exactly."""
    matrix, b = system()
    diagonal = torch.linspace(0.1, 3, len(b), dtype=b.dtype)
    found = CONVERGING[name](operator(matrix, diagonal), b)
    assert error(found.x, damped(matrix + torch.diag(diagonal), found.damping, b)) < 1e-8


def test_a_low_rank_and_a_diagonal_are_inverted_exactly() -> None:
    draw = torch.Generator().manual_seed(0)
    factor = torch.randn(30, 4, generator=draw, dtype=torch.float64)
    matrix, diagonal = factor @ factor.T, torch.linspace(0.1, 3, 30, dtype=torch.float64)
    b = torch.randn(30, generator=draw, dtype=torch.float64)
    found = Nystrom(4, damping=0.01)(operator(matrix, diagonal), b)
    assert error(found.x, damped(matrix + torch.diag(diagonal), 0.01, b)) < 1e-8


@pytest.mark.parametrize("damping", [0.0, 0.3, "auto"])
@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_one_product_per_iteration(iterations: int, damping: float | str) -> None:
    matrix, b = system()
    for solver in (CG(iterations, damping), MINRES(iterations, damping), Neumann(iterations, damping=damping)):
        A = operator(matrix)
        assert solver(A, b).reason == "all products used"
        assert A.products == iterations, solver


def test_products_of_the_others() -> None:
    matrix, b = system()
    for solver, products in ((Identity(), 0), (Nystrom(7, damping=0.1), 7), (Exact(), 30), (Neumann(7, alpha=0.01), 7)):
        A = operator(matrix)
        solver(A, b)
        assert A.products == products, solver


def test_converged_means_fewer_products() -> None:
    """Five different eigenvalues take five iterations."""
    matrix = torch.diag(torch.arange(1.0, 6.0, dtype=torch.float64).repeat(8))
    b = torch.ones(40, dtype=torch.float64)
    for solver in (CG(30, 0.0), CG(30), MINRES(30), CG(30, 1.0)):
        A = operator(matrix)
        found = solver(A, b)
        assert (found.reason, A.products) == ("converged", 5), solver


@pytest.mark.parametrize("solver", [CG(4, 0.0), CG(4, 0.3), CG(4), MINRES(4), Neumann(4), Nystrom(4), CG(100)])
@pytest.mark.parametrize("scale", [1e-12, 1e9])
def test_scales_change_nothing(solver, scale: float) -> None:
    """Neither that of b, which shrinks as a training converges, nor that of A decides where to stop."""
    matrix, b = system()
    A, plain = operator(matrix), solver(operator(matrix), b)
    assert error(solver(A, scale * b).x, scale * plain.x) < 1e-9
    used, whole = A.products, operator(scale * matrix)
    if not isinstance(getattr(solver, "damping", None), float):
        assert error(solver(whole, b).x, plain.x / scale) < 1e-9
        assert whole.products == used


@pytest.mark.parametrize("iterations", [1, 2, 5, 9])
def test_automatic_settings_take_the_textbooks_steps(iterations: int) -> None:
    """CG in a Krylov space is CG with the damping that was chosen there, and so is Neumann with its α."""
    matrix, b = system(low=-0.5)
    found = CG(iterations)(operator(matrix), b)
    assert found.damping > 0
    assert error(found.x, CG(iterations, found.damping)(operator(matrix), b).x) < 1e-10
    for terms in (iterations, 25):  # within the products that choose α, and beyond
        *_, space = lanczos(operator(matrix), b, min(terms, 10))
        _, low, high = space.extremes()
        rho = enough(low, high)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mine = Neumann(terms, damping="auto")(operator(matrix), b)
        theirs = Neumann(terms, 1 / (high + rho), rho)(operator(matrix), b)
        assert error(mine.x, theirs.x) < 1e-10
        assert mine.residual == pytest.approx(theirs.residual)


def test_neumann_is_the_sum_it_says() -> None:
    matrix, b = system()
    step = torch.eye(30, dtype=torch.float64) - 0.05 * matrix
    sum_ = sum(torch.linalg.matrix_power(step, j) for j in range(5)) @ b
    found = Neumann(4, alpha=0.05)(operator(matrix), b)
    assert error(found.x, 0.05 * sum_) < 1e-12
    last = torch.linalg.matrix_power(step, 4) @ b
    assert found.residual == pytest.approx(float(last.norm() / b.norm()))


@pytest.mark.parametrize("terms", [1, 2, 3, 16, 17, 18, 19, 40])
def test_neumann_sees_the_residual_and_the_curvature_of_its_last_term(terms: int) -> None:
    """Whichever terms are looked at on the way."""
    matrix, b = system(low=0.2)
    p = torch.linalg.matrix_power(torch.eye(30, dtype=torch.float64) - 0.04 * matrix, terms - 1) @ b
    found = Neumann(terms, alpha=0.04)(operator(matrix), b)
    assert found.curvature == pytest.approx(float(p @ matrix @ p / (p @ p)), rel=1e-6)
    assert found.residual == pytest.approx(float((p - 0.04 * matrix @ p).norm() / b.norm()))


def test_a_series_that_ends_at_once() -> None:
    b = torch.ones(3, dtype=torch.float64)
    for terms in (1, 2, 3, 20, 40):
        for solver in (Neumann(terms), Neumann(terms, alpha=0.5), CG(terms), CG(terms, 0.0), MINRES(terms)):
            found = solver(operator(2 * torch.eye(3, dtype=torch.float64)), b)
            assert error(found.x, b / 2) < 1e-14, solver


def test_minres_has_the_smallest_residual() -> None:
    matrix, b = system(low=-3.0)
    powers = torch.stack([torch.linalg.matrix_power(matrix, j) @ b for j in range(5)], 1)
    basis = torch.linalg.qr(powers).Q
    best = torch.linalg.lstsq(matrix @ basis, b).solution
    with pytest.warns(RuntimeWarning, match="saddle"):
        found = MINRES(5, damping=0.0)(operator(matrix), b)
    assert error(found.x, basis @ best) < 1e-8
    assert found.residual == pytest.approx(float((b - matrix @ found.x).norm() / b.norm()))


@pytest.mark.parametrize("solver", [CG(7, 0.0), CG(7, 0.2), CG(7), MINRES(7), Exact(0.1)])
def test_the_residual_is_true(solver) -> None:
    matrix, b = system()
    found = solver(operator(matrix), b)
    true = (b - matrix @ found.x - found.damping * found.x).norm() / b.norm()
    assert found.residual == pytest.approx(float(true), rel=1e-6, abs=1e-12)


# ---- negative curvature --------------------------------------------------------------------------------------------


def test_automatic_damping_exceeds_the_negative_curvature() -> None:
    for seed in range(5):
        matrix, b = system(low=-0.5, seed=seed)
        for solver in (CG(10), MINRES(10), Nystrom(10), Exact(), Neumann(10, damping="auto")):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = solver(operator(matrix), b)
            assert found.damping > 0.5, solver


def test_automatic_damping_is_solved() -> None:
    """However few the products, what they give is the inverse with the damping that is reported."""
    for low in (-0.5, 1e-6):
        matrix, b = system(200, low=low, high=50)
        for iterations in (2, 3, 5, 10, 20):
            found = CG(iterations)(operator(matrix), b)
            cosine = torch.cosine_similarity(found.x, damped(matrix, found.damping, b), 0)
            assert cosine > 0.999, (low, iterations)


def test_cg_stops_at_negative_curvature_and_says_so() -> None:
    matrix, b = system(low=-0.5)
    with pytest.warns(RuntimeWarning, match=r"met the curvature -0\.\d+, beyond the damping 0\.1"):
        found = CG(60, damping=0.1)(operator(matrix), b)
    assert found.reason == "negative curvature"
    assert -0.5 <= found.curvature < -0.1
    with pytest.raises(fallow.WorkError, match="no minimum there"):
        CG(5, damping=0.0)(operator(-matrix - torch.eye(30)), b)


def test_indefinite_systems_are_solved_with_a_warning() -> None:
    matrix, b = system(low=-0.52)
    for solver in (MINRES(90, damping=0.1), Exact(damping=0.1), Nystrom(30, damping=0.1)):
        with pytest.warns(RuntimeWarning, match="saddle"):
            found = solver(operator(matrix), b)
        assert error(found.x, damped(matrix, 0.1, b)) < 1e-8, solver
        assert found.curvature == pytest.approx(-0.52, abs=0.02)


@pytest.mark.parametrize(("alpha", "low", "cause"), [(0.2, 0.5, "alpha is too large"), (0.05, -0.5, "the curvature -")])
def test_neumann_says_that_it_diverges(alpha: float, low: float, cause: str) -> None:
    matrix, b = system(low=low)
    with pytest.warns(RuntimeWarning, match=f"diverges.*{cause}"):
        found = Neumann(300, alpha=alpha)(operator(matrix), b)
    assert found.reason == "the series diverges"


def test_no_curvature_at_all() -> None:
    b = torch.ones(3, dtype=torch.float64)
    for solver in (CG(3), CG(3, 0.0), Neumann(3)):
        with pytest.raises(fallow.WorkError, match="no minimum there"):
            solver(operator(torch.zeros(3, 3, dtype=torch.float64)), b)


def test_products_that_are_not_finite() -> None:
    matrix, b = system()
    matrix[2, 2] = float("nan")
    for solver in (CG(5), CG(5, 0.1), MINRES(5), Neumann(5), Neumann(5, alpha=0.1), Nystrom(5), Exact()):
        with pytest.raises(fallow.WorkError, match="not finite"):
            solver(operator(matrix), b)


@pytest.mark.parametrize("make", [
    lambda: CG(0), lambda: CG(5, damping=-1), lambda: CG(5, damping="some"), lambda: MINRES(2.5),
    lambda: Neumann(3, alpha=0), lambda: Neumann(3, alpha="big"), lambda: Neumann(True), lambda: Nystrom(0),
    lambda: Exact(damping=float("nan")),
])  # fmt: skip
def test_settings_that_make_no_sense(make) -> None:
    with pytest.raises(fallow.RequestError, match="it must be"):
        make()


def test_exact_is_for_small_networks() -> None:
    b = torch.ones(20_000)
    with pytest.raises(fallow.RequestError, match="up to 12000 parameters"):
        Exact()(operator(torch.eye(2)), b)
    with pytest.raises(fallow.RequestError, match="above 0"):
        Nystrom(2, damping=0.0)(operator(torch.eye(3)), torch.ones(3))


@pytest.mark.parametrize("rank", [1, 3])
def test_exact_refuses_what_has_no_inverse(rank: int) -> None:
    """Rounding may leave it one, and the answer would be noise."""
    rows = torch.randn(rank, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = rows.T @ rows
    b = torch.ones(6, dtype=torch.float64)
    with pytest.raises(fallow.RequestError, match="the Hessian is singular with damping = 0"):
        Exact(damping=0.0)(operator(A), b)
    assert Exact(damping=0.1)(operator(A), b).residual < 1e-12


@pytest.mark.parametrize("name", CONVERGING)
def test_nothing_to_solve(name: str) -> None:
    """All rewards alike, say: the gradient is 0, and so is the step."""
    A, b = system(0)
    found = CONVERGING[name](operator(A), torch.zeros_like(b))
    assert not found.x.any()
    assert found.residual == 0
