"""Everything that a training does before its first step."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader
from typing_extensions import Unpack

from fallow import methods, models
from fallow.base.errors import FallowError, RequestError, unknown
from fallow.base.files import digest
from fallow.base.seeds import mix
from fallow.core.context import Context, RunOptions
from fallow.core.engine import make_engine
from fallow.core.method import Method
from fallow.core.record import RunFolder
from fallow.core.settings import Settings
from fallow.evaluate.features import place
from fallow.problems import Labelled, as_problem
from fallow.problems.problem import Problem
from fallow.training import augmentation, recipes
from fallow.training.layout import CHANNELS_LAST, copies, is_sharded, lay, may_be_channels_last, refuse_shards
from fallow.training.optimizers import OWN, OptimizerFactory, optimizer_of
from fallow.training.options import LOADING, FitOptions, with_signature
from fallow.weights import Rewound, own_initialiser
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order, layers
from fallow.weights.partition import ALL

ASIDE = ("params", "base_lr", "foreach", "fused", "capturable", "differentiable")  # how, and not what


class Asked(NamedTuple):
    """The options of :func:`fallow.fit`, by what they are about."""

    settings: dict[str, Any]
    reading: dict[str, Any]  # of the data
    run: RunOptions
    optimizer: torch.optim.Optimizer | OptimizerFactory | None  # the user's own; one by name is a setting
    loss: Callable[..., Any] | None  # the user's own; one with a name is a setting
    weights: Path | None
    init: Any


class Start(NamedTuple):
    """A network before its training."""

    net: nn.Module
    described: str
    initialiser: Any
    pretrained: models.Report | None


@with_signature
def prepare(
    model: nn.Module | str | None, data: Any, method: Method | str = "normal", **options: Unpack[FitOptions]
) -> Context:
    """Everything :func:`fit` does before the first step; ``loop.run`` trains what comes back."""
    asked = _sorted(dict(options))
    run, settings = asked.run, Settings.of(**asked.settings)
    if run.resume and run.out is None:
        raise RequestError("resume needs out: the folder of the run to resume")
    method = methods.build(method)
    engine = run.engine or make_engine(run.device, run.devices, settings.precision)
    torch.manual_seed(mix(settings.seed, 0))
    problem = as_problem(data, seed=settings.seed, metric=settings.metric, loss=settings.loss, **asked.reading)
    _refuse_for_loader(problem.data, asked)
    if asked.loss is not None:
        problem.keep_units()
    method = problem.accept(method)
    if model is None and isinstance(problem, Labelled):
        model, chosen = recipes.training(problem.data, method, None, asked.settings)
        settings = Settings.of(**chosen)
    settings = _arranged(settings, problem, method, model, run)
    start = _started(model, problem, method, settings, asked)
    net = start.net if settings.freeze is None else problem.freeze(start.net, settings.freeze)
    if engine.device.type in CHANNELS_LAST and not method.tasks and copies(engine) and may_be_channels_last(net):
        # the weights decide: a convolution brings its input into their format, and all that follows stays in it
        lay(net, channels_last=True)  # tasks have weights of their own each, by vmap
    wrapped = engine.setup_module(net)
    if is_sharded(net):
        refuse_shards(method, run)
    ctx = Context(
        net, problem, method, settings, engine=engine, wrapped=wrapped,
        optimizer=optimizer_of(net, asked.optimizer, settings), loss=asked.loss, run=run, initialiser=start.initialiser,
    )  # fmt: skip
    if asked.loss is None:
        problem.check(ctx.model, next(iter(ctx.train.ordered())))
    paths = [path for path, _ in net.named_modules() if path]
    if isinstance(settings.split, str) and settings.split not in ("auto", ALL, *paths):  # where none is needed, too
        raise unknown("module", settings.split, paths)
    method.begin(ctx)
    return ctx if run.out is None else _opened(ctx, RunFolder(run.out), start, asked)


def _sorted(options: dict[str, Any]) -> Asked:
    """What was asked for, by what it is about."""
    optimizer, loss, weights, init = (options.pop(name, None) for name in ("optimizer", "loss", "weights", "init"))
    reading = {name: options.pop(name) for name in LOADING if name in options}
    run = RunOptions(**{f.name: options.pop(f.name) for f in dataclasses.fields(RunOptions) if f.name in options})
    if isinstance(optimizer, str):
        options["optimizer"], optimizer = optimizer, None
    if optimizer is not None and (theirs := [name for name in OWN if name in options]):
        raise RequestError(
            f"your optimizer has its own {' and '.join(theirs)}: leave {'these' if len(theirs) > 1 else 'this'} out, "
            "or name the optimizer: sgd or adamw"
        )
    if isinstance(loss, str):
        options["loss"], loss = loss, None
    return Asked(options, reading, run, optimizer, loss, None if weights is None else Path(weights), init)


def _refuse_for_loader(data: Any, asked: Asked) -> None:
    """Refuse what a DataLoader, which is taken as it is, would leave undone in silence."""
    if not isinstance(train := getattr(data, "train", None), DataLoader):  # environments have no examples
        return
    size, wanted = train.batch_size, asked.settings.get("batch_size")
    if wanted is not None and size is not None and wanted != size:
        raise RequestError(
            f"the DataLoader makes batches of {size}: leave batch_size={wanted} out, or pass its Dataset instead"
        )
    for name in ("val", "test"):
        if asked.reading.get(name) and getattr(data, name) is None:
            raise RequestError(
                f"{name}={asked.reading[name]} cannot be carved from a DataLoader: pass its Dataset instead, "
                "or a DataLoader for each part"
            )


def _arranged(
    settings: Settings, problem: Problem, method: Method, model: nn.Module | str | None, run: RunOptions
) -> Settings:
    """The settings, completed by trials and by the method; what contradicts itself is refused."""
    if settings.augment == "try":
        policy, said = _known(run) or augmentation.tried(problem, model, settings, run.device)
        settings = dataclasses.replace(settings, augment=policy)
        problem.data = dataclasses.replace(problem.data, notes=[*problem.data.notes, said])
    settings = method.arrange(settings, problem)
    if settings.freeze is not None and method.semi:
        raise RequestError(f"{method.name} looks at images in ever new views: leave freeze={settings.freeze} out")
    if settings.freeze is not None and settings.augment == "auto":
        settings = dataclasses.replace(settings, augment="none")  # what frozen layers give is computed once
    if settings.patience is not None and problem.data.val is None:
        raise RequestError("patience waits for a lower validation loss: give val above 0, or no patience")
    return settings


def _started(
    model: nn.Module | str | None, problem: Problem, method: Method, settings: Settings, asked: Asked
) -> Start:
    """The network with the weights it starts from, and how its layers are drawn afresh."""
    own = isinstance(model, nn.Module)
    net, factory, described = problem.network(model, settings.input_size)
    if any(p.is_complex() for p in net.parameters()):
        raise RequestError("the model has complex parameters: keep their real and imaginary parts apart")
    pretrained = models.load_weights(net, asked.weights) if asked.weights is not None else None
    known = models.learned(net, pretrained, given=own)
    # a head alone learns tasks whose examples are features already
    bare = method.tasks and len([layer for layer in layers(net).values() if layer._parameters]) == 1
    if not known and not bare and (needy := [part.name for part in method.parts if part.pretrained]):
        raise RequestError(
            f"{needy[0]} uses what a network has learned before, and {described} starts afresh: "
            "take --model lite0, or give --weights"
        )
    if own and (method.tasks or method.semi) and not method.control:
        _refuse_head_first(net, problem.data.shape)
    initialiser = asked.init or own_initialiser(net, factory, pretrained=pretrained is not None)
    if known and asked.init is None and settings.redraw_from == "weights" and not own:
        initialiser = Rewound(net, known, initialiser)
    return Start(net, described, initialiser, pretrained)


def _known(run: RunOptions) -> tuple[str, str] | None:
    """What trials found for the run that is resumed, if it is one."""
    try:
        record = json.loads((Path(run.out or "") / "run.json").read_text("utf-8")) if run.resume else {}
        return record["settings"]["augment"], next(n for n in record["notes"] if n.startswith(augmentation.TRIED))
    except (OSError, ValueError, LookupError, TypeError, StopIteration):  # none, or one that will be refused
        return None


def _opened(ctx: Context, folder: RunFolder, start: Start, asked: Asked) -> Context:
    """The context with the run's folder, where it stood when the run was left."""
    partition = ctx.asked_partition  # born-again forgets everything and needs no threshold
    settings = ctx.settings.describe()
    if asked.optimizer is not None:
        settings = {key: value for key, value in settings.items() if key not in OWN}
        settings["optimizer"] = _told(ctx.optimizer)
    identity = {
        "method": str(ctx.method),
        "method_settings": ctx.method.settings(),
        "model": start.described,
        "weights": None if asked.weights is None else digest(asked.weights),
        "data": ctx.problem.describe(),
        "settings": settings,
        "loss": None if asked.loss is None else _name_of(asked.loss),
        "partition": partition.describe() if partition else None,
    }
    remarks = ctx.problem.remarks() | {"pretrained": str(start.pretrained) if start.pretrained else None}
    remarks["understood"] = ctx.problem.understood(ctx.settings)
    if partition:
        remarks["partition_table"] = str(partition)
    refusal: FallowError | None = None
    if ctx.engine.is_global_zero:
        try:
            folder.open(identity, asked.run.resume, **remarks)
        except FallowError as error:
            refusal = error
    if refusal := ctx.engine.broadcast(refusal):  # the other processes wait here: they must hear of it
        raise refusal
    state = folder.load_checkpoint() if asked.run.resume else None
    if state is not None:
        ctx.load_state(state)
    if ctx.engine.is_global_zero:
        ctx.folder = folder
        folder.write_history(ctx.history)
    return ctx


def _refuse_head_first(net: nn.Module, shape: tuple[int, ...]) -> None:
    """Methods that change the head's place or leave it out take the layer that a module defines last for it."""
    defined = head_of(net, execution_order(net))
    try:
        last = head_of(net, execution_order(net, place(net, torch.zeros(2, *shape))))
    except Exception:  # what it cannot take is told of elsewhere
        return
    if last != defined:
        raise RequestError(
            f"the model defines {defined!r} last, and runs {last!r} last: define the head after the rest"
        )


def _told(optimizer: torch.optim.Optimizer) -> str:
    """An optimiser with the numbers of each of its groups, the same in every process."""
    groups = (group | {"lr": group.get("base_lr", group["lr"])} for group in optimizer.param_groups)
    told = (
        ", ".join(f"{name}={value}" for name, value in sorted(group.items()) if name not in ASIDE) for group in groups
    )
    return f"{type(optimizer).__qualname__}({'; '.join(dict.fromkeys(told))})"


def _name_of(thing: Any) -> str:
    """The name of a loss, the same in every process."""
    return getattr(thing, "__qualname__", re.sub(r" at 0x[0-9a-f]+", "", repr(thing)))
