"""The options of ``fit`` in one place, so that editors, type checkers and ``help`` show them all."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import torch
from torch import nn

from fallow.core.context import Context, Criterion, RunOptions
from fallow.core.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])


class FitOptions(TypedDict, total=False):
    """What ``fit`` takes besides model, data and method: see there, and in :class:`fallow.Settings`."""

    optimizer: str | torch.optim.Optimizer | Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    loss: Criterion | str | None
    weights: str | Path | None
    init: Any
    train: int | None
    val: float
    target: str | None
    test: float
    as_: str | None
    groups: Any
    drop: str
    out: str | Path | None
    resume: bool
    device: str
    devices: int
    engine: Any
    workers: int | None
    observer: Callable[[Context], None] | None
    checkpoint_every: float
    test_at_end: bool
    keep_generations: bool
    features: str | Path | None
    generations: int
    epochs: int
    batch_size: int
    lr: float
    momentum: float
    nesterov: bool
    weight_decay: float | dict[str, float]
    schedule: str
    warmup: float
    plateau: int
    label_smoothing: float
    clip: float | None
    accumulate: int
    precision: str
    patience: int | None
    augment: str
    input_size: int | None
    freeze: str | int | float | None
    redraw_from: str
    split: str | int | float
    seed: int
    evaluate_every: int
    metric: str | None


LOADING: dict[str, Any] = {  # what fallow.data.load is asked
    "train": None, "val": 0.2, "target": None, "test": 0.2, "as_": None, "groups": None, "drop": "",
}  # fmt: skip
DEFAULTS: dict[str, Any] = (
    {"optimizer": "sgd", "loss": None, "weights": None, "init": None}
    | LOADING
    | {field.name: field.default for field in dataclasses.fields(RunOptions)}
    | {field.name: field.default for field in dataclasses.fields(Settings)}
)


def with_signature(function: Function) -> Function:
    """Show every option with its default where Python is asked for the function's signature."""
    plain = inspect.signature(function)
    fixed = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
    notes = FitOptions.__annotations__
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=notes[name])
        for name in notes
    ]
    function.__signature__ = plain.replace(parameters=[*fixed, *options])  # type: ignore[attr-defined]
    return function
