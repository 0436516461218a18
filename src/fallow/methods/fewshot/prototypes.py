"""Prototypical networks (Snell et al. 2017): a query belongs to the class whose mean embedding is nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from fallow.adaptation.features import Features, of_tasks
from fallow.adaptation.learner import Judged
from fallow.core.context import Context
from fallow.methods.fewshot.fewshot import INNER, START, FewShotMethod
from fallow.weights.layers import untouched

if TYPE_CHECKING:
    from fallow.problems import Problem


def prototypes(support: Tensor, y: Tensor, ways: int) -> Tensor:
    """c_k = mean of the support embeddings of class k (equation 1), for all tasks: (tasks, ways, width)."""
    members = functional.one_hot(y, ways).to(support.dtype)  # (tasks, n, ways)
    return members.transpose(1, 2) @ support / members.sum(1)[..., None]


def nearness(query: Tensor, centres: Tensor) -> Tensor:
    """−‖f(x) − c_k‖², the logits of equation 2: (tasks, m, ways)."""
    exact = "donot_use_mm_for_euclid_dist"  # ‖a‖² + ‖b‖² − 2ab cancels where features are far from 0
    return -torch.cdist(query, centres, compute_mode=exact).square()


@dataclass(eq=False)
class ProtoNet(FewShotMethod):
    """The model up to its head embeds; a class is the mean of its support embeddings; no inner loop.

    Snell et al. 2017, equations 1 and 2::

        p(k | x) = softmax over classes of −‖f(x) − c_k‖²

    All images of a meta-batch are embedded in one pass. Batch normalisation is the ordinary one: statistics of the
    batch in training, whose running means evaluation uses.
    """

    name = "protonet"
    summary = "a query belongs to the class whose mean embedding is nearest; no inner loop"
    exclusive = (*INNER, START)

    def refuses(self, problem: Problem) -> str:
        return "" if problem.target.kind == "classes" else "classifies: regression has no classes; take maml or l2f"

    def begin(self, ctx: Context) -> None:
        self.shots = ctx.data.shots
        self.features = Features(ctx.model)
        self.try_out(ctx, self.features)

    def logits(self, batch: Any) -> Tensor:
        """(tasks, m, ways) of the queries."""
        x, y, query_x, _ = batch
        support, query = of_tasks(self.features, x, query_x)
        return nearness(query, prototypes(support, y, x.shape[1] // self.shots))

    def loss(self, ctx: Context, batch: Any) -> Tensor:
        return ctx.criterion(self.logits(batch).flatten(0, 1), batch[3].flatten())

    def judge(self, ctx: Context, batch: Any, *, alone: bool = False) -> Judged:
        with untouched(ctx.model), torch.no_grad():
            ctx.model.eval()
            return judged(self.logits(batch), batch[3])


def judged(logits: Tensor, y: Tensor) -> Judged:
    """Cross-entropy and accuracy of every task, without inner steps: (1, tasks)."""
    losses = functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).mean(1)
    return Judged(losses[None], (logits.argmax(-1) == y).float().mean(1)[None])
