"""What a method may see and touch. Nothing is global."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, WorkError
from fallow.base.numbers import SIDE_BY_SIDE, is_finite, require, require_whole
from fallow.base.seeds import mix
from fallow.core.clock import Clock
from fallow.core.schedule import Schedule
from fallow.evaluate.score import Score
from fallow.weights import Partition, redraw

if TYPE_CHECKING:
    from fallow.core.method import Method
    from fallow.core.record import RunFolder
    from fallow.core.settings import Settings
    from fallow.data.stream import Stream
    from fallow.data.targets import Target
    from fallow.problems import Problem

Batch = tuple[Tensor, ...]  # examples and targets, and what else a method's stream brings for each
Criterion = Callable[[Tensor, Tensor], Tensor]

KEPT = (  # what a checkpoint holds as it is
    "seen", "row", "history", "waited", "lowest", "best", "generation_best", "generations", "outputs", "passes",
)  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """How a training is carried out: where, how often it is kept, who looks on. Nothing of it changes the result."""

    out: Path | None = None
    resume: bool = False
    device: str = "auto"
    devices: int = 1
    engine: Any = None  # a launched Lightning Fabric
    workers: int | None = None
    observer: Callable[[Context], None] | None = None
    checkpoint_every: float = 15.0  # seconds
    test_at_end: bool = False  # look at the test split only at the end, not after every generation
    keep_generations: bool = False  # the weights after each, in the folder
    features: Path | None = None  # a folder for what frozen layers give, which other runs find there

    def __post_init__(self) -> None:
        seconds = self.checkpoint_every
        require(is_finite(seconds) and seconds >= 0, "checkpoint_every", seconds, "a finite number of seconds from 0")
        if self.workers is not None:
            require_whole("workers", self.workers, 0, SIDE_BY_SIDE * (os.cpu_count() or 1))


class Context:
    """One training as it stands: the model, the optimiser, the problem, the clock.

    ==================  ====================================================================
    ``model``           the user's module (``wrapped`` is what the engine made of it)
    ``optimizer``       the one optimiser; methods may split its groups in ``begin``
    ``problem``         what is learned: data, target, streams, losses, metrics
    ``criterion``       loss of (output, targets) to train by; ``plain_loss`` the one to judge by
    ``train, val, test``  streams of batches (``val`` and ``test`` may be None)
    ``clock``           generation, epoch, step, progress
    ``partition``       early, late, head (found when first asked for)
    ``rng``             a generator on the CPU, the same on every process
    ``output``          the model's output in the last call of ``predict``
    ``loss``            the method's loss of the present micro-batch, for penalties to look at
    ==================  ====================================================================
    """

    def __init__(
        self,
        model: nn.Module,
        problem: Problem,
        method: Method,
        settings: Settings,
        *,
        engine: Any,
        wrapped: nn.Module,
        optimizer: torch.optim.Optimizer,
        initialiser: Any,
        loss: Criterion | None = None,
        run: RunOptions | None = None,
    ) -> None:
        run = run or RunOptions()
        self.model, self.problem, self.method, self.settings = model, problem, method, settings
        self.engine, self.wrapped, self.optimizer, self.initialiser = engine, wrapped, optimizer, initialiser
        self.data, self.metric = problem.data, problem.metric
        self.criterion = loss or problem.training_loss(settings)
        self.plain_loss = loss or problem.plain_loss
        streams = problem.streams(settings, engine, run)
        train = streams["train"]
        assert train is not None
        self.train, self.val, self.test = train, streams["val"], streams["test"]
        generations, epochs = method.plan(settings.generations, settings.epochs)
        self.clock = Clock(generations, epochs, method.steps_of(train, problem))
        self.schedule = Schedule(settings.schedule, settings.warmup, settings.plateau)
        self.folder: RunFolder | None = None  # the first process gets one when everything else has been accepted
        self.observer = run.observer if engine.is_global_zero else None
        self.checkpoint_every, self.test_at_end = run.checkpoint_every, run.test_at_end
        self.keep_generations = run.keep_generations
        self.device: torch.device = engine.device
        self.rng = torch.Generator().manual_seed(mix(settings.seed, 1))
        self.output: Tensor | None = None
        self.loss: Tensor | None = None
        self.losses: list[Tensor] = []  # of this epoch, still on the device
        self.seen: list[float] = []  # of this epoch, looked at and finite
        self.row: dict[str, Any] = {}  # of this epoch, for metrics.jsonl
        self.history: list[dict[str, Any]] = []
        self.waited = 0  # evaluations without a better validation loss
        self.lowest = float("inf")
        self.best: dict[str, Any] | None = None  # by validation, over everything: score, position, weights
        self.generation_best: dict[str, Any] | None = None
        self.generations: list[dict[str, Any]] = []
        self.outputs: dict[str, Tensor] = {}  # of the last and the best weights, on validation and test
        self.asked_partition: Partition | None = None
        self.passes = 0.0  # forward-backward passes spent so far
        self.portion = 1.0  # of the batch that is being worked on
        self.started = self.saved = time.monotonic()
        self.earlier = 0.0  # seconds spent before this process resumed
        self.settings_given = {id(p): _settings(group) for group in optimizer.param_groups for p in group["params"]}
        for group in optimizer.param_groups:
            group.setdefault("base_lr", group["lr"])

    # ---- what methods use -------------------------------------------------------------------------

    @property
    def partition(self) -> Partition:
        """Early, late and head; layers in the order in which the model runs them."""
        if self.asked_partition is None:
            x, _ = next(iter(self.train.ordered()))
            self.asked_partition = Partition(self.model, self.settings.split, inputs=x[:2])
        return self.asked_partition

    @property
    def target(self) -> Target:
        """What the examples' targets are: classes, numbers, labels, or a value for every pixel."""
        return self.problem.target

    @property
    def disturbed(self) -> bool:
        """Whether a method is disturbing the weights now (SEAL: they climb)."""
        return self.method.disturbed(self)

    def batches(self) -> Iterable[Batch]:
        """The labelled batches of this epoch, from the clock's step on."""
        return self.train.epoch(self.clock.epoch_index, start=self.clock.step)

    def predict(self, x: Tensor) -> Tensor:
        """The model's output in training, kept as ``output`` for penalties to use."""
        with self.method.forward(self):
            output = self.wrapped(x)
        if not isinstance(output, Tensor):
            raise RequestError(f"in training the model gives a {type(output).__name__}: let it give its outputs alone")
        self.output = output
        return output

    def spend(self, passes: float) -> None:
        """Count work: forward-backward passes over a batch (over the micro-batch, while one is worked on)."""
        self.passes += passes * self.portion

    def backward(self, batch: Batch) -> Tensor:
        """Zero the gradients, then forward and backward over all micro-batches at the present weights."""
        self.optimizer.zero_grad()
        self.spend(1)
        parts = [batch] if self.settings.accumulate == 1 else _micro(batch, self.settings.accumulate)
        share = self.train.share(self.clock.step % self.train.steps)  # a method's epoch may go over the data again
        total: Tensor | None = None
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            self.portion = len(part[0]) / len(batch[0])
            with nullcontext() if last else self.engine.no_backward_sync(self.wrapped):
                with self.engine.autocast():
                    self.loss = loss = self.method.loss(self, part)
                    if loss.ndim:
                        raise RequestError(f"the loss has shape {tuple(loss.shape)}: let it be one number, the mean")
                    extra = self.method.penalty(self, part)
                    if extra is not None:
                        loss = loss + extra
                if len(parts) > 1:
                    loss = loss * self.portion
                self.engine.backward(loss if share == 1.0 else loss * share)
            total = loss.detach() if total is None else total + loss.detach()
        self.portion = 1.0
        assert total is not None
        return total

    def step(self) -> None:
        """Clip the gradients, let the method see them, and step the optimiser."""
        if self.settings.clip is not None:
            trained = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(trained, self.settings.clip, foreach=True)
        self.method.before_step(self)
        self.optimizer.step()

    def redraw(self, what: Any, **policy: Any) -> list[str]:
        """Fresh weights from the model's own initialisation, the same on every process."""
        return redraw(
            self.model, what, init=self.initialiser, optimizer=self.optimizer, seed=self.draw_seed(), **policy
        )

    def draw_seed(self) -> int:
        """A seed from this training's own generator."""
        return int(torch.randint(2**62, (), generator=self.rng))

    def score(self, stream: Stream, limit: int | None = None) -> Score:
        """Loss and metrics of the evaluated model, over all processes."""
        return self.method.score(self, stream, limit)

    def log(self, **values: Any) -> None:
        """Add numbers to the record of this epoch."""
        self.row |= values

    # ---- what the loop uses -----------------------------------------------------------------------

    def set_rate(self) -> None:
        """Give every group its learning rate at this step: initial × schedule × the group's own scale."""
        factor = self.schedule(self.clock)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor * group.get("scale", 1.0)

    def check(self) -> float:
        """The mean loss of the epoch so far; a loss that is not finite stops the training here."""
        if self.losses:
            fresh = torch.stack(self.losses).tolist()
            self.losses = []
            for loss in fresh:
                self.seen.append(loss)
                if not math.isfinite(loss):
                    # a method that can explain it blames its own settings: the request was wrong
                    raise (RequestError if self.method.explain(self) else WorkError)(self._diverged())
        return math.fsum(self.seen) / len(self.seen) if self.seen else float("nan")

    def finite(self) -> bool:
        """Whether all trained weights are finite: only then is a checkpoint worth writing."""
        norms = torch._foreach_norm([p.detach() for p in self.model.parameters() if p.requires_grad])
        return bool(torch.isfinite(torch.stack([n.float() for n in norms])).all())

    @property
    def seconds(self) -> float:
        """Time spent, in all the processes that worked on this run one after another."""
        return self.earlier + time.monotonic() - self.started

    def close(self) -> None:
        """Give the optimiser its settings back, and let another process work in the run's folder.

        Also where the training was interrupted: the weights must not go on climbing under somebody else's loop.
        """
        for group in self.optimizer.param_groups:  # they may have been split, but never put together
            given = self.settings_given.get(id(group["params"][0])) if group["params"] else None
            if given is None:  # of what a method learns beside the model
                continue
            for key in _settings(group).keys() - given.keys():
                del group[key]
            group.update(given)
        if self.folder is not None:
            self.folder.release()

    def state(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on."""
        return {
            "clock": self.clock.position(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "initialiser": self.initialiser.state_dict() if hasattr(self.initialiser, "state_dict") else {},
            "schedule": self.schedule.state_dict(),
            "rng": self.rng.get_state(),
            "torch_rng": torch.get_rng_state(),
            "device_rng": self._device_rng("get_rng_state") if self.device.type != "cpu" else None,
            "seconds": self.seconds,
        } | {name: getattr(self, name) for name in KEPT}

    def load_state(self, state: dict[str, Any]) -> None:
        """Stand where :meth:`state` was taken."""
        self.clock.move_to(state["clock"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.method.load_state_dict(state["method"])
        if hasattr(self.initialiser, "load_state_dict"):
            self.initialiser.load_state_dict(state["initialiser"])
        self.schedule.load_state_dict(state["schedule"])
        self.rng.set_state(state["rng"])
        torch.set_rng_state(state["torch_rng"])
        if state["device_rng"] is not None and self.device.type != "cpu":
            self._device_rng("set_rng_state", state["device_rng"])
        older = {"passes": self.clock.step_index * self.method.passes, "outputs": {}}  # which kept neither
        for name in KEPT:
            setattr(self, name, state[name] if name in state else older[name])
        self.earlier = state["seconds"]

    def _device_rng(self, verb: str, *state: Tensor) -> Any:
        """The random state of the accelerator that this training runs on, which need not be the default one."""
        which = () if self.device.index is None else (self.device,)
        return getattr(torch.get_device_module(self.device), verb)(*state, *which)

    def kept(self) -> str:
        """Where the last good checkpoint is, to end an error's message."""
        if self.folder is None or not self.folder.checkpoint.exists():
            return ""
        return f"; the last good checkpoint is kept in {self.folder.path}"

    def _diverged(self) -> str:
        step = len(self.seen)
        where = f"generation {self.clock.generation + 1}, epoch {self.clock.epoch + 1}, step {step}"
        before = f" (the step before: {self.seen[-2]:.4g})" if step > 1 else ""
        if why := self.method.explain(self):
            pass
        elif step == 1 and self.clock.epoch_index == 0:
            why = "it was so from the start: look for non-finite inputs or weights"
        else:
            rate = max(group["base_lr"] for group in self.optimizer.param_groups)
            why = f"likely the learning rate ({rate:g}) is too high: lower it, or set clip or warmup"
        return f"the loss became {self.seen[-1]} at {where}{before}; {why}{self.kept()}"


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """What an optimiser's group has besides its parameters."""
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _micro(batch: Batch, count: int) -> list[Batch]:
    """The batch in ``count`` micro-batches of nearly equal size, none of them empty."""
    count = min(count, len(batch[0]))  # a small data set, or a share of a batch, may hold fewer
    return list(zip(*(tensor.tensor_split(count) for tensor in batch), strict=True))  # tasks are four tensors
