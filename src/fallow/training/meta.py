"""``fewshot``: meta-train a model on tasks, and judge it by new ones."""

from __future__ import annotations

import json
import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fallow.adaptation.learner import Learner
from fallow.base import files, notebook
from fallow.base.errors import RequestError
from fallow.base.numbers import MOST, is_finite, require, require_whole
from fallow.core import loop
from fallow.core.context import Context
from fallow.core.engine import make_engine
from fallow.core.method import Method
from fallow.data.tasks import Episodes, Tasks
from fallow.evaluate.episodes import Evaluation, evaluate
from fallow.evaluate.statistics import Estimate
from fallow.methods.fewshot.fewshot import learner_of
from fallow.training.pace import STEPS, timed
from fallow.training.prepare import prepare
from fallow.training.result import Result, result_of
from fallow.weights.layers import copied

LOOKS, LONGEST = 10, 1000  # looks at validation in a meta-training, and the most iterations between two
TIMED = 8  # tasks judged to know how long that takes
SPARE = 0.05  # of the time, for what is not timed


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
    iterations: int | None = None,
    minutes: float | None = None,
    meta_batch: int | None = None,
    lr: float | None = None,
    every: int | None = None,
    schedule: str | None = None,
    **options: Any,
) -> FewShotResult:
    """Meta-train by ``iterations`` of Adam on meta-batches of tasks, then judge by test tasks.

    What is None follows from the kind of the tasks (:mod:`fallow.data.tasks.recipe`); with ``minutes``, the iterations
    are as many as fit into that time, judging included, by a few that are timed first. Validation tasks are looked at
    after ``every`` iterations, and the best weights kept; the test tasks are looked at once, at the end. Other options
    are those of :func:`fallow.fit`. ``result.model.adapt(x, y)`` gives what predicts the queries of new tasks (not of
    protonet, baseline and leo). Iterations are rounded up, so that all looks are equally far apart.

    >>> from fallow.data.tasks import Sinusoid
    >>> tasks = Sinusoid(shots=5, val_tasks=10, test_tasks=10)
    >>> result = fewshot(None, tasks, "maml:steps=2", iterations=20, every=10)
    >>> result.loss.low < result.loss.mean < result.loss.high
    True
    """
    if not isinstance(tasks, Tasks):
        raise RequestError("few-shot methods learn from tasks: give fallow.Episodes, fallow.Sinusoid or fallow.Mixture")
    recipe = tasks.recipe
    chosen: dict[str, Any] = {
        "optimizer": "adamw", "weight_decay": 0.0,  # AdamW without decay is Adam
        "batch_size": recipe.meta_batch if meta_batch is None else meta_batch,
        "lr": recipe.lr if lr is None else lr,
        "schedule": recipe.schedule if schedule is None else schedule,
    } | options  # fmt: skip
    require_whole("meta_batch", chosen["batch_size"])
    known = recorded(options.get("out")) if options.get("resume") else None
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if minutes is not None:
            require(is_finite(minutes) and minutes > 0, "minutes", minutes, "above 0")
            if iterations is not None:
                raise RequestError("iterations and minutes say the same: give one of them")
            if known is None:
                chosen["engine"] = options.get("engine") or make_engine(
                    options.get("device", "auto"), options.get("devices", 1), options.get("precision", "float32")
                )
            iterations = known or fitting(model, tasks, method, minutes, chosen)
        iterations = recipe.iterations if iterations is None else iterations
        require_whole("iterations", iterations, most=10 * MOST)
        every = max(1, min(LONGEST, iterations // LOOKS)) if every is None else every
        require_whole("every", every, most=10 * MOST)
        every = min(every, iterations)
        looks = max(1, round(iterations / every))
        every = -(-iterations // looks)  # so that all looks are equally far apart, with hardly an iteration more
        if known is not None and known != looks * every:
            raise RequestError(
                f"{options['out']} has a run of {known:,} iterations, and a schedule of as many: resume it with these, "
                "or choose another --out"
            )
        ctx = prepare(model, tasks.changed(per_epoch=every), method, generations=1, epochs=looks, **chosen)
        test, ctx.test = ctx.test, None  # judged here, task by task, and not by the loop
        with closing(ctx):
            loop.run(ctx)
            return _judged(ctx, result_of(ctx), test)


def fitting(
    model: nn.Module | str | None, tasks: Tasks, method: Method | str, minutes: float, chosen: dict[str, Any]
) -> int:
    """The iterations that fit into ``minutes`` with all that is judged, by a few that are timed and thrown away.

    Every process times its own share of a meta-batch, beside the others; what the first finds counts.
    """
    engine = chosen["engine"]
    alone = {key: value for key, value in chosen.items() if key not in ("engine", "devices", "out", "resume")}
    share = -(-chosen["batch_size"] // engine.world_size)
    few = tasks.changed(per_epoch=STEPS, val_tasks=TIMED, test_tasks=0)
    fresh = copied(model) if isinstance(model, nn.Module) else model
    ctx = prepare(fresh, few, method, generations=1, epochs=1, **(alone | {"batch_size": share}))
    paces = list(timed(ctx))
    pace = statistics.median(paces[1:] or paces)
    began = time.monotonic()
    ctx.score(ctx.val)
    judging = (time.monotonic() - began) / TIMED / engine.world_size  # seconds a task
    left = 60 * minutes - judging * (LOOKS * tasks.val_tasks + 2 * tasks.test_tasks)
    found = max(1, int(left / pace / (1 + SPARE)))
    return int(engine.broadcast(found - found % LOOKS if found > LOOKS else found))  # so that all epochs are alike


def recorded(out: Any) -> int | None:
    """The iterations of the run in a folder, to resume it; None where there is none to read."""
    try:
        record = json.loads((Path(out or "") / "run.json").read_text("utf-8"))
        return int(record["settings"]["epochs"]) * int(record["data"]["per_epoch"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _judged(ctx: Context, result: Result, test: Any) -> FewShotResult:
    """Take the best weights, judge the test tasks, and write it down."""
    net = ctx.method.evaluated(ctx)
    if result.best_weights is not None:
        net.load_state_dict(result.best_weights)
    tasks = ctx.problem.data
    if isinstance(net, Learner):
        net.judged_by = getattr(learner_of(ctx.method), "evaluate_steps", None) or net.steps
        if isinstance(tasks, Episodes):
            net.scaling = tasks.mean, tasks.std
    found: Evaluation | None = None
    finished = ctx.folder.result() if ctx.folder is not None else None
    tested = (finished or {}).get("test", {})
    if not tested and test is not None:
        ctx.wrapped.eval()
        first, _ = test.mine(test.count)
        reduce = ctx.engine.all_reduce if ctx.engine.world_size > 1 else None
        judge = learner_of(ctx.method).judge
        found = evaluate(lambda batch: judge(ctx, batch, alone=True), test.ordered(), reduce, (first, test.count))
        tested = found.describe()
    whole = FewShotResult(**vars(result), test=found, tested=tested)
    if ctx.folder is not None:
        files.write_json(Path(ctx.folder.path) / "result.json", whole.describe())
    return whole
