from __future__ import annotations

import numpy as np
import pytest
import torch

from fallow.diagnose.quadrature import tridiagonal
from tests.diagnose.networks import hessian_of


@pytest.fixture(scope="module")
def measure() -> tuple[torch.Tensor, torch.Tensor, np.ndarray, np.ndarray]:
    """A Hessian, a vector v, and the spectral measure vᵀf(H)v = Σ w_i f(λ_i)."""
    exact = hessian_of("smooth", True)
    start = torch.randn(len(exact), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(exact)
    weights = (vectors.T @ (start / start.norm())).square()
    return exact, start, values.numpy(), weights.numpy()


def test_a_gauss_rule_is_exact_for_polynomials(measure) -> None:  # type: ignore[no-untyped-def]
    exact, start, values, weights = measure
    rule = tridiagonal(exact.mv, start, 6).gauss()
    assert rule.weights.sum() == pytest.approx(1)
    for degree in range(12):
        assert rule.weights @ rule.nodes**degree == pytest.approx(weights @ values**degree, rel=1e-9)
    assert rule.weights @ np.abs(rule.nodes) != pytest.approx(weights @ np.abs(values), rel=1e-3)


@pytest.mark.parametrize("steps", [4, 12, 30])
def test_bounds_hold_everywhere_and_close_with_more_steps(measure, steps: int) -> None:  # type: ignore[no-untyped-def]
    exact, start, values, weights = measure
    probe = tridiagonal(exact.mv, start, steps)
    gaps = []
    for point in np.linspace(values[0] * 1.2, values[-1] * 1.1, 57):
        low, high = probe.bounds(point)
        assert low - 1e-9 <= weights[values < point].sum() <= high + 1e-9
        assert np.abs(probe.radau(point).nodes - point).min() < 1e-9 * values[-1]
        gaps.append(high - low)
    assert max(gaps) > 0
    assert np.mean(gaps) < 1 / steps


def test_known_eigenvectors_are_left_out(measure) -> None:  # type: ignore[no-untyped-def]
    exact, start, values, _ = measure
    vectors = torch.linalg.eigh(exact).eigenvectors.T
    rule = tridiagonal(exact.mv, start, 40, without=vectors[-5:]).gauss()
    assert rule.nodes.max() == pytest.approx(values[-6], rel=1e-6)


def test_a_short_window_hardly_changes_sums(measure) -> None:  # type: ignore[no-untyped-def]
    exact, start, values, weights = measure
    whole = tridiagonal(exact.mv, start, 60).gauss()
    short = tridiagonal(exact.mv, start, 60, window=3).gauss()
    truth = weights @ np.abs(values)
    assert whole.weights @ np.abs(whole.nodes) == pytest.approx(truth, rel=1e-3)
    assert short.weights @ np.abs(short.nodes) == pytest.approx(truth, rel=1e-2)
