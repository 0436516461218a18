"""``fit``: put a model, data and a method together, and train."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow import data as sources
from fallow import methods, models
from fallow.base.errors import FallowError, RequestError, unknown
from fallow.base.seeds import mix
from fallow.core import loop
from fallow.core.clock import Clock
from fallow.core.context import Context, Criterion
from fallow.core.engine import make_engine
from fallow.core.method import Method
from fallow.core.record import RunFolder
from fallow.core.schedule import Schedule
from fallow.core.settings import Settings
from fallow.data.stream import stream
from fallow.data.tasks import Tasks
from fallow.methods.fewshot.maml import complete
from fallow.weights import own_initialiser
from fallow.weights.layers import layer_of, untouched

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class Result:
    """What a training gave.

    ``last`` and ``best`` hold the validation and test scores after the last epoch and at the best epoch by
    validation; ``generations`` holds the same for each generation, and what it forgot.
    """

    model: nn.Module
    last: dict[str, Any]
    best: dict[str, Any] | None
    best_weights: dict[str, Tensor] | None
    generations: list[dict[str, Any]]
    history: list[dict[str, Any]]
    seconds: float
    steps: int
    passes: float  # forward and backward over a batch: what a comparison at equal compute counts
    folder: Path | None

    def describe(self) -> dict[str, Any]:
        """As plain values: what ``result.json`` holds."""
        return {
            "last": self.last,
            "best": self.best,
            "generations": self.generations,
            "steps": self.steps,
            "passes": round(self.passes, 3),
            "seconds": round(self.seconds, 3),
        }


def fit(model: nn.Module | str | None, data: Any, method: Method | str = "normal", **options: Any) -> Result:
    """Train a model on data by a method.

    The options are those of :func:`prepare`, and every field of :class:`fallow.Settings`.

    Parameters
    ----------
    model : a module, the name of one of fallow's models (``"resnet18:width=16"``), ``"module:factory"`` of
        your own, or None for the default that fits the data. A module is trained in place.
    data : a bundled name, a path, ``(x, y)`` tensors, a torch ``Dataset`` or ``DataLoader``, a ``Data``, or
        ``Tasks`` for few-shot methods (see :func:`fallow.fewshot`).
    method : a method or its name with settings (``"seal:scale=0.1"``, ``"llf+sagd"``).
    optimizer : "sgd", "adamw", an optimiser over the model's parameters, or a function that makes one.
    loss : of (output, targets); cross-entropy with label smoothing by default.
    weights : a file of pretrained weights to start from. What is re-drawn later comes from the
        initialisation, not from this file.
    init : how fresh weights are drawn; by default as the model itself was initialised.
    train : keep this many training examples. ``val`` is the share carved from training for validation.
    out, resume : the folder of the run, and whether to go on with the run that is there.
    checkpoint_every : seconds between two checkpoints (generations always write one).
    test_at_end : look at the test split only at the end, not after every generation.
    keep_generations : keep the weights after every generation, as ``generation-N.safetensors``.
    workers : processes that fetch examples; by default only for image folders too large for memory.
    engine : a launched Lightning ``Fabric``, for strategies and clusters beyond ``devices``.
    observer : called with the :class:`Context` a few times a second and after every epoch.
    generations, epochs, batch_size, lr, seed, … : see :class:`fallow.Settings`.

    >>> import fallow
    >>> result = fallow.fit("mlp", "digits", "llf", generations=2, epochs=2, seed=1)
    >>> result.last["test_accuracy"] > 0.5
    True

    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # torch warns where it has to guess
        ctx = prepare(model, data, method, **options)
        loop.run(ctx)
        return result_of(ctx)


