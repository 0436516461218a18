"""Prediction depth (Baldock, Maennel and Neyshabur 2021): from which layer on nearest neighbours know the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.diagnose.checks import refuse_mismatch, refuse_nonfinite
from fallow.evaluate.features import Pooling, block_outputs, features
from fallow.evaluate.neighbours import neighbours, vote

NORMALISATIONS = ("none", "standard")
NEAR = 0.5  # deviations between numbers that agree


@dataclass(frozen=True)
class PredictionDepth:
    """What :func:`prediction_depth` found."""

    layers: tuple[str, ...]  # blocks from input to output
    accuracies: np.ndarray  # of the probe on each, on the test points; of numbers, R²
    depths: np.ndarray  # of each test point: 0 is the first block, len(layers) is the network's output only
    predictions: np.ndarray  # of the probes: layers × test points
    network_accuracy: float
    k: int
    distance: str
    pooling: str
    normalisation: str
    train_points: int

    @property
    def mean(self) -> float:
        """The mean depth over all test points."""
        return float(self.depths.mean())

    @property
    def counts(self) -> np.ndarray:
        """How many test points have each depth, from 0 to ``len(layers)``."""
        return np.bincount(self.depths, minlength=len(self.layers) + 1)

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        settings = ("k", "distance", "pooling", "normalisation", "train_points", "network_accuracy", "mean")
        arrays = ("accuracies", "counts", "depths")
        return {
            "layers": list(self.layers),
            **{name: getattr(self, name).tolist() for name in arrays},
            **{name: getattr(self, name) for name in settings},
        }


def prediction_depth(
    model: nn.Module,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    blocks: Sequence[str] | None = None,
    k: int = 5,
    distance: str = "euclidean",
    *,
    pooling: Pooling = "mean",
    normalisation: str = "none",
) -> PredictionDepth:
    """The accuracy of a k-nearest-neighbour probe on every block, and the prediction depth of every test point.

    The depth of a point is the earliest block from which on all probes agree with the network's own prediction,
    whether that is right or not; if the last probe does not agree, it is the number of blocks. SEAL's figures 2 and 3
    show the accuracies, with k = 5 and all training points.

    Numbers are the mean of the k neighbours', and agree with the network where they differ by less than half a
    deviation of the training targets; the probes' R² takes the place of accuracies.

    The class with the most votes among the k neighbours wins; of classes with as many votes, the one with the nearest
    neighbour. Of equal distances the one to the training point with the lower index counts as smaller.

    Parameters
    ----------
    train, test : inputs as the model takes them, and class indices, or numbers N×K as the model gives them.
    blocks : paths of modules; the model's own blocks by default. They are ordered as they finish in a forward pass.
    distance : "euclidean" or "cosine".
    pooling : how outputs N×C×… become rows: "mean" or "max" over all dimensions after the second, "flatten" for no
        pooling, or a function; SEAL does not say.
    normalisation : "standard" gives every feature mean 0 and variance 1 over the training points; "none" leaves it.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.randn(60, 2)
    >>> found = prediction_depth(net, (x, (x[:, 0] > 0).long()), (x[:5], torch.zeros(5).long()))
    >>> found.layers, found.depths.shape
    (('0', '2'), (5,))

    """
    if normalisation not in NORMALISATIONS:
        raise unknown("normalisation", normalisation, NORMALISATIONS)
    refuse_mismatch(*train)
    refuse_mismatch(*test)
    refuse_nonfinite(model)
    outputs = block_outputs(model, blocks, train[0])
    known, _ = features(model, outputs, train[0], pooling)
    asked, logits = features(model, outputs, test[0], pooling)
    if logits.ndim != 2:
        raise RequestError(
            f"the model gives an output of shape {tuple(logits.shape)}: one row of class scores is needed"
        )
    regression = train[1].is_floating_point()
    own = logits.double() if regression else logits.argmax(1)
    labels, truth = train[1].to(own.device), test[1].to(own.device)
    names = tuple(known)
    probes = []
    for name in names:
        a, b = known.pop(name), asked.pop(name)
        if normalisation == "standard":
            mean, std = a.mean(0), a.std(0, correction=0)
            std = torch.where(std > 1e-6 * mean.abs(), std, 1.0)  # what is constant but for rounding is only centred
            a, b = (a - mean) / std, (b - mean) / std
        nearest = labels[neighbours(a, b, k, distance=distance)]
        probes.append(nearest.double().mean(1) if regression else vote(nearest))
    predictions = torch.stack(probes)
    same = predictions == own
    if regression:
        same = ((predictions - own).abs() < NEAR * labels.double().std(0, correction=0)).all(-1)
    agree = same.long().flip(0).cumprod(0)  # 1 from the last layer back to the first disagreement
    return PredictionDepth(
        layers=names,
        accuracies=torch.stack([_right(probe, truth) for probe in predictions]).cpu().numpy(),
        depths=(len(names) - agree.sum(0)).cpu().numpy(),
        predictions=predictions.cpu().numpy(),
        network_accuracy=float(_right(own, truth)),
        k=k,
        distance=distance,
        pooling=pooling if isinstance(pooling, str) else getattr(pooling, "__name__", "own"),
        normalisation=normalisation,
        train_points=len(labels),
    )


def _right(found: Tensor, truth: Tensor) -> Tensor:
    """The share of classes that are right; of numbers, R² = 1 − Σ(ŷ − y)²/Σ(y − ȳ)²."""
    if not truth.is_floating_point():
        return (found == truth).double().mean()
    y = truth.double()
    return 1 - (found - y).square().sum() / (y - y.mean(0)).square().sum()
