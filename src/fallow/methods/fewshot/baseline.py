"""The baseline of Chen et al. 2019: an ordinary classifier of the training classes, a new head for every task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.adaptation.features import Features, of_tasks
from fallow.adaptation.learner import Judged
from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.core.context import Context
from fallow.methods.fewshot.fewshot import INNER, START, FewShotMethod
from fallow.methods.fewshot.prototypes import judged
from fallow.weights.layers import untouched

if TYPE_CHECKING:
    from fallow.problems import Problem

BATCHES = 6  # names the random stream of its batches


def fit_head(features: Tensor, y: Tensor, ways: int, steps: int, rate: float, decay: float) -> tuple[Tensor, Tensor]:
    """Softmax regression of every task from zero, by gradient descent: weights (tasks, width, ways), biases.

    The gradient is written down, ∇W = Fᵀ(softmax(FW + b) − Y)/n + decay·W, so that no graph is needed.
    """
    tasks, n, width = features.shape
    target = functional.one_hot(y, ways).to(features.dtype)
    weight, bias = features.new_zeros(tasks, width, ways), features.new_zeros(tasks, 1, ways)
    for _ in range(steps):
        error = ((features @ weight + bias).softmax(-1) - target) / n
        weight = weight - rate * (features.transpose(1, 2) @ error + decay * weight)
        bias = bias - rate * error.sum(1, keepdim=True)
    return weight, bias


@dataclass(eq=False)
class Baseline(FewShotMethod):
    """The body learns to classify all training classes, in batches of ``batch`` examples; a task fits a new head.

    Chen et al. 2019, section 3. No meta-learning: what anyone would try first. Batch normalisation is the ordinary one.
    """

    name = "baseline"
    summary = "an ordinary classifier of the training classes; every task fits a new head to its features"
    exclusive = (*INNER, START)

    batch: int = 128
    steps: int = 100  # of gradient descent on the head
    rate: float = 0.1
    decay: float = 1e-3

    def __post_init__(self) -> None:
        for key in ("batch", "steps"):
            if not isinstance(getattr(self, key), int) or getattr(self, key) < 1:
                raise RequestError(f"{key} is {getattr(self, key)}: it must be a whole number from 1")

    def refuses(self, problem: Problem) -> str:
        if problem.target.kind != "classes":
            return "classifies: it needs labelled classes; take maml or l2f for regression"
        return ""

    def begin(self, ctx: Context) -> None:
        tasks = self.tasks_data = ctx.data
        self.features = Features(ctx.model)
        self.try_out(ctx, self.features)
        self.kind = next(ctx.model.parameters()).dtype
        self.head = nn.Linear(self.features.width, tasks.count("train")).to(ctx.device, self.kind)
        first = ctx.optimizer.param_groups[0]
        ctx.optimizer.add_param_group({"params": list(self.head.parameters()), "base_lr": first["base_lr"]})

    def stream(self, ctx: Context) -> Iterable[Any]:
        """Labelled batches, each a function of (seed, step); processes take their shares of it."""
        rank, world = ctx.engine.global_rank, ctx.engine.world_size
        for step in range(ctx.clock.step, ctx.clock.steps):
            seed = mix(ctx.settings.seed, BATCHES, ctx.clock.epoch_index, step)
            x, y = self.tasks_data.examples("train", self.batch, seed, ctx.device)
            yield x.tensor_split(world)[rank].to(self.kind), y.tensor_split(world)[rank]

    def loss(self, ctx: Context, batch: Any) -> Tensor:
        x, y = batch
        # the loop weighs a process by its share of the tasks: here it is the share of the batch that counts
        weight = len(x) * ctx.engine.world_size / self.batch / ctx.train.share(ctx.clock.step) / ctx.portion
        return weight * functional.cross_entropy(self.head(self.features(x)), y)

    def judge(self, ctx: Context, batch: Any, *, alone: bool = False) -> Judged:
        x, y, query_x, query_y = batch
        with untouched(ctx.model), torch.no_grad():
            ctx.model.eval()
            support, query = of_tasks(self.features, x, query_x)
            weight, bias = fit_head(support, y, self.tasks_data.ways, self.steps, self.rate, self.decay)
            return judged(query @ weight + bias, query_y)

    def state_dict(self) -> dict[str, Any]:
        return {"head": self.head.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.head.load_state_dict(state["head"])
