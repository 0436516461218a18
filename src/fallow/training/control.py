"""``reinforce``: meta-train a policy on tasks of an environment, and judge it by new ones."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base import files, notebook
from fallow.base.numbers import MOST, require_whole
from fallow.core import loop
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.data.environments import Environment, EnvironmentStream
from fallow.evaluate.statistics import Estimate, interval
from fallow.methods.fewshot.acting import ActingMAML
from fallow.methods.fewshot.fewshot import learner_of
from fallow.training.prepare import prepare
from fallow.training.result import Result, result_of

SHOWN, PATHS = 4, 3  # test tasks of every place whose trajectories are kept, and trajectories of each
TEST_STEPS = 4  # gradient updates at test (L2F's supplement, table E)


@dataclass(repr=False)
class ControlResult(Result):
    """What meta-training a policy gave; ``model`` has the weights that were best on validation tasks.

    ``tested`` has, for every place that the environment is judged in, mean return and 95 % interval over test tasks
    before adaptation and after each inner step; ``paths`` has a few test tasks and their observations (steps + 1,
    tasks, trajectories, horizon, …) in each place.
    """

    tested: dict[str, Any]
    paths: dict[str, tuple[Tensor, Tensor]]

    def returns(self, place: str | None = None) -> list[Estimate]:
        """Mean return before adaptation and after each inner step; in the environment's own place, or another."""
        places = self.tested["places"]
        return [Estimate(**step) for step in places[next(iter(places)) if place is None else place]]

    def _judged(self) -> str:
        steps = self.returns()
        found = steps[min(self.tested["trained_steps"], len(steps) - 1)]
        return f"return {found.mean:.4g} after adaptation, on {self.tested['tasks']} test tasks"

    def _repr_html_(self) -> str:
        """A row for every inner step."""
        places = self.tested["places"]
        rows = [
            [str(step), *(f"{found[step]['mean']:.4g}" for found in places.values())]
            for step in range(len(self.returns()))
        ]
        return notebook.table(repr(self), ["inner step", *places], rows)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"test": self.tested}


def reinforce(
    model: nn.Module | str | None,
    environment: Environment,
    method: Method | str = "maml-trpo",
    *,
    iterations: int = 100,
    meta_batch: int = 20,
    lr: float = 1e-3,
    every: int = 10,
    test_steps: int = TEST_STEPS,
    **options: Any,
) -> ControlResult:
    """Meta-train a policy by ``iterations`` of meta-batches of tasks, then judge it by test tasks.

    ``maml`` stands for ``maml-trpo`` here, and so do pieces alone (``l2f``). Validation tasks are looked at after
    ``every`` iterations, and the best weights kept; test tasks are looked at once, at the end, along ``test_steps``
    inner steps, in every place that the environment has. ``lr`` is Adam's, for ``maml-ppo``. Other options are those of
    :func:`fallow.fit`.

    >>> from fallow.data.environments import Navigation
    >>> tasks = Navigation(shots=2, horizon=5, val_tasks=2, test_tasks=2)
    >>> result = reinforce("mlp:hidden=8", tasks, "l2f", iterations=2, every=1, meta_batch=2, test_steps=1)
    >>> len(result.returns()), list(result.tested["places"])[-1]
    (2, 'far goals and starts')
    """
    require_whole("iterations", iterations, most=10 * MOST)
    require_whole("every", every, most=10 * MOST)
    require_whole("meta_batch", meta_batch)
    require_whole("test_steps", test_steps)
    every = min(every, iterations)
    chosen = spelled(method) if isinstance(method, str) else method
    defaults: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.0, "schedule": "constant"}
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        ctx = prepare(
            model,
            environment.changed(per_epoch=every),
            chosen,
            generations=1,
            epochs=-(-iterations // every),
            batch_size=meta_batch,
            lr=lr,
            **(defaults | options),
        )
        ctx.test = None  # judged here, in all places, and not by the loop
        with closing(ctx):
            loop.run(ctx)
            return _judged(ctx, result_of(ctx), test_steps)


def spelled(method: str) -> str:
    """A method's name as control has it: maml is MAML-TRPO.

    >>> spelled("l2f:start=0.9+maml:steps=2"), spelled("maml-ppo")
    ('l2f:start=0.9+maml-trpo:steps=2', 'maml-ppo')
    """
    return re.sub(r"(^|\+)\s*maml(?=\s*(:|\+|$))", r"\1maml-trpo", method)


def _judged(ctx: Context, result: Result, steps: int) -> ControlResult:
    """Take the best weights, judge the test tasks of every place, and write it down."""
    net = ctx.method.evaluated(ctx)
    if result.best_weights is not None:
        net.load_state_dict(result.best_weights)
    finished = ctx.folder.result() if ctx.folder is not None else None
    tested = (finished or {}).get("test", {})
    learner = learner_of(ctx.method)
    assert isinstance(learner, ActingMAML)
    places, paths = {}, {}
    for name, place in ctx.data.places().items():
        if not tested:
            places[name] = [step._asdict() for step in _returns(ctx, learner, place, steps)]
        few = place.meet("test", 0, SHOWN)
        lived = learner.lived(place, few._replace(tasks=few.tasks.to(next(net.parameters()))), steps)
        paths[name] = few.tasks, torch.stack([seen.observations[:, :PATHS] for seen, _ in lived]).cpu()
    tested = tested or {"tasks": ctx.data.test_tasks, "trained_steps": learner.steps, "places": places}
    whole = ControlResult(**vars(result), tested=tested, paths=paths)
    if ctx.folder is not None:
        files.write_json(Path(ctx.folder.path) / "result.json", whole.describe())
    return whole


def _returns(ctx: Context, learner: ActingMAML, place: Environment, steps: int) -> list[Estimate]:
    """Mean return over the test tasks of a place before adaptation and after each step, over all processes."""
    stream = place.stream(
        "test", batch_size=ctx.settings.batch_size, seed=ctx.settings.seed, device=ctx.device,
        rank=ctx.engine.global_rank, world=ctx.engine.world_size, kind=next(ctx.model.parameters()).dtype,
    )  # fmt: skip
    assert isinstance(stream, EnvironmentStream)
    mine = torch.cat([learner.returns(place, drawn, steps) for drawn in stream.ordered()], 1).double()
    first, _ = stream.mine(place.test_tasks)
    whole = mine.new_zeros(steps + 1, place.test_tasks)
    whole[:, first : first + mine.shape[1]] = mine
    return [interval(row) for row in ctx.engine.all_reduce(whole, reduce_op="sum").tolist()]
