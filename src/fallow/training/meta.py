"""``fewshot``: meta-train a model on tasks, and judge it by new ones."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fallow.base import files, notebook
from fallow.base.numbers import MOST, require_whole
from fallow.core import loop
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.data.tasks import Tasks
from fallow.evaluate.episodes import Evaluation, evaluate
from fallow.evaluate.statistics import Estimate
from fallow.methods.fewshot.fewshot import learner_of
from fallow.training.fit import Result, prepare, result_of


@dataclass(repr=False)
class FewShotResult(Result):
    """What a meta-training gave; ``model`` has the weights that were best on validation tasks.

    ``test`` is the evaluation on test tasks (None when it was done before and only read), ``tested`` the same as plain
    values: mean and 95 % interval after adaptation, and along the inner steps.
    """

    test: Evaluation | None
    tested: dict[str, Any]

    @property
    def accuracy(self) -> Estimate | None:
        """Mean query accuracy of the test tasks after adaptation, with its interval."""
        return Estimate(**self.tested["accuracy"]) if "accuracy" in self.tested else None

    @property
    def loss(self) -> Estimate:
        """Mean query loss of the test tasks after adaptation, with its interval."""
        return Estimate(**self.tested["loss"])

    def _judged(self) -> str:
        found, what = self.accuracy or self.loss, "accuracy" if self.accuracy else "loss"
        return f"{what} {found.mean:.4g} after adaptation, on {self.tested['tasks']} test tasks"

    def _repr_html_(self) -> str:
        """A row for every inner step."""
        what = "accuracy" if self.accuracy else "loss"
        rows = [[str(step), f"{found['mean']:.4g}"] for step, found in enumerate(self.tested["steps"])]
        return notebook.table(repr(self), ["inner step", what], rows)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"test": self.tested}


def fewshot(
    model: nn.Module | str | None,
    tasks: Tasks,
    method: Method | str = "maml",
    *,
    iterations: int = 30_000,
    meta_batch: int = 4,
    lr: float = 1e-3,
    every: int = 500,
    schedule: str = "constant",
    **options: Any,
) -> FewShotResult:
    """Meta-train by ``iterations`` of Adam on meta-batches of tasks, then judge by test tasks.

    Validation tasks are looked at after ``every`` iterations, and the best weights kept; the test tasks are looked at
    once, at the end. Other options are those of :func:`fallow.fit`. ``result.model.adapt(x, y)`` gives what predicts
    the queries of new tasks.

    >>> from fallow.data.tasks import Sinusoid
    >>> tasks = Sinusoid(shots=5, val_tasks=10, test_tasks=10)
    >>> result = fewshot(None, tasks, "maml:steps=2", iterations=20, every=10)
    >>> result.loss.low < result.loss.mean < result.loss.high
    True
    """
    require_whole("iterations", iterations, most=10 * MOST)
    require_whole("every", every, most=10 * MOST)
    require_whole("meta_batch", meta_batch)
    every = min(every, iterations)
    defaults: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.0}  # AdamW without decay is Adam
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        ctx = prepare(
            model,
            tasks.changed(per_epoch=every),
            method,
            generations=1,
            epochs=-(-iterations // every),
            batch_size=meta_batch,
            lr=lr,
            schedule=schedule,
            **(defaults | options),
        )
        test, ctx.test = ctx.test, None  # judged here, task by task, and not by the loop
        with closing(ctx):
            loop.run(ctx)
            return _judged(ctx, result_of(ctx), test)


def _judged(ctx: Context, result: Result, test: Any) -> FewShotResult:
    """Take the best weights, judge the test tasks, and write it down."""
    net = ctx.method.evaluated(ctx)
    if result.best_weights is not None:
        net.load_state_dict(result.best_weights)
    found: Evaluation | None = None
    finished = ctx.folder.result() if ctx.folder is not None else None
    tested = (finished or {}).get("test", {})
    if not tested and test is not None:
        ctx.wrapped.eval()
        first, _ = test.mine(test.count)
        reduce = ctx.engine.all_reduce if ctx.engine.world_size > 1 else None
        judge = learner_of(ctx.method).judge
        found = evaluate(lambda batch: judge(ctx, batch), test.ordered(), reduce, (first, test.count))
        tested = found.describe()
    whole = FewShotResult(**vars(result), test=found, tested=tested)
    if ctx.folder is not None:
        files.write_json(Path(ctx.folder.path) / "result.json", whole.describe())
    return whole
