"""The settings of one training, with the SEAL paper's values where it gives them (section 4.1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from fallow.base.errors import unknown
from fallow.base.numbers import LARGEST, is_finite, require, require_whole
from fallow.core.engine import PRECISIONS
from fallow.core.schedule import SCHEDULES

OPTIMIZERS = ("sgd", "adamw")


@dataclass(frozen=True)
class Settings:
    """How to train. The same settings, seed and machine give the same bits.

    >>> Settings(lr=-1)
    Traceback (most recent call last):
    fallow.base.errors.RequestError: lr is -1: it must be above 0
    """

    generations: int = 4  # the first, ordinary one included
    epochs: int = 20  # in a generation
    batch_size: int = 32  # over all processes
    optimizer: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False  # SGD looks ahead by its momentum
    weight_decay: float | dict[str, float] = 5e-4  # for all, or for every layer by its path
    schedule: str = "cosine"  # restarts with every generation
    warmup: float = 0.0  # epochs of linear warm-up where the schedule starts
    plateau: int = 5  # looks at validation without a lower loss before schedule "plateau" halves the rate
    label_smoothing: float = 0.1
    loss: str | None = None  # of masks: cross-entropy (None), dice or dice+cross-entropy
    clip: float | None = None  # the largest norm of the gradient
    accumulate: int = 1  # micro-batches in a batch
    precision: str = "float32"  # or "bf16": autocast; or "float64"
    patience: int | None = None  # looks at validation without a lower loss before a generation ends
    augment: str = "auto"
    input_size: int | None = None  # pixels a side, for a pretrained network; None: its own
    freeze: str | int | float | None = None  # where training begins: a path, a number or a share of blocks, or "head"
    redraw_from: str = "weights"  # that were learned before, where there are any; or "init": drawn afresh
    split: str | int | float = "auto"  # where late layers begin: a path, a number or a share of blocks; the papers'
    seed: int = 0
    evaluate_every: int = 1  # epochs between two looks at validation
    metric: str | None = None  # by which the best epoch is chosen; None: the target's own (accuracy, for classes)

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), np.generic):  # as searches give; the record needs plain
                object.__setattr__(self, field.name, value.item())
        _known("optimizer", self.optimizer, OPTIMIZERS)
        _known("schedule", self.schedule, SCHEDULES)
        _known("precision", self.precision, PRECISIONS)
        _known("redraw_from", self.redraw_from, ("weights", "init"))
        for name in ("generations", "epochs", "batch_size", "accumulate", "evaluate_every", "plateau"):
            require_whole(name, getattr(self, name))
        for name in ("lr", "momentum", "warmup", "label_smoothing"):
            require(is_finite(getattr(self, name)), name, getattr(self, name), "a finite number")
        require(self.lr > 0, "lr", self.lr, "above 0")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 to below 1")
        require(self.momentum > 0 or not self.nesterov, "momentum", self.momentum, "above 0 for nesterov")
        each = self.weight_decay if isinstance(self.weight_decay, dict) else {"weight_decay": self.weight_decay}
        for name, value in each.items():
            require(is_finite(value) and value >= 0, name, value, "a finite number, 0 or above")
        require(self.warmup >= 0, "warmup", self.warmup, "0 or above")
        require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "from 0 to below 1")
        require(self.clip is None or (is_finite(self.clip) and self.clip > 0), "clip", self.clip, "above 0")
        for name in ("patience", "input_size"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        require(self.accumulate <= self.batch_size, "accumulate", self.accumulate, "at most the batch size")
        require_whole("seed", self.seed, 0, LARGEST)

    @classmethod
    def of(cls, **changes: Any) -> Settings:
        """The defaults with some changes; a mistyped name is answered with the nearest."""
        known = [field.name for field in fields(cls)]
        for name in changes:
            if name not in known:
                raise unknown("setting", name, known)
        return cls(**changes)

    def describe(self) -> dict[str, Any]:
        """As plain values, for the record of a run."""
        return asdict(self)


def _known(what: str, name: str, names: Any) -> None:
    if name not in names:
        raise unknown(what, name, names)
