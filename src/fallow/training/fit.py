"""``fit``: put a model, a problem and a method together, and train."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format
from typing_extensions import Unpack

from fallow import methods, models
from fallow.base import notebook
from fallow.base.errors import FallowError, RequestError, unknown
from fallow.base.seeds import mix
from fallow.core import loop
from fallow.core.context import Context, RunOptions
from fallow.core.engine import make_engine
from fallow.core.method import Method
from fallow.core.record import RunFolder
from fallow.core.settings import Settings
from fallow.evaluate.features import place
from fallow.evaluate.metrics import Metric
from fallow.evaluate.score import key_of
from fallow.models.reading import Reading
from fallow.models.scaled import Scaled
from fallow.problems import Labelled, as_problem
from fallow.training import augmentation, recipes
from fallow.training.options import LOADING, FitOptions, with_signature
from fallow.weights import Rewound, own_initialiser
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order, layer_of, layers
from fallow.weights.partition import ALL

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

CHANNELS_LAST = ("cpu", "cuda")  # devices whose convolutions are faster so (`python -m benchmarks loop`)
NARROW = 16  # input channels


@dataclass(repr=False)
class Result:
    """What a training gave.

    ``model`` takes examples as the data hold them: the scaling of its inputs is inside, and so it is in the weights
    that are kept; ``network`` is the module that was trained. ``last`` and ``best`` hold the validation and test
    scores after the last epoch and at the best epoch by validation; ``generations`` holds the same for each
    generation, and what it forgot.
    """

    model: nn.Module
    last: dict[str, Any]
    best: dict[str, Any] | None
    best_weights: dict[str, Tensor] | None
    generations: list[dict[str, Any]]
    history: list[dict[str, Any]]
    metric: Metric | None  # what judged, where the problem has one
    seconds: float
    steps: int
    passes: float  # forward and backward over a batch: what a comparison at equal compute counts
    folder: Path | None

    @property
    def network(self) -> nn.Module:
        """The module that was trained, without the scaling of its inputs."""
        return self.model.network if isinstance(self.model, Scaled | Reading) else self.model

    def best_state(self) -> dict[str, Tensor]:
        """The weights that were best on validation, as the model's state; without validation the last."""
        if self.best_weights is None:
            return self.model.state_dict()
        inside = "" if self.network is self.model else "network."
        return self.model.state_dict() | {f"{inside}{name}": w for name, w in self.best_weights.items()}

    def __repr__(self) -> str:
        kept = "" if self.folder is None else f"; {self.folder}"
        return f"{type(self).__name__}({self._judged()}; {self.steps} steps in {self.seconds:.1f} s{kept})"

    def _judged(self) -> str:
        """The test score in words, or the validation score where nothing was kept for the test."""
        part = next((part for part in ("test", "val") if self._shown(self.last, part) != "-"), None)
        if part is None or self.metric is None:
            return f"trained for {len(self.history)} epochs"
        best = "" if self.best is None else f" ({self._shown(self.best, part)} at the best epoch by validation)"
        words = {"test": "test", "val": "validation"}[part]
        return f"{words} {self.metric.words} {self._shown(self.last, part)}{best}"

    def _shown(self, scores: dict[str, Any], part: str) -> str:
        value = None if self.metric is None else scores.get(key_of(part, self.metric.name))
        if value is None or self.metric is None:
            return "-"
        return f"{100 * value:.1f} %" if self.metric.share else f"{value:.4g}"

    def _repr_html_(self) -> str:
        """A row for every generation."""
        names = {"train": "training", "val": "validation", "test": "test"}
        head = ["generation", "epochs", *names.values()]
        rows = [
            [str(row["generation"]), str(row["epochs"]), *(self._shown(row["last"], part) for part in names)]
            for row in self.generations
        ]
        return notebook.table(repr(self), head, rows)

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


