"""What predictions are worth: a `Metric` per question, for classes, numbers, several labels and dense targets.

Predictions come in the terms of a target (see `fallow.data.targets.Target.decode`): probabilities N×C for classes,
values N or N×K for numbers, probabilities N×L for labels, probabilities N×C×… for dense targets. All is NumPy in
float64, by hand where scikit-learn's own lines are few: importing it takes every process two seconds.

A class or label that ``y`` does not hold has no recall, no AUROC, no precision: macro averages are over the others.
Where none is left (AUROC of a single class) the metric is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

BINS = 15  # of the calibration error, as Guo et al. 2017 have it
NO_LABEL = -100  # the class of a pixel that has none, as in torch's losses
TINY = float(np.finfo(np.float64).eps)  # the least probability that log-loss knows, as in scikit-learn


@dataclass(frozen=True)
class Metric:
    """A question to ask of predictions, and which way is better.

    >>> CLASSES["accuracy"].compute(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]))
    0.5
    """

    name: str  # as --metric takes it
    words: str  # as people read it: "test accuracy" is "test" and these
    higher: bool  # whether more is better
    bounds: tuple[float, float]
    share: bool  # a share of one, shown in per cent and points
    compute: Callable[[Array, Array], float]  # of (prediction, y)

    def worth(self, value: float | None) -> float:
        """A value to sort by: the better, the larger; a missing one is worst.

        >>> NUMBERS["rmse"].worth(2.0), CLASSES["accuracy"].worth(None)
        (-2.0, -inf)
        """
        return -np.inf if value is None or np.isnan(value) else value if self.higher else -value


# What judges where there is nothing else: the mean query loss of tasks with numbers.
LOSS = Metric(
    "loss", "loss", False, (0.0, np.inf), False, lambda prediction, y: float(np.square(prediction - y).mean())
)


# Classes: probabilities N×C, y of N class indices.


def accuracy(prediction: Array, y: Array) -> float:
    """The share of examples whose class has the largest probability."""
    return float((prediction.argmax(1) == y).mean())


def recalls(prediction: Array, y: Array) -> Array:
    """For each class the share of its examples that are found; NaN for a class that ``y`` does not hold.

    >>> recalls(np.eye(3)[[0, 1, 1, 0]], np.array([0, 0, 1, 1]))
    array([0.5, 0.5, nan])
    """
    found, counts, _ = _confusion(prediction, y)
    return np.divide(found, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def balanced_accuracy(prediction: Array, y: Array) -> float:
    """The mean recall of the classes."""
    return float(np.nanmean(recalls(prediction, y)))


def macro_f1(prediction: Array, y: Array) -> float:
    """The mean over classes of F1 = 2·TP / (2·TP + FP + FN)."""
    found, counts, guessed = _confusion(prediction, y)
    return _mean(2 * found[counts > 0] / (counts + guessed)[counts > 0])


def _confusion(prediction: Array, y: Array) -> tuple[Array, Array, Array]:
    """For each class how many are found, how many there are, and how often it is guessed."""
    guesses, classes = prediction.argmax(1), prediction.shape[1]
    found, counts, guessed = (np.bincount(some, minlength=classes) for some in (y[guesses == y], y, guesses))
    return found.astype(np.float64), counts.astype(np.float64), guessed.astype(np.float64)


def auroc(prediction: Array, y: Array) -> float:
    """The mean over classes of the area under the curve, one against the rest; of two classes, that of the second."""
    if prediction.shape[1] == 2:
        return separation(prediction[:, 1], y == 1)
    return macro_auroc(prediction, y[:, None] == np.arange(prediction.shape[1]))


def log_loss(prediction: Array, y: Array) -> float:
    """−mean log p(y)."""
    chosen = prediction.astype(np.float64)[np.arange(len(y)), y]
    return float(-np.log(chosen.clip(TINY, 1 - TINY)).mean())


def calibration_error(prediction: Array, y: Array) -> float:
    """ECE = Σ_b |B_b|/N · |accuracy(B_b) − confidence(B_b)| over 15 bins of confidence of equal width."""
    confidence = prediction.astype(np.float64).max(1)
    place = np.digitize(confidence, np.linspace(0, 1, BINS + 1)[1:-1], right=True)  # a bin holds its upper edge
    gaps = np.bincount(place, (prediction.argmax(1) == y) - confidence, BINS)
    return float(np.abs(gaps).sum() / len(y))


# Numbers: values N or N×K; of several numbers the mean over them.


def rmse(prediction: Array, y: Array) -> float:
    """√ mean (ŷ − y)²."""
    return float(np.sqrt(np.square(_errors(prediction, y)).mean(0)).mean())


def mae(prediction: Array, y: Array) -> float:
    """Mean |ŷ − y|."""
    return float(np.abs(_errors(prediction, y)).mean())


def r2(prediction: Array, y: Array) -> float:
    """R² = 1 − Σ (ŷ − y)² / Σ (y − ȳ)²; where y is constant, 1 if every error is 0 and otherwise 0."""
    left = np.square(_errors(prediction, y)).sum(0)
    columns = _columns(y)
    spread = np.square(columns - columns.mean(0)).sum(0)
    shares = np.divide(left, spread, out=(left > 0).astype(np.float64), where=spread > 0)
    return float(1 - shares.mean())


def _errors(prediction: Array, y: Array) -> Array:
    return _columns(prediction) - _columns(y)


def _columns(values: Array) -> Array:
    return values.astype(np.float64).reshape(len(values), -1)


# Several labels: probabilities N×L, y of N×L zeros and ones.


def macro_auroc(prediction: Array, y: Array) -> float:
    """The mean over labels of the area under the curve; labels that all examples have, or none, are left out."""
    held = y.astype(bool)
    areas = np.array([separation(*pair) for pair in zip(prediction.T, held.T, strict=True)])
    return _mean(areas[~np.isnan(areas)])


def separation(scores: Array, positive: Array) -> float:
    """The probability that a positive scores above a negative, ties counting half (Mann–Whitney's U)."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # equal scores share their ranks
    return float((ranks[place][positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def mean_average_precision(prediction: Array, y: Array) -> float:
    """The mean over labels of the average precision."""
    held = y.astype(bool)
    return _mean([average_precision(*pair) for pair in zip(prediction.T, held.T, strict=True) if pair[1].any()])


def average_precision(scores: Array, positive: Array) -> float:
    """AP = Σ_n (R_n − R_{n−1})·P_n, precision and recall at every threshold; there must be a positive."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True).nonzero()[0]  # of every run of equal scores
    found = positive[order].cumsum()[last].astype(np.float64)
    return float(np.diff(found / positive.sum(), prepend=0.0) @ (found / (last + 1)))


def labels_f1(prediction: Array, y: Array) -> float:
    """The mean over labels of F1, a label being given from a probability of 0.5 on."""
    held, given = y.astype(bool), prediction >= 0.5
    total, present = (held.sum(0) + given.sum(0)).astype(np.float64), held.any(0)
    return _mean(2 * (held & given).sum(0)[present] / total[present])


# Dense: probabilities N×C×… or class indices N×…, y of N×… class indices. Class 0 is the background. What has no label
# in y counts as background on both sides.
#
# Each metric is taken per example and foreground class, averaged over the examples where the class is in the
# prediction or in y, then over classes. With an empty mask on one side only, Dice and IoU are 0 and the Hausdorff
# distance is the diagonal of the picture, the largest there is. Where all masks of both are empty, nothing is wrong:
# Dice and IoU are 1 and the distance is 0.


def dice(prediction: Array, y: Array) -> float:
    """2·|A ∩ B| / (|A| + |B|), A and B the predicted and the true mask."""
    return _over_classes(prediction, y, 1.0, lambda a, b: 2 * _size(a & b) / (_size(a) + _size(b)))


def iou(prediction: Array, y: Array) -> float:
    """|A ∩ B| / |A ∪ B|, A and B the predicted and the true mask."""
    return _over_classes(prediction, y, 1.0, lambda a, b: _size(a & b) / _size(a | b))


def hausdorff95(prediction: Array, y: Array) -> float:
    """The larger of the 95th percentiles of d(a, ∂B) over a ∈ ∂A and of d(b, ∂A) over b ∈ ∂B, in pixels or voxels.

    ∂A are the pixels of A beside one (up, down, left, right, …) that is not in A; the picture's edge counts as such.
    """
    return _over_classes(prediction, y, 0.0, lambda a, b: np.array(list(map(_distance, a, b))))


def _over_classes(prediction: Array, y: Array, empty: float, measure: Callable[[Array, Array], Array]) -> float:
    masks = prediction.argmax(1) if prediction.ndim > y.ndim else prediction
    values = [measure(*pair).mean() for pair in _pairs(masks, y)]
    return float(np.mean(values)) if values else empty


def _pairs(masks: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """The masks of each foreground class, of the examples in which either has it."""
    masks = np.where(y == NO_LABEL, 0, masks)
    for label in range(1, 1 + int(max(masks.max(), y.max()))):
        a, b = masks == label, y == label
        either = (a | b).any(tuple(range(1, y.ndim)))
        if either.any():
            yield a[either], b[either]


def _size(masks: Array) -> Array:
    return masks.sum(tuple(range(1, masks.ndim)), dtype=np.float64)


def _distance(a: Array, b: Array) -> float:
    """The 95 % Hausdorff distance of two masks, not both empty."""
    from scipy import ndimage

    if not a.any() or not b.any():
        return float(np.linalg.norm(np.array(a.shape) - 1))
    box = ndimage.find_objects((a | b).astype(np.int8))[0]  # outside there is nothing to measure
    surfaces = [mask[box] & ~ndimage.binary_erosion(mask[box]) for mask in (a, b)]
    away = [ndimage.distance_transform_edt(~surface) for surface in surfaces]
    return float(max(np.percentile(away[1][surfaces[0]], 95), np.percentile(away[0][surfaces[1]], 95)))


def _mean(values: Array | list[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _by_name(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


INFINITE = float("inf")

# The first of each kind is the one that judges unless another is asked for.
CLASSES = _by_name(
    Metric("accuracy", "accuracy", True, (0, 1), True, accuracy),
    Metric("balanced-accuracy", "balanced accuracy", True, (0, 1), True, balanced_accuracy),
    Metric("macro-f1", "macro F1", True, (0, 1), True, macro_f1),
    Metric("auroc", "AUROC", True, (0, 1), True, auroc),
    Metric("log-loss", "log-loss", False, (0, INFINITE), False, log_loss),
    Metric("ece", "calibration error", False, (0, 1), True, calibration_error),
)
NUMBERS = _by_name(
    Metric("rmse", "RMSE", False, (0, INFINITE), False, rmse),
    Metric("mae", "mean absolute error", False, (0, INFINITE), False, mae),
    Metric("r2", "R²", True, (-INFINITE, 1), False, r2),
)
LABELS = _by_name(
    Metric("macro-auroc", "macro AUROC", True, (0, 1), True, macro_auroc),
    Metric("map", "mean average precision", True, (0, 1), True, mean_average_precision),
    Metric("f1", "F1", True, (0, 1), True, labels_f1),
)
DENSE = _by_name(
    Metric("dice", "Dice", True, (0, 1), True, dice),
    Metric("iou", "IoU", True, (0, 1), True, iou),
    Metric("hd95", "95 % Hausdorff distance", False, (0, INFINITE), False, hausdorff95),
)
