"""MAML: an initialisation from which a few steps of gradient descent learn a task (Finn et al. 2017, algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow.adaptation.execution import EXECUTIONS, Execution
from fallow.adaptation.learner import Judged, Learner
from fallow.adaptation.objective import BATCH_NORMS, normalised
from fallow.adaptation.optimisers import OPTIMISERS
from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import require_whole
from fallow.core.context import Context
from fallow.core.method import Method, Together
from fallow.data.tasks.recipe import TaskRecipe
from fallow.methods.fewshot.fewshot import FewShotMethod
from fallow.methods.fewshot.piece import Piece

if TYPE_CHECKING:
    from fallow.problems import Problem


@dataclass(eq=False)
class MAML(FewShotMethod):
    """The query loss after the inner loop, minimised over where the inner loop starts (Finn et al. 2017, algorithm 2)::

        θ_i = θ_{i−1} − α ∇L_support(θ_{i−1}),  i = 1 … steps        (every task, from the shared θ_0)
        θ_0 ← θ_0 − η ∇_{θ_0} mean over tasks of L_query(θ_steps)    (the meta-gradient, through all steps)

    Pieces change the inner loop: ``MAML() + L2F() + MultiStepLoss()``. ``order`` 1 drops second derivatives;
    ``anneal`` does so for the first share of the training only (MAML++).
    """

    name = "maml"
    summary = "an initialisation from which a few gradient steps learn a task"

    steps: int | None = None  # None: as the kind of the tasks likes it, and so the rate and the steps at evaluation
    rate: float | None = None  # α
    optimizer: str = "sgd"  # of the inner loop; or "momentum", "adam"
    order: int = 2
    anneal: float = 0.0
    batch_norm: str = "batch"  # or "per-step", "frozen"
    adapt_norms: bool = True  # whether the inner loop moves the parameters of norms; False in L2F's public code
    execution: str = "auto"  # or "vmap", "loop"
    compile: bool = False
    evaluate_steps: int | None = None  # None, with steps given: as in training

    def __post_init__(self) -> None:
        for name in ("steps", "evaluate_steps"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name))
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise RequestError(f"rate is {self.rate}: it must be above 0")
        if self.optimizer not in OPTIMISERS:
            raise unknown("optimizer", self.optimizer, OPTIMISERS)
        if self.order not in (1, 2):
            raise RequestError(f"order is {self.order}: it must be 1 or 2")
        if not 0 <= self.anneal <= 1:
            raise RequestError(f"anneal is {self.anneal}: it is a share of the training, from 0 to 1")
        if self.batch_norm not in BATCH_NORMS:
            raise unknown("batch_norm", self.batch_norm, BATCH_NORMS)
        if self.execution not in EXECUTIONS:
            raise unknown("execution", self.execution, EXECUTIONS)
        if self.compile and self.batch_norm == "per-step":
            raise RequestError("compile and batch_norm=per-step do not go together: take batch_norm=batch")
        self.pieces: list[Piece] = []

    def refuses(self, problem: Problem) -> str:
        outputs, ways = problem.target.outputs, getattr(problem.data, "train_ways", None)
        if ways is not None and ways > outputs:
            return f"adapts a head with {outputs} outputs, one for each class of a task: train_ways cannot be {ways}"
        return ""

    def settle(self, recipe: TaskRecipe) -> MAML:
        """With what the tasks' recipe says of the inner loop, where nobody has."""
        evaluate = recipe.evaluate_steps if self.steps is None else None
        return replace(
            self,
            steps=self.steps or recipe.steps,
            rate=self.rate or recipe.rate,
            evaluate_steps=self.evaluate_steps or evaluate,
        )

    def begin(self, ctx: Context) -> None:
        assert self.steps is not None
        assert self.rate is not None
        self.pieces = [part for part in ctx.method.parts if isinstance(part, Piece)]
        self.learner = Learner(
            ctx.model, ctx.criterion, steps=self.steps, rate=self.rate, optimizer=self.optimizer,
            batch_norm=self.batch_norm, adapt_norms=self.adapt_norms, pieces=self.pieces,
        )  # fmt: skip
        if self.compile and hasattr(self.learner, "proximal"):
            raise RequestError("imaml solves a system for every task, which is not compiled: leave compile out")
        self.run = Execution(self.learner, self.execution, self.compile)
        self.try_out(ctx, ctx.model)
        self.try_adapting(ctx)
        own = [p for name, child in self.learner.named_children() if name != "model" for p in child.parameters()]
        if own:
            first = ctx.optimizer.param_groups[0]
            ctx.optimizer.add_param_group({"params": own, "weight_decay": 0.0, "base_lr": first["base_lr"]})
        self.calm: Tensor | None = None  # whether all inner loops were finite, and the first that was not
        self.worst: Tensor | None = None

    def try_adapting(self, ctx: Context) -> None:
        """Adapt to one task: a model that cannot be called with other parameters is refused before anything is done."""
        batch = tuple(t[:1] for t in next(iter(ctx.train.ordered())))
        try:
            with torch.random.fork_rng(), normalised(ctx.model, self.batch_norm, training=False):
                self.learner.judge(batch, batched=self.execution == "vmap", steps=1)
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
            why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise RequestError(
                f"the model cannot be called functionally: {why}; it should compute with the parameters that "
                "torch.func.functional_call gives it, and change no tensor in place"
            ) from error

    def loss(self, ctx: Context, batch: Any) -> Tensor:
        assert self.steps is not None
        order = 1 if ctx.clock.overall < self.anneal else self.order
        listed = [w for piece in self.pieces if (w := piece.weights(self.steps, ctx.clock.overall)) is not None]
        weights = torch.tensor(listed[0], device=ctx.device) if listed else None
        self.learner.train(ctx.model.training)
        with normalised(ctx.model, self.batch_norm, training=True):
            loss, trace = self.run(batch, weights, order=order)
        if self.batch_norm == "per-step":
            self.learner.statistics.settle()
        self.note(trace)
        return loss

    def end_epoch(self, ctx: Context) -> None:
        ctx.log(execution=self.run.kind)
        if self.batch_norm == "per-step" and ctx.engine.world_size > 1:
            for buffer in self.learner.statistics.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(ctx.engine.all_reduce(buffer, reduce_op="mean"))

    # ---- an inner loop that diverges, noted without waiting for the device ----------------------------

    def note(self, trace: Tensor) -> None:
        """Keep the losses along the first inner loop that is not finite."""
        fine = torch.isfinite(trace).all()
        if self.calm is None or self.worst is None:
            self.calm, self.worst = fine, trace
        else:
            self.worst = torch.where(self.calm, trace, self.worst)
            self.calm = self.calm & fine

    def explain(self, ctx: Context) -> str:
        if self.worst is None or torch.isfinite(self.worst).all():
            return ""
        trace = self.worst.tolist()
        step = next(i for i, loss in enumerate(trace) if not math.isfinite(loss))
        before = f" (the step before: {trace[step - 1]:.4g})" if step else ""
        number = max(1, step + 2 + self.learner.steps - len(trace))  # L2F looks at the support set before the first
        place = "the query loss after it" if step == len(trace) - 1 else f"the support loss at inner step {number}"
        return f"the inner loop diverged: {place} is {trace[step]}{before}; lower its rate ({self.learner.rate:g})"

    # ---- evaluation -----------------------------------------------------------------------------------

    def judge(self, ctx: Context, batch: Any, *, alone: bool = False) -> Judged:
        return self.learner.judge(batch, batched=self.run.kind == "vmap", steps=self.evaluate_steps, alone=alone)

    def evaluated(self, ctx: Context) -> nn.Module:
        return self.learner

    def state_dict(self) -> dict[str, Any]:
        own = {k: v for k, v in self.learner.state_dict().items() if not k.startswith("model.")}
        return {"execution": self.run.kind, "own": own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.run.kind = state["execution"]
        self.learner.load_state_dict(state["own"], strict=False)


def complete(method: Method, recipe: TaskRecipe | None = None) -> Method:
    """Pieces alone stand for MAML with them, settled by the tasks' recipe; ordinary methods do not learn from tasks."""
    for part in method.parts:
        if not part.tasks:
            raise RequestError(
                f"{part.name} learns from labelled examples, not from tasks: take maml, l2f or another few-shot method"
            )
    if all(isinstance(part, Piece) for part in method.parts):
        method = MAML() + method
    if recipe is None:
        return method
    for part in method.parts:
        recipe = part.recipe(recipe) if isinstance(part, Piece) else recipe
    parts = [part.settle(recipe) if isinstance(part, MAML) else part for part in method.parts]
    return Together(*parts) if len(parts) > 1 else parts[0]