def prepare(
    model: nn.Module | str | None,
    data: Any,
    method: Method | str = "normal",
    *,
    optimizer: str | torch.optim.Optimizer | OptimizerFactory = "sgd",
    loss: Criterion | None = None,
    weights: str | Path | None = None,
    init: Any = None,
    train: int | None = None,
    val: float = 0.2,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    devices: int = 1,
    engine: Any = None,
    workers: int | None = None,
    observer: Callable[[Context], None] | None = None,
    checkpoint_every: float = 15.0,
    test_at_end: bool = False,
    keep_generations: bool = False,
    **settings: Any,
) -> Context:
    """Everything :func:`fit` does before the first step; ``loop.run`` trains what comes back."""
    if isinstance(optimizer, str):
        settings["optimizer"] = optimizer
    chosen = Settings.of(**settings)
    method = methods.build(method)
    if isinstance(data, Tasks):
        method = complete(method)
    elif method.tasks:
        raise RequestError(
            f"{method.name} learns from tasks: give fallow.Episodes or fallow.Sinusoid, or take fallow fewshot"
        )
    if resume and out is None:
        raise RequestError("resume needs out: the folder of the run to go on with")
    folder = RunFolder(out) if out is not None else None
    engine = engine or make_engine(device, devices, chosen.precision)
    torch.manual_seed(mix(chosen.seed, 0))
    if train is not None and isinstance(data, sources.Data):
        raise RequestError("this Data is loaded and split already: give train to fallow.data.load instead")
    loaded: Any = data if isinstance(data, Tasks) else sources.load(data, train=train, val=val, seed=chosen.seed)
    if chosen.patience is not None and loaded.val is None:
        raise RequestError("patience waits for a lower validation loss: give val above 0, or no patience")
    net, factory, described = _model(model, loaded)
    pretrained = models.load_weights(net, Path(weights)) if weights is not None else None
    ctx = _assemble(net, loaded, method, chosen, engine, optimizer, loss, workers)
    ctx.observer = observer if engine.is_global_zero else None
    ctx.checkpoint_every, ctx.test_at_end, ctx.keep_generations = checkpoint_every, test_at_end, keep_generations
    ctx.initialiser = init or own_initialiser(net, factory, pretrained=pretrained is not None)
    if loss is None and not isinstance(loaded, Tasks):
        _try(ctx)
    method.begin(ctx)
    if folder is None:
        return ctx
    refusal: FallowError | None = None
    if engine.is_global_zero:
        partition = ctx.asked_partition  # born-again forgets everything and needs no threshold
        identity = {
            "method": str(method),
            "method_settings": method.settings(),
            "model": described,
            "weights": digest(Path(weights)) if weights is not None else None,
            "data": loaded.describe(),
            "settings": chosen.describe() | {"optimizer": _name_of(optimizer)},
            "loss": None if loss is None else _name_of(loss),
            "partition": partition.describe() if partition else None,
        }
        remarks = {
            "notes": loaded.notes,
            "pretrained": str(pretrained) if pretrained else None,
            "normalisation": loaded.normalisation(),  # to use the model on other images
            "origin": loaded.origin,  # to load the data again
            "pictures": loaded.pictures,
        }
        if partition:
            remarks["partition_table"] = str(partition)
        try:
            folder.open(identity, resume, **remarks)
        except FallowError as error:
            refusal = error
    if refusal := engine.broadcast(refusal):  # the other processes wait here: they must hear of it
        raise refusal
    state = folder.load_checkpoint() if resume else None
    if state is not None:
        ctx.load_state(state)
    if engine.is_global_zero:
        ctx.folder = folder
        folder.write_history(ctx.history)
    return ctx


def _model(model: nn.Module | str | None, data: sources.Data | Tasks) -> tuple[nn.Module, Any, Any]:
    """The model, how to build another, and what the record says of it."""
    if isinstance(model, nn.Module):
        shapes = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
        digest = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:12]
        return model, None, f"{type(model).__module__}.{type(model).__qualname__} ({digest})"
    spec = model or (data.model if isinstance(data, Tasks) else models.default(data.shape))

    def factory() -> nn.Module:
        return models.build(spec, shape=data.shape, classes=len(data.classes))

    return factory(), factory, spec


def _assemble(
    model: nn.Module,
    data: Any,
    method: Method,
    settings: Settings,
    engine: Any,
    optimizer: str | torch.optim.Optimizer | OptimizerFactory,
    loss: Criterion | None,
    workers: int | None,
) -> Context:
    streams = _streams(data, settings, engine, workers)
    train = streams["train"]
    assert train is not None
    wrapped = engine.setup_module(model)
    generations, epochs = method.plan(settings.generations, settings.epochs)

    def smoothed(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output, target, label_smoothing=settings.label_smoothing)

    if isinstance(data, Tasks):
        loss = loss or data.loss

    return Context(
        model=model,
        wrapped=wrapped,
        method=method,
        data=data,
        settings=settings,
        engine=engine,
        optimizer=_optimizer(model, optimizer, settings),
        criterion=loss or smoothed,
        measure=loss or functional.cross_entropy,
        streams=streams,
        clock=Clock(generations, epochs, train.steps),
        schedule=Schedule(settings.schedule, settings.warmup, settings.plateau),
    )


