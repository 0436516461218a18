from __future__ import annotations

import pytest
import torch

from fallow.diagnose.lanczos import Lanczos, ends, magnitudes
from tests.diagnose.networks import NAMES, hessian_of


def start(size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_both_ends_are_those_of_the_dense_hessian_and_flags_are_right(name: str, trained: bool) -> None:
    exact = hessian_of(name, trained)
    values = torch.linalg.eigvalsh(exact).numpy()
    scale = abs(values).max()
    for seed in range(3):
        for steps in (*range(2, 40, 3), 300):
            found = Lanczos(exact.mv, start(len(exact), seed), ends(3, 1), steps=steps)
            count = len(found.values)
            assert found.products <= steps
            for index, truth in ((0, values[0]), *((count - i, values[-i]) for i in range(1, min(3, count) + 1))):
                eigenvalue = found.eigenvalue(index)
                off = abs(eigenvalue.value - truth)
                if eigenvalue.converged:
                    assert off <= eigenvalue.error + 1e-14 * scale
                    assert eigenvalue.error <= 1e-4 * abs(eigenvalue.value) + 1e-13 * scale
                    assert off <= 1e-4 * abs(truth) + 1e-14 * scale
                else:
                    assert steps < 300
        assert found.products < len(exact)


@pytest.mark.parametrize("basis", [8, 12, 20])
def test_restarts_bound_the_memory_and_keep_the_accuracy(basis: int) -> None:
    exact = hessian_of("smooth", True)
    values = torch.linalg.eigvalsh(exact)
    found = Lanczos(exact.mv, start(len(exact)), ends(2, 1), basis=basis, steps=2000)
    assert found.basis.shape[0] <= basis < found.products
    assert torch.allclose(found.basis @ found.basis.T, torch.eye(len(found.basis), dtype=torch.float64), atol=1e-10)
    for index, truth in ((-1, values[-1]), (-2, values[-2]), (0, values[0])):
        eigenvalue = found.eigenvalue(index)
        assert eigenvalue.converged
        assert abs(eigenvalue.value - truth) <= 1e-5 * abs(truth)


def test_by_magnitude() -> None:
    exact = torch.diag(torch.tensor([3.0, -5.0, 1.0, 0.5, -0.1, 4.0, 0.2], dtype=torch.float64))
    found = Lanczos(exact.mv, start(7), magnitudes(3))
    chosen = found.values[magnitudes(3)(found.values)]
    assert chosen == pytest.approx([-5, 3, 4])


def test_single_precision_says_what_it_can_know() -> None:
    exact = hessian_of("layernorm", True)
    values = torch.linalg.eigvalsh(exact)
    single = exact.float()
    found = Lanczos(single.mv, start(len(exact), dtype=torch.float32), ends(1, 1))
    for index in (0, -1):
        eigenvalue = found.eigenvalue(index)
        assert eigenvalue.converged
        assert abs(eigenvalue.value - values[index]) <= eigenvalue.error < 1e-4 * values[-1]


def test_noisy_products_are_noticed() -> None:
    exact = hessian_of("layernorm", True)
    noise = torch.Generator().manual_seed(0)

    def product(v: torch.Tensor) -> torch.Tensor:
        return exact @ v + 1e-4 * torch.randn(len(v), generator=noise, dtype=torch.float64)

    found = Lanczos(product, start(len(exact)), ends(1, 1))
    smallest = found.eigenvalue(0)
    assert not smallest.converged
    assert smallest.error >= abs(smallest.value - torch.linalg.eigvalsh(exact)[0])


def test_an_invariant_space_ends_it() -> None:
    exact = torch.diag(torch.tensor([2.0, 2.0, 2.0, -1.0, 0.0, 0.0], dtype=torch.float64))
    found = Lanczos(exact.mv, start(6), ends(1, 1))
    assert found.products == 3
    assert found.values == pytest.approx([-1, 0, 2], abs=1e-12)
    zero = Lanczos(torch.zeros(4, 4, dtype=torch.float64).mv, start(4), ends(1, 1)).eigenvalue(0)
    assert (zero.value, zero.converged) == (0.0, True)
