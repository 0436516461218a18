"""How far probabilities can be trusted, before and after one number sets them right: temperature scaling.

>>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]]).repeat(1000, 1)
>>> y = torch.tensor([0, 0, 1, 1]).repeat(1000)  # three of four right, where it claims 98 %
>>> round(temperature(logits, y), 2), round(4 / torch.tensor(0.75).logit().item(), 2)  # 4 / T is what 75 % takes
(3.64, 3.64)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional

from fallow.evaluate.metrics import calibration_error, log_loss

HOTTEST = 20.0  # and the coldest is its inverse


def temperature(logits: Tensor, y: Tensor) -> float:
    """The T that minimises the mean of −log softmax(z/T)_y on validation (Guo et al. 2017, equation 9).

    The largest logit stays the largest: no answer changes, only how sure it is. Of n examples one more is taken to be
    anything (Platt 1999): where validation has no mistakes, plain likelihood would have the network sure of everything.
    """
    z, unsure = logits.double(), 1 / (len(y) + 1)

    def loss(log_t: float) -> float:
        return float(functional.cross_entropy(z / math.exp(log_t), y, label_smoothing=unsure))

    edge = math.log(HOTTEST)
    return math.exp(minimize_scalar(loss, bounds=(-edge, edge), method="bounded", options={"xatol": 1e-6}).x)


class Calibration(NamedTuple):
    """Calibration error and log-loss on test, as the network says it and after scaling on validation."""

    ece: float
    log_loss: float
    scaled_ece: float
    scaled_log_loss: float


class KeptOutputs(NamedTuple):
    """The logits of one network for classes, with the true ones."""

    val: Tensor
    val_y: Tensor
    test: Tensor
    test_y: Tensor


def calibration(networks: Sequence[KeptOutputs]) -> Calibration:
    """Of the mean of the networks' probabilities on one test set, each scaled by its own temperature or not at all."""
    y = networks[0].test_y.numpy()
    plain = torch.stack([each.test.double().softmax(1) for each in networks]).mean(0).numpy()
    heat = [temperature(each.val, each.val_y) for each in networks]
    scaled = torch.stack([(each.test.double() / t).softmax(1) for each, t in zip(networks, heat, strict=True)])
    mean = scaled.mean(0).numpy()
    return Calibration(calibration_error(plain, y), log_loss(plain, y), calibration_error(mean, y), log_loss(mean, y))
