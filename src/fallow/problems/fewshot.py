"""Tasks: a support set to adapt to, a query set to be judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.targets import Target
from fallow.data.tasks import Tasks
from fallow.methods.fewshot.maml import complete
from fallow.problems.problem import Criterion, Problem

if TYPE_CHECKING:
    from fallow.core.context import RunOptions
    from fallow.core.method import Method
    from fallow.core.settings import Settings


class FewShot(Problem):
    """A model learns to learn: new tasks, each from a few examples."""

    def __init__(self, data: Tasks, metric: str | None = None) -> None:
        self.data: Tasks = data
        self.target: Target = data.target
        if metric is not None and metric not in ("accuracy", "loss"):
            raise RequestError(f"few-shot tasks are judged by accuracy or loss, not by {metric}: leave metric out")
        self.metric = self.target.metrics.get("accuracy") if metric != "loss" else None

    def accept(self, method: Method) -> Method:
        return super().accept(complete(method, self.data.recipe))

    @property
    def default_model(self) -> str:
        return self.data.model

    def streams(self, settings: Settings, engine: Any, run: RunOptions) -> dict[str, Any]:
        how = {"batch_size": settings.batch_size, "seed": settings.seed, "device": engine.device}
        share = {"rank": engine.global_rank, "world": engine.world_size}
        kind = torch.float64 if settings.precision == "float64" else torch.float32
        return {name: self.data.stream(name, **how, **share, kind=kind) for name in ("train", "val", "test")}

    def training_loss(self, settings: Settings) -> Criterion:
        return self.data.loss

    def plain_loss(self, output: Tensor, y: Tensor) -> Tensor:
        return self.data.loss(output, y)

    def judge(self, output: Tensor, y: Tensor) -> dict[str, float]:
        raise NotImplementedError("a few-shot method judges its tasks itself")
