"""What every few-shot learner shares: tasks as data, averaged meta-gradients, a score after adaptation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fallow.adaptation.learner import Judged
from fallow.base.errors import RequestError
from fallow.core.context import Context
from fallow.core.method import Gradients, Method
from fallow.evaluate.score import Score
from fallow.weights.layers import untouched

# what MAML's pieces decide: whoever has no such inner loop claims it, so that none is added in vain
START = "where a task starts from"
INNER = ("the rates of the inner loop", "which steps' losses count", "what adapts", "how a task is modulated")


class FewShotMethod(Method):
    """A method that learns from tasks and is judged by the queries of new ones."""

    tasks = True

    def try_out(self, ctx: Context, call: Callable[[Tensor], Any]) -> None:
        """Refuse a model that cannot take the tasks before anything is done."""
        x = next(iter(ctx.train.ordered()))[0][:1]
        try:
            with untouched(ctx.model):
                ctx.model.eval()
                call(x.flatten(0, 1))
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise RequestError(f"the model cannot take inputs of shape {tuple(x.shape[2:])}: {why}") from error

    def judge(self, ctx: Context, batch: Any, *, alone: bool = False) -> Judged:
        """Query losses and accuracies of a meta-batch of tasks; ``alone``: also of every query on its own."""
        raise NotImplementedError

    def update(self, ctx: Context, gradients: Gradients) -> Tensor:
        loss = gradients()
        self.average(ctx)
        ctx.step()
        return loss

    def average(self, ctx: Context) -> None:
        """Average the gradients over the processes, by hand: DDP does so only for what runs through its forward."""
        if ctx.engine.world_size == 1:
            return
        held = [p.grad for group in ctx.optimizer.param_groups for p in group["params"] if p.grad is not None]
        flat = ctx.engine.all_reduce(torch.cat([g.flatten() for g in held]), reduce_op="mean")
        for gradient, mean in zip(held, flat.split([g.numel() for g in held]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def score(self, ctx: Context, stream: Any, limit: int | None = None) -> Score:
        """The mean query loss and accuracy over the stream's tasks, after adaptation."""
        losses, right = [], []
        for batch in stream.ordered():
            judged = self.judge(ctx, batch)
            losses.append(judged.losses[-1])
            if judged.accuracies is not None:
                right.append(judged.accuracies[-1])
        sums = torch.stack([
            torch.cat(losses).double().sum() if losses else torch.zeros((), dtype=torch.float64, device=ctx.device),
            torch.cat(right).double().sum() if right else torch.zeros((), dtype=torch.float64, device=ctx.device),
            torch.tensor(float(sum(map(len, losses))), dtype=torch.float64, device=ctx.device),
        ])  # fmt: skip
        loss, correct, count = ctx.engine.all_reduce(sums, reduce_op="sum").tolist()
        return Score(loss / count, {"accuracy": correct / count} if right else {}, int(count))


def learner_of(method: Method) -> FewShotMethod:
    """The one of several methods that adapts and judges; the others are its pieces."""
    return next(part for part in method.parts if isinstance(part, FewShotMethod))
