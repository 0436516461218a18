"""The settings of one training, with the SEAL paper's values where it gives them (section 4.1)."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, fields
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.base.spec import LARGEST
from fallow.core.engine import PRECISIONS
from fallow.core.schedule import SCHEDULES

MOST = sys.float_info.max  # neither infinite nor NaN
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
    clip: float | None = None  # the largest norm of the gradient
    accumulate: int = 1  # micro-batches in a batch
    precision: str = "float32"  # or "bf16": autocast; or "float64"
    patience: int | None = None  # looks at validation without a lower loss before a generation ends
    augment: str = "auto"
    size: int | None = None  # pixels a side that a pretrained network sees; None: its own, or a faster one
    split: str | int | float = "auto"  # where late layers begin: a path, a number or a share of blocks; the papers'
    seed: int = 0
    evaluate_every: int = 1  # epochs between two looks at validation
    metric: str | None = None  # by which the best epoch is chosen; None: the target's own (accuracy, for classes)

    def __post_init__(self) -> None:
        _known("optimizer", self.optimizer, OPTIMIZERS)
        _known("schedule", self.schedule, SCHEDULES)
        _known("precision", self.precision, PRECISIONS)
        for name in ("generations", "epochs", "batch_size", "accumulate", "evaluate_every", "plateau"):
            value = getattr(self, name)
            _require(_whole(value, 1), name, value, "a whole number from 1")
        for name in ("lr", "momentum", "warmup", "label_smoothing"):
            _require(_number(getattr(self, name)), name, getattr(self, name), "a finite number")
        _require(self.lr > 0, "lr", self.lr, "above 0")
        _require(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 to below 1")
        _require(self.momentum > 0 or not self.nesterov, "momentum", self.momentum, "above 0 for nesterov")
        each = self.weight_decay if isinstance(self.weight_decay, dict) else {"weight_decay": self.weight_decay}
        for name, value in each.items():
            _require(_number(value) and value >= 0, name, value, "a finite number, 0 or above")
        _require(self.warmup >= 0, "warmup", self.warmup, "0 or above")
        _require(0 <= self.label_smoothing < 1, "label_smoothing", self.label_smoothing, "from 0 to below 1")
        _require(self.clip is None or (_number(self.clip) and self.clip > 0), "clip", self.clip, "above 0")
        _require(self.patience is None or _whole(self.patience, 1), "patience", self.patience, "a whole number from 1")
        _require(self.size is None or _whole(self.size, 1), "size", self.size, "a whole number from 1")
        _require(self.accumulate <= self.batch_size, "accumulate", self.accumulate, "at most the batch size")
        _require(_whole(self.seed, 0), "seed", self.seed, "a whole number from 0")

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


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= (LARGEST if isinstance(value, int) else MOST)


def _require(fits: bool, name: str, value: object, what: str) -> None:
    if not fits:
        shown = "beyond 2⁶³" if isinstance(value, int) and abs(value) > LARGEST else value
        raise RequestError(f"{name} is {shown}: it must be {what}")
