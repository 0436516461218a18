"""Sinusoid regression (L2F's supplement, section C): y = A sin(ωx + b), x from −5 to 5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import unknown
from fallow.base.numbers import require_whole
from fallow.data.targets import Numbers, Target
from fallow.data.tasks.base import BLOCK, LARGE, TaskBatch, Tasks
from fallow.data.tasks.recipe import CURVES, TaskRecipe

SPAN = 5.0
# amplitude A, frequency ω, phase b; the hard setting trains and tests on ranges that do not overlap
ALL = ((0.1, 5.0), (0.8, 1.2), (0.0, math.pi))
LOW = ((0.1, 3.0), (0.8, 1.0), (0.0, math.pi / 2))
HIGH = ((3.0, 5.0), (1.0, 1.2), (math.pi / 2, math.pi))
SETTINGS = {"standard": (ALL, ALL), "hard": (LOW, HIGH)}


@dataclass(eq=False, kw_only=True)
class Sinusoid(Tasks):
    """Curves to fit from ``shots`` points; validation is on the training ranges, test on the test ranges.

    Training judges by ``queries`` points a curve (None: as many as shots), evaluation by ``points``.

    >>> tasks = Sinusoid(shots=10, setting="hard")
    >>> x, y, query_x, query_y = tasks.draw("test", 0, 100)
    >>> query_y.shape, bool(query_y.abs().max() > 3)
    (torch.Size([100, 100, 1]), True)
    """

    name: str = "sinusoid"
    shape: tuple[int, ...] = (1,)
    classes: list[str] = None  # type: ignore[assignment]
    loss: Any = functional.mse_loss
    model: str = CURVES.model  # biases spread from the start: He's zeros bend all units at x = 0
    shots: int = 10
    queries: int | None = None
    points: int = 100
    setting: str = "standard"
    test_tasks: int = 600

    @property
    def recipe(self) -> TaskRecipe:
        return CURVES

    @property
    def target(self) -> Target:
        return Numbers(self.classes)

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise unknown("setting of sinusoid", self.setting, SETTINGS)
        self.classes = ["y"]
        self.queries = self.shots if self.queries is None else self.queries
        for key in ("shots", "queries", "points"):
            require_whole(key, getattr(self, key), 1, LARGE)

    def ranges(self, split: str) -> tuple[tuple[float, float], ...]:
        """Of amplitude, frequency and phase."""
        return SETTINGS[self.setting][split == "test"]

    def block(self, split: str, draw: torch.Generator) -> tuple[Tensor, ...]:
        assert self.queries is not None
        low, high = torch.tensor(self.ranges(split)).T
        curves = low + (high - low) * torch.rand(BLOCK, 3, generator=draw)
        points = self.shots + (self.queries if split == "train" else self.points)
        x = SPAN * (2 * torch.rand(BLOCK, points, 1, generator=draw) - 1)
        return curves, x

    def batch(self, split: str, drawn: tuple[Tensor, ...], device: torch.device) -> TaskBatch:
        curves, x = (rows.to(device, non_blocking=True) for rows in drawn)
        y = curve(curves, x)
        k = self.shots
        return x[:, :k], y[:, :k], x[:, k:], y[:, k:]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"queries": self.queries, "points": self.points, "setting": self.setting}


def curve(parameters: Tensor, x: Tensor) -> Tensor:
    """A sin(ωx + b) of every curve (A, ω, b) at its points."""
    amplitude, frequency, phase = parameters[:, None, :].split(1, -1)
    return amplitude * torch.sin(frequency * x + phase)
