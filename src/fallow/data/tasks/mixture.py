"""Few-shot regression of several kinds at once (Vuorio et al. 2019): sinusoids, lines, tanh, parabolas, angles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import is_finite, require, require_whole
from fallow.data.targets import Numbers, Target
from fallow.data.tasks.base import BLOCK, LARGE, TaskBatch, Tasks
from fallow.data.tasks.recipe import CURVES, TaskRecipe
from fallow.data.tasks.sinusoid import SPAN

KINDS = ("sinusoid", "linear", "tanh", "quadratic", "abs")
# amplitude or slope a, centre or phase c, and intercept b of each; the sign of a parabola is drawn too
RANGES = {
    "sinusoid": ((0.1, 5.0), (0.0, math.pi), (0.0, 0.0)),
    "linear": ((-3.0, 3.0), (0.0, 0.0), (-3.0, 3.0)),
    "tanh": ((-3.0, 3.0), (-3.0, 3.0), (-3.0, 3.0)),
    "quadratic": ((0.02, 0.15), (-3.0, 3.0), (-3.0, 3.0)),
    "abs": ((-3.0, 3.0), (-3.0, 3.0), (-3.0, 3.0)),
}
NOISE = 0.3  # of the answers, support and queries alike


@dataclass(eq=False, kw_only=True)
class Mixture(Tasks):
    """Curves to fit from ``shots`` noisy points, of the kinds ``of``, which come up equally often.

    Training judges by ``queries`` points a curve (None: as many as shots), evaluation by ``points``.

    >>> tasks = Mixture(shots=5)
    >>> x, y, query_x, query_y = tasks.draw("test", 0, 6)
    >>> query_y.shape, tasks.kinds
    (torch.Size([6, 100, 1]), ('sinusoid', 'linear', 'tanh'))
    """

    name: str = "mixture"
    shape: tuple[int, ...] = (1,)
    classes: list[str] = None  # type: ignore[assignment]
    loss: Any = functional.mse_loss
    model: str = "mlp:hidden=100,100,100,init=torch"  # the paper's, with three hidden layers
    shots: int = 5
    queries: int | None = None
    points: int = 100
    of: str = "sinusoid/linear/tanh"
    noise: float = NOISE
    test_tasks: int = 600

    def __post_init__(self) -> None:
        require(is_finite(self.noise) and self.noise >= 0, "noise", self.noise, "0 or above")
        self.kinds = tuple(str(self.of).split("/"))
        for kind in self.kinds:
            if kind not in KINDS:
                raise unknown("kind of curve", kind, KINDS)
        if len(set(self.kinds)) < len(self.kinds):
            raise RequestError(f"of is {self.of}: name each kind of curve once")
        self.classes = ["y"]
        self.queries = self.shots if self.queries is None else self.queries
        for key in ("shots", "queries", "points"):
            require_whole(key, getattr(self, key), 1, LARGE)

    @property
    def recipe(self) -> TaskRecipe:
        return CURVES

    @property
    def target(self) -> Target:
        return Numbers(self.classes)

    def block(self, split: str, draw: torch.Generator) -> tuple[Tensor, ...]:
        """The kind of every curve, its (a, c, b), its points, and the noise of its answers."""
        assert self.queries is not None
        kinds = torch.arange(BLOCK) % len(self.kinds)
        low, high = torch.tensor([RANGES[kind] for kind in self.kinds])[kinds].unbind(-1)
        curves = low + (high - low) * torch.rand(BLOCK, 3, generator=draw)
        sign = torch.where(torch.rand(BLOCK, generator=draw) < 0.5, -1.0, 1.0)
        parabolas = torch.tensor([kind == "quadratic" for kind in self.kinds])[kinds]
        curves[:, 0] = torch.where(parabolas, sign * curves[:, 0], curves[:, 0])
        points = self.shots + (self.queries if split == "train" else self.points)
        x = SPAN * (2 * torch.rand(BLOCK, points, 1, generator=draw) - 1)
        noise = self.noise * torch.randn(BLOCK, points, 1, generator=draw)
        return kinds, curves, x, noise

    def batch(self, split: str, drawn: tuple[Tensor, ...], device: torch.device) -> TaskBatch:
        kinds, curves, x, noise = (rows.to(device, non_blocking=True) for rows in drawn)
        y = self.answers(kinds, curves, x) + noise
        k = self.shots
        return x[:, :k], y[:, :k], x[:, k:], y[:, k:]

    def answers(self, kinds: Tensor, curves: Tensor, x: Tensor) -> Tensor:
        """What the curves give at their points, without noise."""
        a, c, b = curves[:, None, :].split(1, -1)
        shapes = {
            "sinusoid": torch.sin(x - c), "linear": x, "tanh": torch.tanh(x - c), "quadratic": (x - c).square(),
            "abs": (x - c).abs(),
        }  # fmt: skip
        each = torch.stack([shapes[kind] for kind in self.kinds])  # (kinds, tasks, points, 1)
        return a * each[kinds, torch.arange(len(x), device=x.device)] + b

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "queries": self.queries, "points": self.points, "of": list(self.kinds), "noise": self.noise,
        }  # fmt: skip
