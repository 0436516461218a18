"""A method in somebody else's loop: the same object as in fallow's own, moved by the other loop's events.

What a host has to do::

    guest = Guest("llf+fam", model, optimizer, loader, generations=4, epochs=10, steps=100)
    for epoch in range(40):
        guest.begin_epoch(epoch)                      # re-draw, climb, prune
        for batch in loader:
            loss = guest.penalised(batch, compute)    # the loss, and what a method adds to it
            loss.backward()
            optimizer.step()                          # is the guest's from now on: SAM takes the gradient again,
                                                      #   masks are kept, averages move, the epoch ends
        with guest.shown():                           # EMA, SWA: the model holds the average
            evaluate(model)
    guest.end()

Between two steps the learning rates are the host's: what a method changes about them holds within a step, so that any
scheduler may set or multiply them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from types import MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow import methods
from fallow.base.errors import RequestError, first_line
from fallow.base.numbers import require_whole
from fallow.base.seeds import mix
from fallow.core.context import Batch, Context
from fallow.core.engine import Engine
from fallow.core.method import Method, overrides
from fallow.core.settings import Settings
from fallow.data.batching import ITEMS
from fallow.data.loaders import generators
from fallow.data.randomness import Randomness
from fallow.data.targets import Classes, Numbers, Target
from fallow.evaluate.score import Score, right, score
from fallow.models.libraries import logits_of
from fallow.problems import Problem
from fallow.training.optimizers import one_step
from fallow.weights import own_initialiser
from fallow.weights.layers import call, untouched

THEIRS = ("stream", "steps_of", "loss", "score", "arrange")  # what the other loop decides
LABELS = ("labels", "label", "y", "target", "targets")  # what targets are called among the names of a batch


class Guest(Context):
    """A training as its method sees it, in a loop that is not fallow's.

    Parameters
    ----------
    method : a method or its name with settings; one that decides on batches or on the loss itself is refused.
    model, optimizer : the host's. ``optimizer.step`` is replaced until :meth:`end` or :meth:`leave`. A scheduler may be
        made before this or after it.
    batches : the host's training batches, each of inputs and targets or a mapping with labels, to look at examples by.
    generations, epochs, steps : how many, of how many epochs each, of how many steps of the optimiser each.
    schedule : how the rate moves through a generation (see :class:`fallow.Settings`); None: as the host moves it.
    split, seed : as in :class:`fallow.Settings`; ``init`` draws fresh weights, as in :func:`fallow.redraw`.
    loss : of (output, targets), to look at the model by; the host's own is what is trained with. None: cross-entropy or
        squared error, where the shapes tell; elsewhere what is forgotten is not measured, and FAM asks for it.
    again : where ``optimizer.step`` gets no closure, makes one for a step whose gradients are there: its first call
        does nothing, a further one takes the gradients again.

    """

    def __init__(
        self,
        method: Method | str,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Iterable[Any],
        *,
        generations: int,
        epochs: int,
        steps: int,
        schedule: str | None = None,
        split: str | int | float = "auto",
        seed: int = 0,
        init: Any = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        again: Callable[[], Callable[[], Any]] | None = None,
    ) -> None:
        method = accepted(method)
        require_whole("steps", steps)
        one_step(optimizer)
        own = {id(parameter) for parameter in model.parameters()}
        if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            raise RequestError("the optimiser trains none of the model's parameters: give the model it was made for")
        if schedule == "plateau":
            raise RequestError("schedule=plateau looks at validation, which is this loop's: use cosine")
        place = next(model.parameters()).device
        train = _Looks(batches, steps, place, seed)
        problem = _Problem(train, model, loss)
        problem.accept(method)
        for group in optimizer.param_groups:  # a warm-up may have set the rate to 0 by now
            group.setdefault("base_lr", float(group.get("initial_lr", group["lr"])))
        settings = Settings.of(
            generations=generations, epochs=epochs, split=split, seed=seed, schedule=schedule or "constant"
        )
        super().__init__(
            model, problem, method, settings, engine=Engine(str(place)), wrapped=model, optimizer=optimizer,
            initialiser=init or own_initialiser(model), loss=problem.plain_loss,
        )  # fmt: skip
        if self.clock.generations * self.clock.epochs != generations * epochs:
            raise RequestError(
                f"{method} trains for one generation: give generations=1, and epochs={generations * epochs}"
            )
        self.scheduled = schedule is not None
        self.again = again
        self.begun = False  # whether the epoch at which the clock stands has begun, and not ended
        self.watched = False  # whether the method has seen a forward pass since the last step
        self.plain_step = optimizer.step
        with self.rates():
            method.begin(self)

        @wraps(optimizer.step)  # schedulers look for their mark on it
        def step(_: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            return self.update(closure)

        optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]  # a scheduler binds it anew

    # ---- what a host calls ------------------------------------------------------------------------

    def begin_epoch(self, index: int) -> None:
        """Before the first step of the epoch with this number, over all generations."""
        clock = self.clock
        if clock.epoch_index == index and self.begun:
            return  # resumed in the middle of it
        self._finish_epoch()
        if index >= clock.generations * clock.epochs:
            raise RequestError(
                f"epoch {index} is one too many for generations={clock.generations} of epochs={clock.epochs}: "
                "they count from 0; give as many as the loop has"
            )
        clock.generation, clock.epoch = divmod(index, clock.epochs)
        clock.step, self.row = 0, {}
        with self.rates():
            if clock.epoch == 0:
                self.schedule.restart()
                self.method.begin_generation(self)
            self.method.begin_epoch(self)
        self.begun = True

    @property
    def watches(self) -> bool:
        """Whether the method looks at forward passes, or adds to the loss: then :meth:`penalised` is needed."""
        return any(overrides(part, hook) for part in self.method.parts for hook in ("forward", "penalty"))

    def penalised(self, batch: Any, compute: Callable[[], Tensor]) -> Tensor:
        """The host's loss, which ``compute`` gives, and what the method adds to it.

        Relative flatness is linear in the loss: of a loss that the host has scaled, it is scaled alike.
        """
        self.watched = True
        with self.method.forward(self):
            self.loss = loss = compute()
        extra = self.method.penalty(self, pair(batch))
        return loss if extra is None else loss + extra

    def update(self, closure: Callable[[], Any] | None = None) -> Any:
        """In the place of ``optimizer.step``; without a closure the gradients are there, and ``again`` is asked."""
        if closure is None and self.again is not None:
            closure = self.again()
        if closure is None and repeats(self.method):
            raise RequestError(f"{self.method} takes the gradients of a step again: give optimizer.step a closure")
        clock = self.clock
        if clock.step >= clock.steps:
            raise RequestError(
                f"an epoch has steps={clock.steps}, and this is one more: call begin_epoch before each, or give steps "
                "as many as the optimiser makes in it"
            )
        gradients: Callable[[], Any] = closure or (lambda: None)
        loss: Any = self.method.update(self, gradients)
        if self.watches and not self.watched:
            raise RequestError(
                f"{self.method} looks at forward passes: give it the loss by guest.penalised(batch, compute)"
            )
        self.watched = False
        with self.rates():
            self.method.end_step(self)
        clock.step += 1
        if clock.step == clock.steps:
            self._end_epoch()
        return loss

    def _end_epoch(self) -> None:
        self.begun = False
        with self.rates():
            self.method.end_epoch(self)
            if self.clock.epoch + 1 == self.clock.epochs:
                self.method.end_generation(self)

    def _finish_epoch(self) -> None:
        """End an epoch of fewer steps than were announced: a scaler of gradients leaves out those that overflow."""
        clock = self.clock
        if not 0 < clock.step < clock.steps:
            return
        if 2 * clock.step <= clock.steps:
            warnings.warn(
                f"an epoch had {clock.step} steps of the optimiser, and steps={clock.steps} were announced: "
                "where gradients are accumulated, give as many as it makes",
                stacklevel=3,
            )
        clock.step = clock.steps
        self._end_epoch()

    @property
    def logged(self) -> dict[str, float]:
        """The numbers that the method gave of this epoch, for the host's log."""
        return {f"fallow/{name}": float(v) for name, v in self.row.items() if isinstance(v, int | float)}

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Inside, the model holds what is to be evaluated."""
        shown = self.method.evaluated(self)
        if shown is self.model:
            yield
            return
        kept = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(shown.state_dict())
        try:
            yield
        finally:
            self.model.load_state_dict(kept)

    def end(self) -> None:
        """Everything is trained: the model holds what was evaluated, the optimiser is the host's again."""
        self._finish_epoch()
        self.method.end(self)
        self.leave()

    def leave(self) -> None:
        """Give the optimiser back, also in the middle: what climbs now descends again."""
        self.optimizer.step = self.plain_step  # type: ignore[method-assign]
        for group in self.optimizer.param_groups:
            group.pop("base_lr", None)  # another guest begins with the rate that it finds
            group.pop("scale", None)
            if group["params"] and "maximize" in (given := self.settings_given[id(group["params"][0])]):
                group["maximize"] = given["maximize"]
            if "base_decay" in group:
                group["weight_decay"] = group.pop("base_decay")

    # ---- what the method calls --------------------------------------------------------------------

    def step(self) -> None:
        """The host has clipped the gradients; rates are the host's, or the schedule's, times each group's scale."""
        with self.rates():
            if self.scheduled:
                self.set_rate()
            else:
                for group in self.optimizer.param_groups:
                    group["lr"] = group["lr"] * group.get("scale", 1.0)
            self.method.before_step(self)
            self.plain_step()

    def score(self, stream: Any, limit: int | None = None) -> Score:
        assert isinstance(self.problem, _Problem)
        if self.problem.loss is None:
            return Score(float("nan"), {}, 0)  # a look at what cannot be seen must not stop the training
        return score(_Logits(self.method.evaluated(self)), stream.ordered(), self.plain_loss, right, None, limit)

    @contextmanager
    def rates(self) -> Iterator[None]:
        """After it, every group has the rate that it had before."""
        before = [(group, group["lr"]) for group in self.optimizer.param_groups]
        try:
            yield
        finally:  # a step that was interrupted must not leave the rate of an ascent behind
            for group, rate in before:
                group["lr"] = rate

    # ---- checkpoints ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What the host's checkpoint does not hold."""
        drawn = self.initialiser.state_dict() if hasattr(self.initialiser, "state_dict") else {}
        return {
            "clock": self.clock.position(),
            "method": self.method.state_dict(),
            "initialiser": drawn,
            "schedule": self.schedule.state_dict(),
            "rng": self.rng.get_state(),
            "row": self.row,
            "begun": self.begun,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Stand where :meth:`state` was taken; model and optimiser are restored by the host."""
        self.clock.move_to(state["clock"])
        self.method.load_state_dict(state["method"])
        if hasattr(self.initialiser, "load_state_dict"):
            self.initialiser.load_state_dict(state["initialiser"])
        self.schedule.load_state_dict(state["schedule"])
        self.rng.set_state(state["rng"])
        self.row, self.begun = state["row"], state["begun"]


def accepted(method: Method | str) -> Method:
    """The method; one that decides what the other loop does decide is refused."""
    method = methods.build(method)
    for part in method.parts:
        theirs = [hook for hook in THEIRS if overrides(part, hook)]
        if theirs or part.tasks or part.semi or part.pretrained:
            what = "what is learned from" if part.tasks or part.semi or part.pretrained else f"the {theirs[0]}"
            raise RequestError(f"{part.name} decides {what} itself, which is this loop's: train it by fallow.fit")
    return method


def repeats(method: Method) -> bool:
    """Whether a method takes the gradients of a step more than once."""
    return any(overrides(part, "update") for part in method.parts)


def pair(batch: Any) -> Batch:
    """The inputs and the targets of a batch: two things, or a mapping in which the targets are called labels."""
    if isinstance(batch, Mapping):
        named = [name for name in LABELS if name in batch]
        if named:
            return Keywords({k: v for k, v in batch.items() if k != named[0]}), batch[named[0]]  # type: ignore[return-value]
    elif isinstance(batch, tuple | list) and len(batch) == 2:
        return tuple(batch)
    raise RequestError(f"a batch is a {type(batch).__name__}: let it be (inputs, targets), or a mapping with labels")


class Keywords(dict[str, Any]):
    """A model's inputs by name; a slice is one of each.

    >>> Keywords(x=torch.zeros(5, 2))[:2]["x"].shape
    torch.Size([2, 2])
    """

    def __getitem__(self, key: Any) -> Any:
        return Keywords({k: v[key] for k, v in self.items()}) if isinstance(key, slice) else super().__getitem__(key)


class _Logits(nn.Module):
    """A model that takes what a batch holds, and gives a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Tensor:
        return logits_of(call(self.model, x))


class _Looks:
    """A host's batches, to look at: its order of epochs and its random generators do not notice."""

    resumable = False

    def __init__(self, batches: Iterable[Any], steps: int, device: torch.device, seed: int) -> None:
        self.batches, self.steps, self.device, self.seed = batches, steps, device, seed

    def epoch(self, index: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, drawn by (seed, epoch)."""
        return islice(self._drawn(mix(self.seed, index)), start, None)

    def ordered(self) -> Iterator[Batch]:
        """All batches, the same ones each time."""
        return self._drawn(mix(self.seed, ITEMS))

    def share(self, step: int) -> float:
        return 1.0

    def weigh(self, weights: Tensor) -> None:
        raise RequestError("the order of examples is this loop's: give its DataLoader a WeightedRandomSampler")

    def _drawn(self, seed: int) -> Iterator[Batch]:
        own = Randomness(seed, generators(self.batches))
        with own:
            batches = iter(self.batches)
        while True:
            with own:
                batch = next(batches, None)
            if batch is None:
                return
            x, y = pair(batch)
            if isinstance(x, Mapping):
                moved: Any = Keywords({k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in x.items()})
            elif isinstance(x, tuple | list):
                raise RequestError(
                    f"the inputs of a batch are a {type(x).__name__} of {len(x)}: let the batch be a mapping, of the "
                    "model's arguments by their names and of labels"
                )
            elif not isinstance(x, Tensor):
                raise RequestError(
                    f"the inputs of a batch are a {type(x).__name__}: let them be a tensor, or a mapping"
                )
            else:
                moved = x.to(self.device)
            if not isinstance(y, Tensor):
                raise RequestError(f"the targets of a batch are a {type(y).__name__}: let them be a tensor")
            yield moved, y.to(self.device)


def guess(output: Tensor, y: Tensor) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The loss that these shapes tell; None of tokens, or of one output for two classes."""
    if y.is_floating_point():
        return _squared if output.numel() == y.numel() else None
    classes = output.ndim == y.ndim + 1 and output.shape[1] > 1 and output[:, 0].shape == y.shape
    return functional.cross_entropy if classes else None


def _squared(output: Tensor, y: Tensor) -> Tensor:
    return functional.mse_loss(output.reshape(y.shape), y)  # one number may have an axis of its own


class _Problem(Problem):
    """What can be known of what a host's loop learns: a batch, and what the model says of it."""

    metric = None

    def __init__(self, train: _Looks, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor] | None) -> None:
        self.train = train
        if not isinstance(train.batches, Iterable):
            raise RequestError(
                f"batches are a {type(train.batches).__name__}: give the DataLoader, or a list of batches"
            )
        if isinstance(train.batches, Generator):
            raise RequestError("the batches can be gone through only once: give the DataLoader itself, or a list")
        first = next(train.ordered(), None)
        if first is None:
            raise RequestError("there is no batch to look at: give the loop's own training batches")
        x, y = first
        try:
            with untouched(model), torch.no_grad():
                output = logits_of(call(model.eval(), x[:2]))
        except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
            raise RequestError(f"the model cannot take the inputs of a batch: {first_line(error)}") from error
        names = [str(i) for i in range(output.shape[-1])]
        guessed = guess(output, y[:2])
        self.target: Target = Classes(names) if guessed is functional.cross_entropy else Numbers(names)
        self.loss = loss or guessed
        self.data = SimpleNamespace(shape=(), val=None, train=None)

    @property
    def default_model(self) -> str:
        raise NotImplementedError

    def streams(self, settings: Settings, engine: Any, run: Any) -> dict[str, Any]:
        return {"train": self.train, "val": None, "test": None}

    def training_loss(self, settings: Settings) -> Callable[[Tensor, Tensor], Tensor]:
        return self.plain_loss

    def plain_loss(self, output: Any, y: Tensor) -> Tensor:
        logits = logits_of(output)
        if self.loss is None:
            raise RequestError(
                f"outputs of shape {tuple(logits.shape)} and targets of shape {tuple(y.shape)} do not tell a loss: "
                "give loss, a function of both"
            )
        return self.loss(logits, y)

    def judge(self, output: Tensor, y: Tensor) -> dict[str, float]:
        return right(output, y)
