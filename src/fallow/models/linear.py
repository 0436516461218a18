"""The linear head that fits given features best: logistic regression or ridge, as strong as validation likes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fallow.data.targets import Numbers, Target
from fallow.evaluate.heads import Axes, Head, principal, ridge
from fallow.evaluate.logistic import logistic
from fallow.evaluate.metrics import Metric

STRENGTHS = (1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3)  # relative to the mean eigenvalue of the inputs' scatter, strongest first
UNSEEN = 0.1  # what is taken where there is no validation to choose by
FLOOR = 1e-6  # about the probability of a class without training examples

Known = tuple[Tensor, Tensor]  # features (n, width) and answers


def fitted_head(
    train: Known, val: Known | None, target: Target, metric: Metric, strength: float | None = None
) -> tuple[Head, float]:
    """The head for a target, and how strong its penalty is: as given, or as ``metric`` on validation likes it best.

    Logistic regression of classes, of labels one for each against the rest, ridge of numbers. All strengths are
    fitted together; of equal ones the strongest is taken.
    """
    x, y = train
    strengths = (strength,) if strength is not None else (UNSEEN,) if val is None else STRENGTHS
    axes = principal(x)
    penalties = axes.scale * torch.tensor(strengths, dtype=torch.float64)
    if target.kind == "numbers":
        heads = ridge(x, standardised(target, y), penalties, axes=axes)
    elif target.kind == "labels":
        each = [_against_rest(x, y[:, label], penalties, axes) for label in range(target.outputs)]
        heads = Head(torch.stack([head.weight for head in each], 1), torch.stack([head.bias for head in each], 1))
    else:
        seen = y.unique()  # a class without training examples is hardly ever the answer
        found = logistic(x, torch.searchsorted(seen, y), penalties, axes=axes, tolerance=1e-4)
        weight = found.weight.new_zeros(len(strengths), target.outputs, x.shape[1])
        bias = torch.full_like(weight[..., 0], np.log(FLOOR))
        weight[:, seen], bias[:, seen] = found.weight, found.bias
        heads = Head(weight, bias)
    place = best_of(list(heads(val[0])), val[1], target, metric) if val is not None and len(strengths) > 1 else 0
    return Head(heads.weight[place], heads.bias[place]), strengths[place]


def best_of(outputs: list[Tensor], y: Tensor, target: Target, metric: Metric) -> int:
    """Which of the outputs on validation is best; of equal ones the first."""
    sign, truth = 1 if metric.higher else -1, y.numpy()
    values = [sign * metric.compute(target.decode(output).numpy(), truth) for output in outputs]
    return int(np.nanargmax(values)) if not np.isnan(values).all() else 0


def standardised(target: Target, y: Tensor) -> Tensor:
    """Numbers as a network gives them: in deviations from the training mean."""
    assert isinstance(target, Numbers)
    return (y.double().reshape(len(y), -1) - torch.tensor(target.mean)) / torch.tensor(target.std)


def _against_rest(x: Tensor, y: Tensor, penalties: Tensor, axes: Axes) -> Head:
    """Logistic regression of one label; one that all examples have, or none, keeps its frequency."""
    if len(y.unique()) == 1:
        odds = ((y.double().sum() + 0.5) / (len(y) + 1)).logit()
        return Head(penalties.new_zeros(len(penalties), x.shape[1]), odds.expand(len(penalties)))
    both = logistic(x, y.long(), penalties, axes=axes, tolerance=1e-4)
    return Head(both.weight[:, 1] - both.weight[:, 0], both.bias[:, 1] - both.bias[:, 0])
