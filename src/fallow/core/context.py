"""What a method may see and touch. Nothing is global."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, WorkError
from fallow.base.seeds import mix
from fallow.evaluate.accuracy import Score
from fallow.weights import Partition, redraw

if TYPE_CHECKING:
    from fallow.core.clock import Clock
    from fallow.core.method import Method
    from fallow.core.record import RunFolder
    from fallow.core.schedule import Schedule
    from fallow.core.settings import Settings
    from fallow.data import Data
    from fallow.data.stream import Stream

Batch = tuple[Tensor, ...]  # examples and targets, and what else a method's stream brings for each
Criterion = Callable[[Tensor, Tensor], Tensor]


class Context:
    """One training as it stands: the model, the optimiser, the data, the clock.

    ==================  ====================================================================
    ``model``           the user's module (``wrapped`` is what the engine made of it)
    ``optimizer``       the one optimiser; methods may split its groups in ``begin``
    ``criterion``       loss of (output, targets)
    ``train, val, test``  streams of batches (``val`` and ``test`` may be None)
    ``clock``           generation, epoch, step, progress
    ``partition``       early, late, head (found when first asked for)
    ``rng``             a generator on the CPU, the same on every process
    ``phase``           "descent", or "ascent" while a method climbs
    ``output``          the model's output in the last call of ``predict``
    ``loss``            the method's loss of the present micro-batch, for penalties to look at
    ==================  ====================================================================
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        method: Method,
        data: Data,
        settings: Settings,
        engine: Any,
        optimizer: torch.optim.Optimizer,
        wrapped: nn.Module,
        criterion: Criterion,
        measure: Criterion,
        streams: dict[str, Stream | None],
        clock: Clock,
        schedule: Schedule,
        initialiser: Any = None,
        folder: RunFolder | None = None,
        observer: Callable[[Context], None] | None = None,
        checkpoint_every: float = 15.0,
        test_at_end: bool = False,
        keep_generations: bool = False,
    ) -> None:
        self.model, self.wrapped, self.method, self.data = model, wrapped, method, data
        self.settings, self.engine, self.optimizer = settings, engine, optimizer
        self.criterion, self.measure = criterion, measure
        train = streams["train"]
        assert train is not None
        self.train, self.val, self.test = train, streams.get("val"), streams.get("test")
        self.clock, self.schedule, self.initialiser = clock, schedule, initialiser
        self.folder, self.observer, self.checkpoint_every = folder, observer, checkpoint_every
        self.test_at_end = test_at_end  # or after every generation
        self.keep_generations = keep_generations  # the weights after each, in the folder
        self.device: torch.device = engine.device
        self.rng = torch.Generator().manual_seed(mix(settings.seed, 1))
        self.phase = "descent"
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
        self.asked_partition: Partition | None = None
        self.passes = 0.0  # forward-backward passes so far
        self.started = self.saved = time.monotonic()
        self.earlier = 0.0  # seconds spent before this process resumed
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
    def classes(self) -> int:
        """The number of classes."""
        return len(self.data.classes)

    def batches(self) -> Iterable[Batch]:
        """The labelled batches of this epoch, from the clock's step on."""
        return self.train.epoch(self.clock.epoch_index, start=self.clock.step)

    def predict(self, x: Tensor) -> Tensor:
        """The model's output, kept as ``output`` for penalties to use."""
        self.output = output = self.wrapped(x)
        return output

    def backward(self, batch: Batch) -> Tensor:
        """Zero the gradients, then forward and backward over all micro-batches at the present weights."""
        self.optimizer.zero_grad()
        self.passes += 1
        parts = [batch] if self.settings.accumulate == 1 else _micro(batch, self.settings.accumulate)
        share = self.train.share(self.clock.step % self.train.steps)  # a method's epoch may go over the data again
        total: Tensor | None = None
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            with nullcontext() if last else self.engine.no_backward_sync(self.wrapped):
                with self.engine.autocast():
                    self.loss = loss = self.method.loss(self, part)
                    extra = self.method.penalty(self, part)
                    if extra is not None:
                        loss = loss + extra
                if len(parts) > 1:
                    loss = loss * (len(part[0]) / len(batch[0]))
                self.engine.backward(loss if share == 1.0 else loss * share)
            total = loss.detach() if total is None else total + loss.detach()
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
        """Loss and accuracy of the evaluated model, over all processes."""
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
        """Whether all weights are finite: only then is a checkpoint worth writing."""
        norms = torch._foreach_norm([p.detach() for p in self.model.parameters()])
        return bool(torch.isfinite(torch.stack([n.float() for n in norms])).all())

    @property
    def seconds(self) -> float:
        """Time spent, in all the processes that worked on this run one after another."""
        return self.earlier + time.monotonic() - self.started

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
            "phase": self.phase,
            "seen": self.seen,
            "row": self.row,
            "history": self.history,
            "waited": self.waited,
            "lowest": self.lowest,
            "best": self.best,
            "generation_best": self.generation_best,
            "generations": self.generations,
            "passes": self.passes,
            "seconds": self.seconds,
        }

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
        for name in ("phase", "seen", "row", "history", "waited", "lowest", "best", "generation_best", "generations"):
            setattr(self, name, state[name])
        self.passes = state.get("passes", self.clock.step_index * self.method.passes)  # older ones did not count
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
        climbed = self.history[-1] if self.history else {"phase": ""}  # its last step shows in the next epoch only
        if why := self.method.explain(self):
            pass
        elif "ascent" in (self.phase, climbed["phase"]):
            why = "the ascent diverged: give it a smaller scale or a smaller share, or ascent=adaptive"
        elif step == 1 and self.clock.epoch_index == 0:
            why = "it was so from the start: look for non-finite inputs or weights"
        else:
            rate = max(group["base_lr"] for group in self.optimizer.param_groups)
            why = f"likely the learning rate ({rate:g}) is too high: lower it, or set clip or warmup"
        return f"the loss became {self.seen[-1]} at {where}{before}; {why}{self.kept()}"


def _micro(batch: Batch, count: int) -> list[Batch]:
    """The batch in ``count`` micro-batches of nearly equal size, none of them empty."""
    count = min(count, len(batch[0]))  # a small data set, or a share of a batch, may hold fewer
    return list(zip(*(tensor.tensor_split(count) for tensor in batch), strict=True))  # tasks are four tensors