@with_signature
def fit(
    model: nn.Module | str | None, data: Any, method: Method | str = "normal", **options: Unpack[FitOptions]
) -> Result:
    """Train a model on data by a method.

    Parameters
    ----------
    model : a module, the name of one of fallow's models (``"resnet18:width=16"``), ``"module:factory"`` of
        your own, or None for the data's recipe: its network, and its settings where none are given
        (:mod:`fallow.training.recipes`). A module is trained in place.
    data : a bundled name, a path, ``(x, y)`` tensors, a torch ``Dataset`` or ``DataLoader``, a ``Data``, or
        ``Tasks`` for few-shot methods (see :func:`fallow.fewshot`).
    method : a method or its name with settings (``"seal:scale=0.1"``, ``"llf+sagd"``).
    optimizer : "sgd", "adamw", an optimiser over the model's parameters, or a function that makes one.
    loss : of (output, targets); by default that of the target, cross-entropy with label smoothing for classes. For
        masks also by name: "dice", "dice+cross-entropy". With a loss of one's own, numbers stay in their own units;
        else a network gives them in deviations from the training mean.
    metric : what decides which weights are best, "accuracy" for classes, "rmse" for numbers, …
    weights : a file of pretrained weights to start from.
    redraw_from : "weights" (what is re-drawn gets its pretrained values back, a new head is drawn), or "init".
    init : how fresh weights are drawn; by default as the model itself was initialised.
    train : keep this many training examples. ``val`` is the share carved from training for validation.
    target : "classes", "numbers", "labels" or "dense", where the answers do not show it (counts, for instance); of a
        table, the column to predict.
    test, as_, groups, drop : as for :func:`fallow.data.load`.
    out, resume : the folder of the run, and whether to resume the run that is there.
    checkpoint_every : seconds between two checkpoints (generations always write one).
    test_at_end : look at the test split only at the end, not after every generation.
    freeze : where training begins, a module's path, a number or a share of blocks, or "head": what comes before stays
        as it is, and is computed once for every example (with augmentation, once an epoch).
    features : a folder in which other runs find what frozen layers gave.
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
        with closing(ctx):
            loop.run(ctx)
            return result_of(ctx)


@with_signature
def prepare(
    model: nn.Module | str | None, data: Any, method: Method | str = "normal", **options: Unpack[FitOptions]
) -> Context:
    """Everything :func:`fit` does before the first step; ``loop.run`` trains what comes back."""
    asked: dict[str, Any] = dict(options)
    optimizer = asked.pop("optimizer", "sgd")
    loss, weights, init = (asked.pop(name, None) for name in ("loss", "weights", "init"))
    how = {name: asked.pop(name) for name in LOADING if name in asked}
    run = RunOptions(**{f.name: asked.pop(f.name) for f in dataclasses.fields(RunOptions) if f.name in asked})
    if isinstance(optimizer, str):
        asked["optimizer"] = optimizer
    if isinstance(loss, str):
        asked["loss"], loss = loss, None
    settings = Settings.of(**asked)
    if run.resume and run.out is None:
        raise RequestError("resume needs out: the folder of the run to resume")
    method = methods.build(method)
    engine = run.engine or make_engine(run.device, run.devices, settings.precision)
    torch.manual_seed(mix(settings.seed, 0))
    problem = as_problem(data, seed=settings.seed, metric=settings.metric, loss=settings.loss, **how)
    if loss is not None:
        problem.keep_units()
    method = problem.accept(method)
    if model is None and isinstance(problem, Labelled):
        model, asked = recipes.training(problem.data, method, None, asked)
        settings = Settings.of(**asked)
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
    net, factory, described = problem.network(model, settings.input_size)
    pretrained = models.load_weights(net, Path(weights)) if weights is not None else None
    known = models.learned(net, pretrained, given=isinstance(model, nn.Module))
    # a head alone learns tasks whose examples are features already
    bare = method.tasks and len([layer for layer in layers(net).values() if layer._parameters]) == 1
    if not known and not bare and (needy := [part.name for part in method.parts if part.pretrained]):
        raise RequestError(
            f"{needy[0]} uses what a network has learned before, and {described} starts afresh: "
            "take --model lite0, or give --weights"
        )
    if isinstance(model, nn.Module) and (method.tasks or method.semi) and not method.control:
        _refuse_head_first(net, problem.data.shape)
    initialiser = init or own_initialiser(net, factory, pretrained=pretrained is not None)
    if known and init is None and settings.redraw_from == "weights" and not isinstance(model, nn.Module):
        initialiser = Rewound(net, known, initialiser)
    if settings.freeze is not None:
        net = problem.freeze(net, settings.freeze)
    if engine.device.type in CHANNELS_LAST and not method.tasks and _copies(engine) and may_be_channels_last(net):
        # the weights decide: a convolution brings its input into their format, and all that follows stays in it
        convert_conv2d_weight_memory_format(net, torch.channels_last)  # tasks have weights of their own each, by vmap
    wrapped = engine.setup_module(net)
    if is_sharded(net):
        _refuse_shards(method, run)
    ctx = Context(
        net, problem, method, settings, engine=engine, wrapped=wrapped,
        optimizer=_optimizer(net, optimizer, settings), loss=loss, run=run, initialiser=initialiser,
    )  # fmt: skip
    if loss is None:
        problem.check(ctx.model, next(iter(ctx.train.ordered())))
    paths = [path for path, _ in net.named_modules() if path]
    if isinstance(settings.split, str) and settings.split not in ("auto", ALL, *paths):  # where none is needed, too
        raise unknown("module", settings.split, paths)
    method.begin(ctx)
    if run.out is None:
        return ctx
    partition = ctx.asked_partition  # born-again forgets everything and needs no threshold
    identity = {
        "method": str(method),
        "method_settings": method.settings(),
        "model": described,
        "weights": digest(Path(weights)) if weights is not None else None,
        "data": problem.describe(),
        "settings": settings.describe() | {"optimizer": _name_of(optimizer)},
        "loss": None if loss is None else _name_of(loss),
        "partition": partition.describe() if partition else None,
    }
    remarks = problem.remarks() | {"pretrained": str(pretrained) if pretrained else None}
    remarks["understood"] = problem.understood(settings)
    if partition:
        remarks["partition_table"] = str(partition)
    return _opened(ctx, RunFolder(run.out), run.resume, identity, remarks)


def _known(run: RunOptions) -> tuple[str, str] | None:
    """What trials found for the run that is resumed, if it is one."""
    try:
        record = json.loads((Path(run.out or "") / "run.json").read_text("utf-8")) if run.resume else {}
        return record["settings"]["augment"], next(n for n in record["notes"] if n.startswith(augmentation.TRIED))
    except (OSError, ValueError, LookupError, TypeError, StopIteration):  # none, or one that will be refused
        return None


def _opened(
    ctx: Context, folder: RunFolder, resume: bool, identity: dict[str, Any], remarks: dict[str, Any]
) -> Context:
    """The context with the run's folder, where it stood when the run was left."""
    refusal: FallowError | None = None
    if ctx.engine.is_global_zero:
        try:
            folder.open(identity, resume, **remarks)
        except FallowError as error:
            refusal = error
    if refusal := ctx.engine.broadcast(refusal):  # the other processes wait here: they must hear of it
        raise refusal
    state = folder.load_checkpoint() if resume else None
    if state is not None:
        ctx.load_state(state)
    if ctx.engine.is_global_zero:
        ctx.folder = folder
        folder.write_history(ctx.history)
    return ctx


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
        return _one_step(given)
    if callable(given):
        return _one_step(given(parameters))
    # fused: one kernel for all tensors; on a small network on the CPU a step is an eighth shorter
    options: dict[str, Any] = {"lr": settings.lr, "fused": not is_sharded(model)}
    groups = _by_decay(model, settings.weight_decay)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    return torch.optim.AdamW(groups, **options)


