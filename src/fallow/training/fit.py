"""``fit``: put a model, a problem and a method together, and train."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import torch
from torch import nn
from typing_extensions import Unpack

from fallow.core import loop
from fallow.core.method import Method
from fallow.training.options import FitOptions, with_signature
from fallow.training.prepare import prepare
from fallow.training.result import Result, result_of


@with_signature
def fit(
    model: nn.Module | str | None, data: Any, method: Method | str = "normal", **options: Unpack[FitOptions]
) -> Result:
    """Train a model on data by a method.

    Parameters
    ----------
    model : a module, the name of one of fallow's models (``"resnet18:width=16"``), ``"module:factory"`` of
        your own, or None for the data's recipe: its network, and its settings where none are given
        (:mod:`fallow.training.recipes`). A module is trained in place.
    data : a bundled name, a path, ``(x, y)`` tensors, a torch ``Dataset`` or ``DataLoader``, a ``Data``, or
        ``Tasks`` for few-shot methods (see :func:`fallow.fewshot`).
    method : a method or its name with settings (``"seal:scale=0.1"``, ``"llf+sagd"``).
    optimizer : "sgd", "adamw", an optimiser over the model's parameters, or a function that makes one.
    loss : of (output, targets); by default that of the target, cross-entropy with label smoothing for classes. For
        masks also by name: "dice", "dice+cross-entropy". With a loss of one's own, numbers stay in their own units;
        else a network gives them in deviations from the training mean.
    metric : what decides which weights are best, "accuracy" for classes, "rmse" for numbers, …
    weights : a file of pretrained weights to start from.
    redraw_from : "weights" (what is re-drawn gets its pretrained values back, a new head is drawn), or "init".
    init : how fresh weights are drawn; by default as the model itself was initialised.
    train : keep this many training examples. ``val`` is the share carved from training for validation.
    target : "classes", "numbers", "labels" or "dense", where the answers do not show it (counts, for instance); of a
        table, the column to predict.
    test, as_, groups, drop : as for :func:`fallow.data.load`.
    out, resume : the folder of the run, and whether to resume the run that is there.
    checkpoint_every : seconds between two checkpoints (generations always write one).
    test_at_end : look at the test split only at the end, not after every generation.
    freeze : where training begins, a module's path, a number or a share of blocks, or "head": what comes before stays
        as it is, and is computed once for every example (with augmentation, once an epoch).
    features : a folder in which other runs find what frozen layers gave.
    keep_generations : keep the weights after every generation, as ``generation-N.safetensors``.
    workers : processes that fetch examples; by default only for image folders too large for memory.
    engine : a launched Lightning ``Fabric``, for strategies and clusters beyond ``devices``.
    observer : called with the :class:`Context` a few times a second and after every epoch.
    generations, epochs, batch_size, lr, seed, … : see :class:`fallow.Settings`.

    >>> import fallow
    >>> result = fallow.fit("mlp", "digits", "llf", generations=2, epochs=2, seed=1)
    >>> result.last["test_accuracy"] > 0.5
    True

    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # torch warns where it has to guess
        ctx = prepare(model, data, method, **options)
        with closing(ctx):
            loop.run(ctx)
            return result_of(ctx)
