"""A method is an object that changes one or more moments of ordinary training.

The loop that calls these hooks is drawn in :mod:`fallow.core.loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fallow.base.errors import RequestError
from fallow.core.ranges import OneOf, Range
from fallow.evaluate.score import Score, score

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fallow.core.context import Batch, Context
    from fallow.core.settings import Settings
    from fallow.data.stream import Stream
    from fallow.problems import Problem

Gradients = Callable[[], "Tensor"]

# moments that only one method can decide
OWNED = ("stream", "steps_of", "loss", "update", "evaluated", "score", "arrange")


DECAY = "what weight decay does"  # as methods claim it for themselves in ``exclusive``

CLASHES = {
    "evaluated": "both choose the evaluated model",
    "steps_of": "both decide how many steps an epoch has",
    "arrange": "both change the training's settings",
}


class Cost(NamedTuple):
    """What a step should cost, in forward-backward passes over a batch: gradients · (1 + beside) + after.

    A comparison plans by it; what a training really spends is counted by ``ctx.spend``.
    """

    gradients: float = 1.0  # in a step (SAM: 2)
    beside: float = 0.0  # with every gradient: a teacher, unlabelled views
    after: float = 0.0  # once a step: the share of a meta-update

    @property
    def passes(self) -> float:
        """Of a whole step."""
        return self.gradients * (1 + self.beside) + self.after


class Method:
    """Ordinary training; subclasses override the moments they change. All hooks are optional."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""  # one line for the catalogue
    generational: ClassVar[bool] = False  # the schedule restarts with every generation
    forgets: ClassVar[frozenset[str]] = frozenset()  # the parts it disturbs: "early", "late"
    cost: ClassVar[Cost] = Cost()
    tasks: ClassVar[bool] = False  # learns from tasks (few-shot), not from labelled examples
    control: ClassVar[bool] = False  # learns to act in an environment
    semi: ClassVar[bool] = False  # learns from unlabelled examples, too
    pretrained: ClassVar[bool] = False  # starts from what a network has learned before
    keeps_statistics: ClassVar[bool] = False  # those of batch norms, from what a network has learned before
    shards: ClassVar[bool] = False  # trains weights of which every process holds a part (FSDP2)
    alone: ClassVar[str] = ""  # why no other method can be added to it
    exclusive: ClassVar[tuple[str, ...]] = ()  # what only one of the methods that name it here can decide
    ranges: ClassVar[Mapping[str, Range | OneOf]] = {}  # the settings that matter, and where to look for them
    ignores: ClassVar[frozenset[str]] = frozenset()  # settings of the training that do not matter to it

    @property
    def networks(self) -> tuple[str, ...]:
        """Models that it builds by name: one that is not fallow's own is imported only if the command names it."""
        return ()

    @property
    def parts(self) -> tuple[Method, ...]:
        """The methods that this one is a sum of: itself alone."""
        return (self,)

    @property
    def passes(self) -> float:
        """Forward-backward passes that a step should cost."""
        return self.cost.passes

    def refuses(self, problem: Problem) -> str:
        """Why this method cannot learn this problem, or nothing; asked before anything is done."""
        return ""

    def arrange(self, settings: Settings, problem: Problem) -> Settings:
        """The settings with which this method trains; the record says so."""
        return settings

    def steps_of(self, train: Stream, problem: Problem) -> int:
        """The steps of an epoch."""
        return train.steps

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

    def forward(self, ctx: Context) -> AbstractContextManager[Any]:
        """What surrounds the model's forward pass in training: a layer that is watched, or dropped from."""
        return nullcontext()

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

    def disturbed(self, ctx: Context) -> bool:
        """Whether the weights are being disturbed now: not worth an average, a best epoch or a meta-update."""
        return False

    def score(self, ctx: Context, stream: Stream, limit: int | None = None) -> Score:
        """Loss and metrics of the evaluated model, over all processes."""
        if limit is not None:
            limit = -(-limit // ctx.engine.world_size)
        return score(self.evaluated(ctx), stream.ordered(), ctx.plain_loss, ctx.problem.judge, ctx.engine, limit)

    def explain(self, ctx: Context) -> str:
        """Why the loss is no longer finite, if the method knows better than the loop."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        """Everything the method must remember to go on from a checkpoint: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""

    def settled(self, history: list[dict[str, Any]]) -> Method:
        """The method with what its training chose on validation, by the epochs' records: for one without validation."""
        return self

    def settings(self) -> dict[str, Any]:
        """The method's own settings, for the record of the run."""
        own: dict[str, Any] = dataclasses.asdict(self) if dataclasses.is_dataclass(self) else {}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in own.items()}

    def tuned(self, chosen: Mapping[str, Any]) -> Method:
        """The method with other settings, by its own name and theirs: "sam.rho"."""
        mine = {key.rpartition(".")[2]: value for key, value in chosen.items() if key.startswith(f"{self.name}.")}
        return dataclasses.replace(self, **mine) if mine else self  # type: ignore[type-var]

    def __add__(self, other: Method) -> Method:
        if not isinstance(other, Method):
            return NotImplemented
        return Together(*self.parts, *other.parts)

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
                if overrides(method, hook):
                    setattr(self, hook, getattr(method, hook))

    @property
    def parts(self) -> tuple[Method, ...]:
        return self.methods

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
    def semi(self) -> bool:  # type: ignore[override]
        """Whether one of the methods is."""
        return any(method.semi for method in self.methods)

    @property
    def shards(self) -> bool:  # type: ignore[override]
        """Whether all of the methods do."""
        return all(method.shards for method in self.methods)

    @property
    def generational(self) -> bool:  # type: ignore[override]
        """Whether one of the methods is."""
        return any(method.generational for method in self.methods)

    @property
    def cost(self) -> Cost:  # type: ignore[override]
        """Whoever asks for several gradients in a step pays for what the others do beside each of them."""
        each = [method.cost for method in self.methods]
        gradients = max(cost.gradients for cost in each)  # only one method can own the update
        return Cost(gradients, sum(cost.beside for cost in each), sum(cost.after for cost in each))

    def plan(self, generations: int, epochs: int) -> tuple[int, int]:
        """As the one method plans that has an opinion: its own plan, else generations."""
        chosen = [m for m in self.methods if overrides(m, "plan") or m.generational]
        return (chosen or self.methods)[0].plan(generations, epochs)

    def forward(self, ctx: Context) -> AbstractContextManager[Any]:
        """All of them around the same forward pass."""
        stack = ExitStack()
        for method in self.methods:
            if overrides(method, "forward"):
                stack.enter_context(method.forward(ctx))
        return stack

    def disturbed(self, ctx: Context) -> bool:
        return any(method.disturbed(ctx) for method in self.methods)

    begin = _each("begin")
    begin_generation = _each("begin_generation")
    begin_epoch = _each("begin_epoch")
    end_epoch = _each("end_epoch")
    end_generation = _each("end_generation")
    end = _each("end")

    def before_step(self, ctx: Context) -> None:
        """An average comes first, for it may set the rate; a decay last, when the others have used the gradients."""
        for method in sorted(self.methods, key=lambda m: (not overrides(m, "evaluated"), DECAY in m.exclusive)):
            method.before_step(ctx)

    def end_step(self, ctx: Context) -> None:
        """An average comes last: it takes the weights as the others leave them."""
        for method in sorted(self.methods, key=lambda method: overrides(method, "evaluated")):
            method.end_step(ctx)

    def penalty(self, ctx: Context, batch: Batch) -> Tensor | None:
        """The sum of the methods' penalties."""
        terms = [term for m in self.methods if (term := m.penalty(ctx, batch)) is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def settled(self, history: list[dict[str, Any]]) -> Method:
        return Together(*(method.settled(history) for method in self.methods))

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

    def tuned(self, chosen: Mapping[str, Any]) -> Method:
        return Together(*(method.tuned(chosen) for method in self.methods))

    def __str__(self) -> str:
        return "+".join(str(method) for method in self.methods)


def overrides(method: Method, hook: str) -> bool:
    """Whether a method changes this moment."""
    return getattr(type(method), hook) is not getattr(Method, hook)


def _clash(first: Method, second: Method) -> str:
    """Why two methods cannot share one training, or nothing."""
    if first.name == second.name:
        return "the same method twice"
    if first.tasks != second.tasks:
        few, other = (first, second) if first.tasks else (second, first)
        return f"{few.name} learns from tasks, {other.name} from labelled examples"
    if why := first.alone or second.alone:
        return f"of {first.name if first.alone else second.name}, {why}"
    if claimed := [what for what in first.exclusive if what in second.exclusive]:
        return f"both decide {claimed[0]}"
    for hook in OWNED:
        if overrides(first, hook) and overrides(second, hook):
            return CLASHES.get(hook, f"both decide the {hook} of a step")
    if overrides(first, "plan") and (overrides(second, "plan") or second.generational):
        return f"{first.name} has no generations" if second.generational else "both plan the generations"
    if overrides(second, "plan") and first.generational:
        return f"{second.name} has no generations"
    if shared := first.forgets & second.forgets:
        return f"both disturb the {' and '.join(sorted(shared))} layers"
    return ""
