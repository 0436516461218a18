"""A method is an object that changes one or more moments of ordinary training.

The loop that calls these hooks is drawn in :mod:`fallow.core.loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from fallow.base.errors import RequestError
from fallow.evaluate.accuracy import Score, score

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fallow.core.context import Batch, Context
    from fallow.data.stream import Stream

Gradients = Callable[[], "Tensor"]

OWNED = ("stream", "loss", "update", "evaluated", "score")  # moments that only one method can decide


class Method:
    """Ordinary training; subclasses override the moments they change. All hooks are optional."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""  # one line for the catalogue
    generational: ClassVar[bool] = False  # the schedule restarts with every generation
    ordinary_start: ClassVar[bool] = True  # the first generation is ordinary training
    forgets: ClassVar[frozenset[str]] = frozenset()  # the parts it disturbs: "early", "late"
    passes: ClassVar[float] = 1.0  # forward-backward passes in a step (SAM: 2), for comparisons at equal compute
    tasks: ClassVar[bool] = False  # learns from tasks (few-shot), not from labelled examples
    decides: ClassVar[str] = ""  # what only one of the methods that share it can decide
    draws_locally: ClassVar[bool] = False  # random draws per process: several train as well as one, not alike

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """The generations, and the epochs in each, of a budget of ``generations × epochs``."""
        return (generations, epochs) if self.generational else (1, generations * epochs)

    def begin(self, ctx: Context) -> None:
        """Once, before anything is trained or restored: the last chance to change the structure."""

    def begin_generation(self, ctx: Context) -> None:
        """Before the first epoch of every generation, the first included: re-draw, rescale, prune."""

    def begin_epoch(self, ctx: Context) -> None:
        """Before every epoch."""

    def stream(self, ctx: Context) -> Iterable[Batch]:
        """The batches of this epoch, from the step at which the clock stands."""
        return ctx.batches()

    def loss(self, ctx: Context, batch: Batch) -> Tensor:
        """The loss of one micro-batch."""
        x, y = batch
        return ctx.criterion(ctx.predict(x), y)

    def penalty(self, ctx: Context, batch: Batch) -> Tensor | None:
        """What to add to the loss of one micro-batch; ``ctx.output`` holds the model's output."""
        return None

    def update(self, ctx: Context, gradients: Gradients) -> Tensor:
        """One step: call ``gradients()`` (zero, forward, backward) as often as needed, then ``ctx.step()``."""
        loss = gradients()
        ctx.step()
        return loss

    def before_step(self, ctx: Context) -> None:
        """Inside ``ctx.step()``: the gradients are there, the optimiser has not used them yet."""

    def end_step(self, ctx: Context) -> None:
        """After every step of the optimiser."""

    def end_epoch(self, ctx: Context) -> None:
        """After the last step of every epoch, before it is evaluated."""

    def end_generation(self, ctx: Context) -> None:
        """After the last epoch of every generation."""

    def end(self, ctx: Context) -> None:
        """Once, when everything is trained."""

    def evaluated(self, ctx: Context) -> nn.Module:
        """The model that is evaluated and kept."""
        return ctx.model

    def score(self, ctx: Context, stream: Stream, limit: int | None = None) -> Score:
        """Loss and accuracy of the evaluated model, over all processes."""
        reduce = ctx.engine.all_reduce if ctx.engine.world_size > 1 else None
        if limit is not None and reduce is not None:
            limit = -(-limit // ctx.engine.world_size)
        return score(self.evaluated(ctx), stream.ordered(), ctx.measure, reduce, limit)

    def explain(self, ctx: Context) -> str:
        """Why the loss is no longer finite, if the method knows better than the loop."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        """Everything the method must remember to go on from a checkpoint: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""

    def settings(self) -> dict[str, Any]:
        """The method's own settings, for the record of the run."""
        return dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}

    def __add__(self, other: Method) -> Method:
        return Together(*_parts(self), *_parts(other))

    def __str__(self) -> str:
        """As the command line takes it: the name, and the settings that are not the defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)} if self.settings() else {}  # type: ignore[arg-type]
        changed = [f"{key}={value}" for key, value in self.settings().items() if value != defaults[key]]
        return f"{self.name}:{','.join(changed)}" if changed else self.name


def _each(hook: str) -> Any:
    """A hook that calls the same hook of every method, in order."""

    def call(self: Together, ctx: Context) -> None:
        for method in self.methods:
            getattr(method, hook)(ctx)

    return call


class Together(Method):
    """Several methods in one training, made by ``+``; those that cannot share a moment are refused.

    >>> from fallow.methods import LLF, SEAL, BornAgain
    >>> str((LLF() + SEAL()).name)
    'llf+seal'
    >>> LLF() + BornAgain()
    Traceback (most recent call last):
    fallow.base.errors.RequestError: llf and born-again do not go together: both disturb the late layers
    """

    def __init__(self, *methods: Method) -> None:
        for i, second in enumerate(methods):
            for first in methods[:i]:
                if reason := _clash(first, second):
                    raise RequestError(f"{first.name} and {second.name} do not go together: {reason}")
        self.methods = methods
        for hook in OWNED:
            for method in methods:
                if _overrides(method, hook):
                    setattr(self, hook, getattr(method, hook))

    @property
    def name(self) -> str:  # type: ignore[override]
        """The names of the methods, joined."""
        return "+".join(method.name for method in self.methods)

    @property
    def forgets(self) -> frozenset[str]:  # type: ignore[override]
        """Every part that one of the methods disturbs."""
        return frozenset().union(*(method.forgets for method in self.methods))

    @property
    def tasks(self) -> bool:  # type: ignore[override]
        """Whether they learn from tasks: all do, or none."""
        return self.methods[0].tasks

    @property
    def draws_locally(self) -> bool:  # type: ignore[override]
        """Whether one of the methods does."""
        return any(method.draws_locally for method in self.methods)

    @property
    def passes(self) -> float:  # type: ignore[override]
        """What one step costs: only one method can own the update, the others' extra work adds to it."""
        return 1.0 + sum(method.passes - 1.0 for method in self.methods)

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """As the one method plans that has an opinion: its own plan, else generations."""
        chosen = [m for m in self.methods if _overrides(m, "plan") or m.generational]
        return (chosen or self.methods)[0].plan(generations, epochs)

    begin = _each("begin")
    begin_generation = _each("begin_generation")
    begin_epoch = _each("begin_epoch")
    before_step = _each("before_step")
    end_epoch = _each("end_epoch")
    end_generation = _each("end_generation")
    end = _each("end")

    def end_step(self, ctx: Context) -> None:
        """An average comes last: it takes the weights as the others leave them."""
        for method in sorted(self.methods, key=lambda method: _overrides(method, "evaluated")):
            method.end_step(ctx)

    def penalty(self, ctx: Context, batch: Batch) -> Tensor | None:
        """The sum of the methods' penalties."""
        terms = [term for m in self.methods if (term := m.penalty(ctx, batch)) is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def state_dict(self) -> dict[str, Any]:
        return {method.name: method.state_dict() for method in self.methods}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for method in self.methods:
            method.load_state_dict(state[method.name])

    def explain(self, ctx: Context) -> str:
        """The first reason that one of the methods knows."""
        return next(filter(None, (method.explain(ctx) for method in self.methods)), "")

    def settings(self) -> dict[str, Any]:
        return {method.name: method.settings() for method in self.methods}

    def __str__(self) -> str:
        return "+".join(str(method) for method in self.methods)


def _parts(method: Method) -> tuple[Method, ...]:
    return method.methods if isinstance(method, Together) else (method,)


def _overrides(method: Method, hook: str) -> bool:
    return getattr(type(method), hook) is not getattr(Method, hook)


def _clash(first: Method, second: Method) -> str:
    """Why two methods cannot share one training, or nothing."""
    if first.name == second.name:
        return "the same method twice"
    if first.tasks != second.tasks:
        few, other = (first, second) if first.tasks else (second, first)
        return f"{few.name} learns from tasks, {other.name} from labelled examples"
    if first.decides and first.decides == second.decides:
        return f"both decide {first.decides}"
    for hook in OWNED:
        if _overrides(first, hook) and _overrides(second, hook):
            return f"both decide the {hook} of a step" if hook != "evaluated" else "both choose the evaluated model"
    if _overrides(first, "plan") and (_overrides(second, "plan") or second.generational):
        return f"{first.name} has no generations" if second.generational else "both plan the generations"
    if _overrides(second, "plan") and first.generational:
        return f"{second.name} has no generations"
    if shared := first.forgets & second.forgets:
        return f"both disturb the {' and '.join(sorted(shared))} layers"
    return ""
