"""The linear head that fits given features best: logistic regression or ridge, as strong as validation likes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.data.targets import Numbers, Target
from fallow.evaluate.heads import Axes, LinearHead, principal, ridge
from fallow.evaluate.logistic import logistic
from fallow.evaluate.metrics import Metric

STRENGTHS = (1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3)  # relative to the mean eigenvalue of the inputs' scatter, strongest first
UNSEEN = 0.1  # what is taken where there is no validation to choose by
RANKS = ("auroc", "macro-auroc", "map")  # metrics that look at the order of probabilities alone
GROUPS = 10  # of examples, for the error of such a metric
FLOOR = 1e-6  # about the probability of a class without training examples

Known = tuple[Tensor, Tensor]  # features (n, width) and answers


def fitted_head(
    train: Known, val: Known | None, target: Target, metric: Metric, strength: float | None = None
) -> tuple[LinearHead, float]:
    """The head for a target, and how strong its penalty is: as given, or as ``metric`` on validation likes it best.

    Logistic regression of classes, of labels one for each against the rest, ridge of numbers. All strengths are
    fitted together, and the chosen one to the end; of equal ones that of the lowest loss is taken (see `best_of`).
    """
    axes = principal(train[0])
    if strength is None:
        strength = UNSEEN
        if val is not None:
            tried = _heads(train, axes, target, STRENGTHS, tolerance=1e-3)
            strength = STRENGTHS[best_of(list(tried(val[0])), val[1], target, metric, shrunk=True)]
    found = _heads(train, axes, target, (strength,), tolerance=1e-6)
    return LinearHead(found.weight[0], found.bias[0]), strength


def _heads(train: Known, axes: Axes, target: Target, strengths: Sequence[float], tolerance: float) -> LinearHead:
    """A head for every strength."""
    x, y = train
    penalties = axes.scale * torch.tensor(strengths, dtype=torch.float64)
    if target.kind == "numbers":
        return ridge(x, standardised(target, y), penalties, axes=axes)
    if target.kind == "labels":
        each = [_against_rest(x, y[:, label], penalties, axes, tolerance) for label in range(target.outputs)]
        return LinearHead(torch.stack([head.weight for head in each], 1), torch.stack([head.bias for head in each], 1))
    seen = y.unique()  # a class without training examples is hardly ever the answer
    found = logistic(x, torch.searchsorted(seen, y), penalties, axes=axes, tolerance=tolerance)
    weight = found.weight.new_zeros(len(strengths), target.outputs, x.shape[1])
    bias = torch.full_like(weight[..., 0], np.log(FLOOR))
    weight[:, seen], bias[:, seen] = found.weight, found.bias
    return LinearHead(weight, bias)


def best_of(outputs: Sequence[Tensor], y: Tensor, target: Target, metric: Metric, *, shrunk: bool = False) -> int:
    """Which of the outputs on validation is best; of equal ones that of the lowest loss.

    ``shrunk`` says that they differ in how far a penalty shrank them, which a metric of ranks does not see: under a
    heavy one all probabilities are about the label's frequency, and hardly any label would be given. There, what is
    within a standard error of the best is equal to it.
    """
    truth = y.numpy()
    decoded = [target.decode(output).numpy() for output in outputs]
    worths = [metric.worth(metric.compute(each, truth)) for each in decoded]
    losses = [float(target.loss(output, y)) for output in outputs]
    best = max(range(len(outputs)), key=worths.__getitem__)
    least = worths[best] - (_error(decoded[best], truth, metric) if shrunk and metric.name in RANKS else 0.0)
    return min((i for i, worth in enumerate(worths) if worth >= least), key=losses.__getitem__)


def _error(prediction: NDArray[Any], truth: NDArray[Any], metric: Metric) -> float:
    """The standard error of a metric, by the jackknife over groups of examples (Efron & Stein 1981)."""
    places, groups = np.arange(len(truth)), min(GROUPS, len(truth))
    kept = [places % groups != group for group in range(groups)]
    values = np.array([metric.compute(prediction[some], truth[some]) for some in kept if some.any()])
    error = np.sqrt((groups - 1) * values.var()) if len(values) else np.nan
    return float(np.nan_to_num(error))


def standardised(target: Target, y: Tensor) -> Tensor:
    """Numbers as a network gives them: in deviations from the training mean."""
    assert isinstance(target, Numbers)
    return (y.double().reshape(len(y), -1) - torch.tensor(target.mean)) / torch.tensor(target.std)


def _against_rest(x: Tensor, y: Tensor, penalties: Tensor, axes: Axes, tolerance: float) -> LinearHead:
    """Logistic regression of one label; one that all examples have, or none, keeps its frequency."""
    if len(y.unique()) == 1:
        odds = ((y.double().sum() + 0.5) / (len(y) + 1)).logit()
        return LinearHead(penalties.new_zeros(len(penalties), x.shape[1]), odds.expand(len(penalties)))
    both = logistic(x, y.long(), penalties, axes=axes, tolerance=tolerance)
    return LinearHead(both.weight[:, 1] - both.weight[:, 0], both.bias[:, 1] - both.bias[:, 0])