def _one_step(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Refuse those that ask for the loss several times in a step."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise RequestError("LBFGS asks for the loss several times a step, which no method here expects: take another")
    return optimizer


def may_be_channels_last(model: nn.Module) -> bool:
    """Whether torch's convolutions can be trusted with this format in all layers of a network.

    The backward pass of a strided 1 × 1 convolution of 2 to 7 channels (a narrow residual network's shortcut) writes
    behind its buffers on the CPU (torch 2.13); twice as many are left alone, and groups that are narrow.
    """
    return all(
        (layer.groups == 1 and (max(layer.stride) == 1 or max(layer.kernel_size) > 1)) or layer.in_channels >= NARROW
        for layer in model.modules()
        if isinstance(layer, nn.Conv2d)
    )


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


def _copies(engine: Any) -> bool:
    """Whether every process holds whole weights: what is sharded must lie as torch expects it."""
    return engine.world_size == 1 or type(engine.strategy).__name__ == "DDPStrategy"


def is_sharded(model: nn.Module) -> bool:
    """Whether processes hold parts of the weights (FSDP2's DTensors), not copies."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def _refuse_shards(method: Method, run: RunOptions) -> None:
    """Refuse what would crash or compute something else where no process holds a whole weight."""
    for part in method.parts:
        if not part.shards:
            able = ", ".join(name for name, kind in methods.REGISTRY.items() if kind.shards)
            raise RequestError(
                f"{part.name} needs whole weights, and the engine shards them: take DDP (devices=2), or one of {able}"
            )
    if run.out is not None:
        raise RequestError(
            "a run's folder holds whole weights, and the engine shards them: omit out=, and save the weights with "
            "torch.distributed.checkpoint"
        )


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
        model=ctx.problem.finished(ctx.method.evaluated(ctx)).eval(),  # ready to be asked, norms and dropout included
        last=ctx.generations[-1]["last"] if ctx.generations else {},
        best=best,
        best_weights=ctx.best["weights"] if ctx.best else None,
        generations=ctx.generations,
        history=ctx.history,
        metric=ctx.metric,
        seconds=ctx.seconds,
        steps=sum(record["epochs"] for record in ctx.generations) * ctx.clock.steps,
        passes=ctx.passes,
        folder=ctx.folder.path if ctx.folder else None,
    )
    if ctx.folder is not None and (finished := ctx.folder.result()) is not None:
        result.seconds = finished["seconds"]  # reading a finished run takes time too, but did not train it
    elif ctx.folder is not None:
        ctx.folder.save_weights("last", result.model.state_dict())
        ctx.folder.save_weights("best", result.best_state())
        ctx.folder.save_outputs(ctx.outputs)
        ctx.folder.finish(result.describe())
    if not is_sharded(result.model):
        convert_conv2d_weight_memory_format(result.model, torch.contiguous_format)  # as anyone expects weights to lie
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
