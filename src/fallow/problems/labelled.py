"""Labelled examples: classes, numbers, several labels, or a value for every pixel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fallow import models
from fallow.base.errors import RequestError
from fallow.data import Data, Examples, Files, Stream, stream
from fallow.data.leaks import uneven
from fallow.data.stream import Cast, Changed
from fallow.data.texts import to_strings
from fallow.evaluate.score import right
from fallow.models import Inputs
from fallow.models.cut import Cut, Front
from fallow.models.features import front_features
from fallow.models.reading import Reading, Tokens
from fallow.models.scaled import Scaled
from fallow.problems.problem import Criterion, Network, Problem
from fallow.weights.layers import untouched

if TYPE_CHECKING:
    from fallow.core.context import RunOptions
    from fallow.core.method import Method
    from fallow.core.settings import Settings


class Fronted(Changed):
    """A stream of what frozen layers give for augmented images, computed as they come.

    ``still`` has what they give for the images as they are.
    """

    def __init__(self, inner: Stream, front: Front, still: Stream | None) -> None:
        super().__init__(inner)
        self.front, self.still = front, still

    def change(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, y = batch
        return self.front(x), y

    def ordered(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Computed once, where the examples can be told apart."""
        return super().ordered() if self.still is None else self.still.ordered()


class Labelled(Problem):
    """A model learns to give the target of an example."""

    cut: Cut | None = None  # where some layers are frozen
    tokens: Tokens | None = None  # what a network that reads texts makes of them
    read: Data | None = None  # the texts themselves

    def __init__(self, data: Data, metric: str | None = None, loss: str | None = None) -> None:
        if loss is not None:
            data = replace(data, target=data.target.minimising(loss))
        self.data, self.target = data, data.target
        y = getattr(data.train, "y", None)
        if data.target.kind == "classes" and isinstance(y, Tensor) and (shares := uneven(y, data.classes)):
            # always guessing the common class is no feat
            how = "balanced accuracy judges" if metric is None else "look at balanced accuracy too"
            notes = dict.fromkeys([*data.notes, f"The classes are uneven: {shares}; {how}."])  # said once
            self.data = replace(data, notes=list(notes))
            metric = metric or "balanced-accuracy"
        self.metric = self.target.metric(metric)
        self.judged = list(dict.fromkeys([self.target.metric(), self.metric]))

    def accept(self, method: Method) -> Method:
        if method.tasks:
            raise RequestError(
                f"{method.name} learns from tasks: give fallow.Episodes or fallow.Sinusoid, or take fallow fewshot"
            )
        return super().accept(method)

    def network(self, model: nn.Module | str | None, size: int | None = None) -> Network:
        """The network; one that was trained before sees images in the size and on the scale that it knows."""
        found = super().network(model)
        tokens = getattr(found.module, "tokens", None)
        if self.data.texts != (tokens is not None):
            reads = (
                "texts, and these are none" if tokens else "no texts: take bag, minilm, or hf:FOLDER of one that does"
            )
            raise RequestError(f"{found.described} reads {reads}")
        if tokens is not None:
            self.read, self.data, self.tokens = self.data, _tokenised(self.data, tokens), tokens
        inputs: Inputs | None = getattr(found.module, "inputs", None)
        if inputs is None:
            if size is not None:
                raise RequestError(f"{found.described} has no size of its own: leave input_size={size} out")
            return found
        scaling = {}
        if self.data.pictures:  # numbers on a scale of their own stay centred and scaled by it
            channels = self.data.shape[0]
            scaling = {name: torch.tensor(getattr(inputs, name)).expand(channels) for name in ("mean", "std")}
        self.data = replace(self.data, size=size or inputs.fast or inputs.size, **scaling)
        return found

    @property
    def default_model(self) -> str:
        if self.data.texts:
            return "bag"
        return "unet" if self.target.kind == "dense" else models.default(self.data.shape)

    def freeze(self, network: nn.Module, at: str | int | float) -> nn.Module:
        if self.target.kind == "dense":
            raise RequestError(f"freeze={at} is not for targets of every pixel: leave it out")
        x, _ = next(iter(stream(self.data.train, self.data, batch_size=2, seed=0).ordered()))
        self.cut = Cut(network, at, x[:2])
        return self.cut.tail

    def streams(self, settings: Settings, engine: Any, run: RunOptions) -> dict[str, Any]:
        found: dict[str, Any] = {"train": None, "val": None, "test": None}
        how = {
            "batch_size": settings.batch_size, "seed": settings.seed, "device": engine.device,
            "rank": engine.global_rank, "world": engine.world_size,
        }  # fmt: skip
        for name in found:
            part = getattr(self.data, name)
            if part is None:
                continue
            augment = settings.augment if name == "train" else "none"
            workers = _workers(part) if run.workers is None else run.workers
            still = None
            if self.cut is not None and isinstance(part, Examples | Files):
                still = stream(*self._features(part, engine.device, run.features), **how)
            if still is not None and self.data.policy(augment) == "none":
                found[name] = still
            else:
                found[name] = stream(part, self.data, augment=augment, workers=workers, **how)
                if self.cut is not None:
                    found[name] = Fronted(found[name], self.cut.front.to(engine.device), still)
            if settings.precision == "float64":
                found[name] = Cast(found[name], torch.float64)
        return found

    def _features(self, part: Examples | Files, device: Any, folder: Path | None) -> tuple[Examples, Data]:
        """What the frozen layers give for the examples of a part, as examples that need no scaling."""
        assert self.cut is not None
        held = Examples(front_features(self.cut.front.to(device), part, self.data, folder), part.y)
        return held, replace(self.data, train=held, mean=None, std=None, size=None, shape=tuple(held.x.shape[1:]))

    def keep_units(self) -> None:
        self.target = self.target.unscaled()
        self.data = replace(self.data, target=self.target)

    def training_loss(self, settings: Settings) -> Criterion:
        return self.target.training_loss(settings.label_smoothing)

    def plain_loss(self, output: Tensor, y: Tensor) -> Tensor:
        return self.target.loss(output, y)

    def judge(self, output: Tensor, y: Tensor) -> dict[str, float]:
        if self.target.check(output.shape, y.shape):
            return {}  # a loss of one's own may take other outputs, and then it alone judges
        found = right(output, y)
        if missing := [metric for metric in self.judged if metric.name not in found]:
            prediction, truth = self.target.decode(output).numpy(), y.cpu().numpy()
            found |= {metric.name: metric.compute(prediction, truth) for metric in missing}
        return found

    def check(self, model: nn.Module, batch: Any) -> None:
        """Pass two examples through the model."""
        x, y = (part[:2] for part in batch)
        try:
            with untouched(model), torch.no_grad():
                output = model.eval()(x)
        except (RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), x.dtype)
            if x.is_floating_point() and kind != x.dtype:
                why = f"its weights are {kind}; give model.float(), and precision float64 or bf16 where you want that"
            raise RequestError(f"the model cannot take examples of shape {tuple(x.shape[1:])}: {why}") from error
        if not isinstance(output, Tensor):
            raise RequestError(f"the model gives a {type(output).__name__}: let it give its outputs alone, as a tensor")
        if why := self.target.check(tuple(output.shape), y.shape):
            raise RequestError(why)

    def describe(self) -> dict[str, Any]:
        """Texts are identified by themselves, whatever tokens a network makes of them."""
        return super().describe() if self.read is None else self.read.describe() | {"target": self.target.describe()}

    def understood(self, settings: Settings) -> str:
        return self.data.understood(settings.augment)

    def finished(self, model: nn.Module) -> nn.Module:
        model = model if self.cut is None else self.cut.joined(model)
        if self.tokens is not None:
            return Reading(model, self.tokens)
        return Scaled(model, self.data.mean, self.data.std, self.data.size)


def _tokenised(data: Data, tokens: Tokens) -> Data:
    """Texts as what a network makes of them; tokens stay as they are."""
    parts = {name: part for name in ("train", "val", "test") if (part := getattr(data, name)) is not None}
    if parts["train"].x.dtype == torch.int64:
        return data
    made: dict[str, Any] = {name: Examples(tokens(to_strings(part.x)), part.y) for name, part in parts.items()}
    return replace(data, **made)


def _workers(part: Any) -> int:
    """Worker processes read images that are too many for memory; a user's Dataset may not expect them."""
    return min(4, os.cpu_count() or 1) if isinstance(part, Files) else 0
