"""Environments: policies act in tasks, learn from what they saw, and are judged by returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.control.policy import Gaussian
from fallow.control.surrogate import policy_gradient
from fallow.core.method import Together
from fallow.data.environments import Environment
from fallow.data.targets import Target
from fallow.methods.fewshot.piece import Piece
from fallow.methods.fewshot.trpo import MAMLTRPO
from fallow.problems.problem import Criterion, Network, Problem

if TYPE_CHECKING:
    from fallow.core.context import RunOptions
    from fallow.core.method import Method
    from fallow.core.settings import Settings


class Control(Problem):
    """A policy learns to learn tasks by acting in them."""

    def __init__(self, data: Environment, metric: str | None = None) -> None:
        self.data: Environment = data
        self.target: Target = data.target
        if metric is not None:
            raise RequestError(f"policies are judged by returns, not by {metric}: leave metric out")
        self.metric = None  # the loss decides, which is minus the return

    def accept(self, method: Method) -> Method:
        """Pieces alone stand for MAML-TRPO with them."""
        if all(isinstance(part, Piece) for part in method.parts):
            method = Together(MAMLTRPO(), *method.parts)
        for part in method.parts:
            if not (part.control or isinstance(part, Piece)):
                raise RequestError(
                    f"{part.name} does not learn to act: take maml-trpo or maml-ppo, with l2f if you like"
                )
        return super().accept(method)

    @property
    def default_model(self) -> str:
        return self.data.model

    def network(self, model: nn.Module | str | None, size: int | None = None) -> Network:
        """The network gives the mean of actions; the policy is normal around it."""
        found = super().network(model, size)
        actions, make = self.target.outputs, found.factory
        factory = None if make is None else lambda: Gaussian(make(), actions)
        return Network(Gaussian(found.module, actions), factory, found.described)

    def streams(self, settings: Settings, engine: Any, run: RunOptions) -> dict[str, Any]:
        how = {"batch_size": settings.batch_size, "seed": settings.seed, "device": engine.device}
        share = {"rank": engine.global_rank, "world": engine.world_size}
        kind = torch.float64 if settings.precision == "float64" else torch.float32
        return {name: self.data.stream(name, **how, **share, kind=kind) for name in ("train", "val", "test")}

    def training_loss(self, settings: Settings) -> Criterion:
        return policy_gradient

    def plain_loss(self, output: Tensor, y: Tensor) -> Tensor:
        return policy_gradient(output, y)

    def judge(self, output: Tensor, y: Tensor) -> dict[str, float]:
        raise NotImplementedError("a policy is judged by what happens to it")
