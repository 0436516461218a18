"""Look at meta-training as it goes: landscape and conflict after every epoch, for figures A to C and G."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fallow.adaptation.learner import Learner
from fallow.base.errors import RequestError
from fallow.core.context import Context
from fallow.diagnose.alike import alike
from fallow.diagnose.conflict import Conflict, conflict
from fallow.diagnose.landscape import POINTS, Landscape, landscape, meta_landscape


@dataclass(frozen=True)
class Watched:
    """What was measured after so many meta-iterations."""

    iteration: int
    train: Landscape  # of the inner loop, on tasks of meta-training
    val: Landscape | None  # and of meta-validation
    meta: Landscape  # of learning the initialisation
    conflict: Conflict

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "iteration": self.iteration,
            "train": self.train.describe(),
            "val": None if self.val is None else self.val.describe(),
            "meta": self.meta.describe(),
            "conflict": self.conflict.describe(),
        }


@dataclass
class Onlooker:
    """An observer of :func:`fallow.fewshot`; what it measures changes nothing of the training.

    >>> from fallow.data.tasks import Sinusoid
    >>> from fallow.training.meta import fewshot
    >>> watch = Onlooker(tasks=4)
    >>> _ = fewshot(None, Sinusoid(val_tasks=4, test_tasks=4), "l2f", iterations=4, every=2, observer=watch)
    >>> [seen.iteration for seen in watch.seen]
    [2, 4]
    """

    tasks: int = 16  # in each measurement
    every: int = 1  # epochs
    points: tuple[float, ...] = POINTS
    alike: bool = False  # L2F with the mean γ of the tasks of meta-training for all of them: the control of equal scale
    seen: list[Watched] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.tasks < 2 or self.every < 1:
            raise RequestError(f"tasks is {self.tasks} and every {self.every}: give two tasks and one epoch at least")

    def __call__(self, ctx: Context) -> None:
        """Called many times an epoch; measures when one has ended."""
        epochs = len(ctx.history)
        if ctx.clock.step < ctx.clock.steps or epochs == 0 or epochs % self.every:
            return
        iteration = epochs * ctx.clock.steps
        if self.seen and self.seen[-1].iteration >= iteration:
            return
        learner = ctx.method.evaluated(ctx)
        if not isinstance(learner, Learner):
            raise RequestError(f"{ctx.method} has no inner loop to watch: take maml, l2f or what composes with them")
        tasks: Any = ctx.data  # an inner loop has Tasks
        train = tasks.draw("train", 0, self.tasks, device=ctx.device)  # the same tasks at every look
        learner = alike(learner, train) if self.alike else learner
        val = tasks.draw("val", 0, self.tasks, device=ctx.device) if tasks.val_tasks else None
        size = min(self.tasks, ctx.settings.batch_size)
        batches = [tuple(t[i : i + size] for t in train) for i in range(0, self.tasks - size + 1, size)]
        self.seen.append(
            Watched(
                iteration,
                landscape(learner, train, points=self.points),
                None if val is None else landscape(learner, val, points=self.points),
                meta_landscape(learner, batches, rate=ctx.settings.lr, points=self.points),
                conflict(learner, train),
            )
        )