def _streams(data: Any, settings: Settings, engine: Any, workers: int | None) -> dict[str, Any]:
    """The stream of every part; None where there is no such part."""
    place = {"device": engine.device, "rank": engine.global_rank, "world": engine.world_size}
    common = place | {"batch_size": settings.batch_size, "seed": settings.seed}
    if isinstance(data, Tasks):
        return {name: data.stream(name, **common) for name in ("train", "val", "test")}
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return {
        name: None
        if part is None
        else stream(
            part,
            data,
            augment=settings.augment if name == "train" else "none",
            workers=_workers(part) if workers is None else workers,
            **common,
        )
        for name, part in parts.items()
    }


def _try(ctx: Context) -> None:
    """Pass two examples through the model: one that does not fit the data is refused before anything is done."""
    x = next(iter(ctx.train.ordered()))[0][:2]
    try:
        with untouched(ctx.model), torch.no_grad():
            shape = tuple(ctx.model.eval()(x).shape)
    except (RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(f"the model cannot take examples of shape {tuple(x.shape[1:])}: {why}") from error
    if len(shape) != 2 or shape[1] < ctx.classes:
        raise RequestError(
            f"the model gives {shape[1:]} for an example: {ctx.classes} classes need {ctx.classes} numbers"
        )


def _workers(part: Any) -> int:
    """Worker processes read images that are too many for memory; a user's Dataset may not expect them."""
    return min(4, os.cpu_count() or 1) if isinstance(part, sources.Files) else 0


def _optimizer(
    model: nn.Module, given: str | torch.optim.Optimizer | OptimizerFactory, settings: Settings
) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise RequestError("the model has no parameters to train")
    if isinstance(given, torch.optim.Optimizer):
        held = {id(p) for group in given.param_groups for p in group["params"]}
        if not held & {id(p) for p in parameters}:
            raise RequestError("the optimizer holds none of the model's parameters: make it from model.parameters()")
        return given
    if callable(given):
        return given(parameters)
    # fused: one kernel for all tensors; on a small network on the CPU a step is an eighth shorter
    options: dict[str, Any] = {"lr": settings.lr, "fused": True}
    groups = _by_decay(model, settings.weight_decay)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, **options)
    return torch.optim.AdamW(groups, **options)


def _by_decay(model: nn.Module, decay: float | dict[str, float]) -> list[dict[str, Any]]:
    """A parameter group for every decay: one in all, or one for every layer that is named by its path."""
    trained = [(path, p) for path, p in model.named_parameters() if p.requires_grad]
    if not isinstance(decay, dict):
        return [{"params": [p for _, p in trained], "weight_decay": decay}]
    members: dict[str, list[nn.Parameter]] = {name: [] for name in decay}
    for path, parameter in trained:
        inside = [name for name in decay if path.startswith(f"{name}.") or layer_of(path) == name]
        if not inside:
            raise RequestError(f"weight_decay names no layer that holds {path}: give it a decay too, be it 0")
        members[max(inside, key=len)].append(parameter)  # the innermost
    for name, parameters in members.items():
        if not parameters:
            raise unknown("layer in weight_decay", name, {layer_of(path) for path, _ in trained})
    return [{"params": parameters, "weight_decay": decay[name]} for name, parameters in members.items()]


def result_of(ctx: Context) -> Result:
    """Gather the outcome and write it down."""
    best = None
    if ctx.best is not None:
        best = {"generation": ctx.best["generation"]} | ctx.generations[ctx.best["generation"] - 1]["best"]
    result = Result(
        model=ctx.method.evaluated(ctx),
        last=ctx.generations[-1]["last"] if ctx.generations else {},
        best=best,
        best_weights=ctx.best["weights"] if ctx.best else None,
        generations=ctx.generations,
        history=ctx.history,
        seconds=ctx.seconds,
        steps=sum(record["epochs"] for record in ctx.generations) * ctx.clock.steps,
        passes=ctx.passes,
        folder=ctx.folder.path if ctx.folder else None,
    )
    if ctx.folder is not None and (finished := ctx.folder.result()) is not None:
        result.seconds = finished["seconds"]  # reading a finished run takes time too, but did not train it
    elif ctx.folder is not None:
        ctx.folder.save_weights("last", result.model.state_dict())
        ctx.folder.save_weights("best", result.best_weights or result.model.state_dict())
        ctx.folder.finish(result.describe())
    return result


def digest(path: Path) -> str:
    """What identifies the content of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _name_of(thing: Any) -> str:
    """The name of an optimiser, or of the function that makes one or a loss, the same in every process."""
    if isinstance(thing, str):
        return thing
    kind = type(thing) if isinstance(thing, torch.optim.Optimizer) else thing
    return getattr(kind, "__qualname__", re.sub(r" at 0x[0-9a-f]+", "", repr(kind)))
