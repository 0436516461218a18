from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn import functional

from fallow.evaluate.calibration import KeptOutputs, calibration, temperature


def drawn(n: int, heat: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are ``heat`` times as sure as they should be."""
    draw = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, 5, generator=draw, dtype=torch.float64)
    return heat * logits, torch.multinomial(logits.softmax(1), 1, generator=draw)[:, 0]


@pytest.mark.parametrize("heat", [0.3, 1.0, 4.0])
def test_the_temperature_is_the_one_that_makes_the_loss_least(heat: float) -> None:
    logits, y = drawn(4000, heat, 0)

    def loss(at: np.ndarray) -> float:
        return float(functional.cross_entropy(logits / float(at[0]), y, label_smoothing=1 / 4001))

    found = temperature(logits, y)
    reference = minimize(loss, [1.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x[0]
    assert found == pytest.approx(reference, rel=1e-4)
    assert found == pytest.approx(heat, rel=0.1)


def test_scaling_repairs_what_is_too_sure_and_no_answer_changes() -> None:
    val, test = drawn(4000, 4.0, 0), drawn(4000, 4.0, 1)
    found = calibration([KeptOutputs(*val, *test)])
    assert found.scaled_ece < 0.03 < 0.15 < found.ece
    assert found.scaled_log_loss < found.log_loss
    assert (test[0] / temperature(*val)).argmax(1).equal(test[0].argmax(1))


@pytest.mark.parametrize("n", [20, 200])
def test_without_a_mistake_it_is_as_sure_as_one_more_example_allows(n: int) -> None:
    logits = torch.eye(4).repeat(n // 4, 1)
    sure = (logits[0] / temperature(logits, logits.argmax(1))).softmax(0).max()
    assert sure == pytest.approx(1 - 3 / 4 / (n + 1), abs=1e-4)  # of the example that may be anything, a quarter
