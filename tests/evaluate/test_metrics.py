"""Metrics against scikit-learn's and scipy's own functions, and masks against brute force."""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn import metrics as sklearn

from fallow.evaluate.metrics import CLASSES, DENSE, LABELS, NUMBERS, Metric, recalls

RNG = np.random.default_rng(0)


def near(value: float) -> Any:
    return pytest.approx(value, abs=1e-12, rel=1e-12)


def probabilities(n: int, classes: int, ties: bool = False) -> np.ndarray:
    scores = RNG.integers(1, 5, (n, classes)).astype(float) if ties else RNG.exponential(size=(n, classes))
    return scores / scores.sum(1, keepdims=True)


def test_importing_is_light() -> None:
    code = "import sys, fallow.evaluate.metrics; print({'sklearn', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes(classes: int, ties: bool) -> None:
    p, y = probabilities(211, classes, ties), RNG.integers(classes, size=211)
    guess = p.argmax(1)
    found = {name: metric.compute(p, y) for name, metric in CLASSES.items()}
    assert found["accuracy"] == sklearn.accuracy_score(y, guess)
    assert found["balanced-accuracy"] == near(sklearn.balanced_accuracy_score(y, guess))
    assert found["macro-f1"] == near(sklearn.f1_score(y, guess, average="macro"))
    assert found["auroc"] == near(sklearn.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr"))
    assert found["log-loss"] == near(sklearn.log_loss(y, p, labels=range(classes)))
    assert recalls(p, y) == near(sklearn.recall_score(y, guess, average=None))


def test_a_class_that_is_missing_is_left_out() -> None:
    p, y = probabilities(300, 4), RNG.integers(3, size=300)
    y[y == 1] = 0  # classes 1 and 3 are never true, but guessed
    guess = p.argmax(1)
    assert set(guess) == {0, 1, 2, 3}
    assert CLASSES["macro-f1"].compute(p, y) == near(sklearn.f1_score(y, guess, average="macro", labels=[0, 2]))
    per_class = recalls(p, y)
    assert np.isnan(per_class[[1, 3]]).all()
    assert CLASSES["balanced-accuracy"].compute(p, y) == near(per_class[[0, 2]].mean())
    rest = [sklearn.roc_auc_score(y == label, p[:, label]) for label in (0, 2)]
    assert CLASSES["auroc"].compute(p, y) == near(float(np.mean(rest)))
    assert math.isfinite(CLASSES["log-loss"].compute(p, y))
    assert math.isnan(CLASSES["auroc"].compute(p, y * 0))
    assert math.isnan(CLASSES["auroc"].compute(p[:, :2], y * 0))


def test_log_loss_of_certain_and_wrong() -> None:
    p, y = np.eye(3)[[0, 1, 2, 2]], np.array([0, 1, 2, 0])
    assert CLASSES["log-loss"].compute(p, y) == near(sklearn.log_loss(y, p))


def test_calibration_error_is_its_sum_over_bins() -> None:
    p, y = probabilities(400, 3), RNG.integers(3, size=400)
    p[:4] = [[0.6, 0.4, 0], [0.8, 0.1, 0.1], [1, 0, 0], [0.4, 0.3, 0.3]]  # on edges of bins
    confidence, right = p.max(1), p.argmax(1) == y
    edges = np.linspace(0, 1, 16)
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert CLASSES["ece"].compute(p, y) == near(float(expected))
    assert CLASSES["ece"].compute(np.eye(3)[y], y) == 0


def test_single_precision_is_computed_in_double() -> None:
    p, y = probabilities(1000, 5).astype(np.float32), RNG.integers(5, size=1000)
    for metric in CLASSES.values():
        assert metric.compute(p, y) == metric.compute(p.astype(np.float64), y)


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_numbers(shape: tuple[int, ...]) -> None:
    y, prediction = RNG.normal(3, 2, shape), RNG.normal(3, 2, shape)
    assert NUMBERS["rmse"].compute(prediction, y) == near(sklearn.root_mean_squared_error(y, prediction))
    assert NUMBERS["mae"].compute(prediction, y) == near(sklearn.mean_absolute_error(y, prediction))
    assert NUMBERS["r2"].compute(prediction, y) == near(sklearn.r2_score(y, prediction))


def test_numbers_in_a_column_and_constant_ones() -> None:
    y, prediction = RNG.normal(size=9), RNG.normal(size=(9, 1))
    assert NUMBERS["mae"].compute(prediction, y) == near(sklearn.mean_absolute_error(y, prediction[:, 0]))
    two = np.stack([y, np.ones(9)], 1)
    assert NUMBERS["r2"].compute(two, two) == sklearn.r2_score(two, two) == 1
    assert NUMBERS["r2"].compute(two * 1.5, two) == near(sklearn.r2_score(two, two * 1.5))


@pytest.mark.parametrize("ties", [False, True])
def test_labels(ties: bool) -> None:
    y = (RNG.random((200, 5)) < [0.5, 0.1, 0.9, 0.3, 0.02]).astype(np.uint8)
    y[:2] = [[1], [0]]  # each label once and not always
    p = RNG.integers(1, 5, y.shape) / 5 if ties else RNG.random(y.shape)
    assert LABELS["macro-auroc"].compute(p, y) == near(sklearn.roc_auc_score(y, p, average="macro"))
    assert LABELS["map"].compute(p, y) == near(sklearn.average_precision_score(y, p, average="macro"))
    assert LABELS["f1"].compute(p, y) == near(sklearn.f1_score(y, p >= 0.5, average="macro"))


def test_a_label_that_nobody_has_is_left_out() -> None:
    y = (RNG.random((60, 4)) < 0.4).astype(np.float32)
    y[:, 1], y[:, 2] = 0, 1
    p = RNG.random(y.shape)
    some, present = [0, 3], [0, 2, 3]
    assert LABELS["macro-auroc"].compute(p, y) == near(sklearn.roc_auc_score(y[:, some], p[:, some]))
    assert LABELS["map"].compute(p, y) == near(sklearn.average_precision_score(y[:, present], p[:, present]))
    assert LABELS["f1"].compute(p, y) == near(sklearn.f1_score(y[:, present], p[:, present] >= 0.5, average="macro"))
    for metric in LABELS.values():
        assert math.isnan(metric.compute(p, y * 0))


def surface(mask: np.ndarray) -> np.ndarray:
    """Voxels with a neighbour outside the mask or outside the picture."""
    found = []
    for place in np.argwhere(mask):
        for axis, step in itertools.product(range(mask.ndim), (-1, 1)):
            beside = place.copy()
            beside[axis] += step
            if not (0 <= beside[axis] < mask.shape[axis] and mask[tuple(beside)]):
                found.append(place)
                break
    return np.array(found)


def hausdorff(a: np.ndarray, b: np.ndarray) -> float:
    distances = cdist(surface(a), surface(b))
    return float(max(np.percentile(distances.min(1), 95), np.percentile(distances.min(0), 95)))


def blobs(n: int, size: tuple[int, ...], classes: int) -> np.ndarray:
    """Boxes of the foreground classes, one over the other, each example with all of them."""
    masks = np.zeros((n, *size), np.int64)
    for example in masks:
        for label in range(1, classes):
            begin = [RNG.integers(0, side - 3) for side in size]
            example[tuple(slice(b, b + 2 + RNG.integers(1, 4)) for b in begin)] = label
        example.flat[: classes - 1] = range(1, classes)
    return masks


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("size", [(13, 11), (7, 8, 6)])
def test_dense(size: tuple[int, ...], classes: int) -> None:
    y, guess = blobs(5, size, classes), blobs(5, size, classes)
    p = np.moveaxis(np.eye(classes)[guess], -1, 1) * 0.8 + 0.2 / classes
    expected: dict[str, list[float]] = {"dice": [], "iou": [], "hd95": []}
    for label in range(1, classes):
        for truth, found in zip(y == label, guess == label, strict=True):
            flat = truth.ravel(), found.ravel()
            expected["dice"].append(sklearn.f1_score(*flat))
            expected["iou"].append(sklearn.jaccard_score(*flat))
            expected["hd95"].append(hausdorff(truth, found))
    for name, values in expected.items():
        assert DENSE[name].compute(p, y) == near(float(np.mean(values)))
        assert DENSE[name].compute(guess, y) == DENSE[name].compute(p, y)  # class indices do as well
        assert DENSE[name].compute(y, y) == (0 if name == "hd95" else 1)
    assert DENSE["hd95"].compute(guess, y) == near(DENSE["hd95"].compute(y, guess))


def test_empty_masks() -> None:
    y, guess = np.zeros((4, 5, 9), np.int64), np.zeros((4, 5, 9), np.int64)
    found = {name: metric.compute(guess, y) for name, metric in DENSE.items()}
    assert found == {"dice": 1, "iou": 1, "hd95": 0}
    y[0, 2, 2] = guess[1, 3, 3] = 1  # missed; imagined
    y[2, 1, 1] = guess[2, 1, 1] = 1  # found; in the fourth there is nothing and nothing is found
    found = {name: metric.compute(guess, y) for name, metric in DENSE.items()}
    diagonal = math.hypot(4, 8)
    assert found == {"dice": near(1 / 3), "iou": near(1 / 3), "hd95": near(2 * diagonal / 3)}
    y[3, :2] = guess[3, :2] = 2  # another class, found in its only example, counts as much as the first
    assert DENSE["dice"].compute(guess, y) == near((1 / 3 + 1) / 2)


@pytest.mark.parametrize("metric", [m for kind in (CLASSES, NUMBERS, LABELS, DENSE) for m in kind.values()])
def test_directions_and_bounds(metric: Metric) -> None:
    """A perfect prediction reaches the better bound, and no prediction goes beyond either."""
    labels = RNG.integers(3, size=60)
    masks = RNG.integers(3, size=(6, 8, 8))
    perfect = {
        "classes": (np.eye(3)[labels], labels),
        "numbers": (labels * 1.5, labels * 1.5),
        "labels": (np.eye(3)[labels], np.eye(3)[labels]),
        "dense": (masks, masks),
    }
    kind = next(k for k, known in zip(perfect, (CLASSES, NUMBERS, LABELS, DENSE), strict=True) if metric.name in known)
    prediction, y = perfect[kind]
    low, high = metric.bounds
    best = metric.compute(prediction, y)
    assert best == pytest.approx(high if metric.higher else low, abs=1e-12)
    worse = metric.compute(np.roll(prediction, 1, 0), y)
    assert (worse < best) if metric.higher else (worse > best)
    assert low <= worse <= high
    assert metric.share == (metric.bounds == (0, 1))
    assert pickle.loads(pickle.dumps(metric)) == metric
