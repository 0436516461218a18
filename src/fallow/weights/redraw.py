"""Forgetting: draw weights afresh from the model's own initialisation, with a say in what else is reset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.weights.blocks import inside
from fallow.weights.initialisers import ByLayer, Initialiser, Rewound, own_initialiser, reset
from fallow.weights.layers import is_norm, join, layers, refuse_lazy
from fallow.weights.optimizer_state import reset_state
from fallow.weights.partition import Part

NORM_BUFFERS = {"running_mean": 0, "running_var": 1, "num_batches_tracked": 0}


def redraw(
    model: nn.Module,
    what: Part | str | Iterable[str] | None = None,
    *,
    init: Initialiser | Callable[[nn.Module], object] | None = None,
    biases: bool = True,
    norm_affine: bool = True,
    norm_buffers: bool = True,
    optimizer: torch.optim.Optimizer | None = None,
    optimizer_state: str = "reset",
    where: Mapping[str, Tensor] | None = None,
    seed: int | None = None,
) -> list[str]:
    """Draw part of a model afresh, in place, and return the names of the tensors that changed.

    ``what`` is a ``Part`` of a partition, a module's path or several, or None for the whole model. The new
    values are drawn by ``init``: an initialiser (``Fresh(factory)``, ``Recorded(model)``, …) or a function
    that fills one layer in place and is called after the layer's own ``reset_parameters``; by default by
    ``model.initialise`` or else ``reset_parameters``.

    Frozen parameters, and statistics of frozen norms, stay as they are. ``biases`` and ``norm_affine`` say whether
    biases, and the scale and shift of norm layers, are drawn too; ``norm_buffers`` whether norm layers lose their
    statistics (mean 0, variance 1). ``where`` maps names of parameters to boolean masks: then only these elements
    change, and no statistics. The state that ``optimizer`` keeps for what changed is reset with it, unless
    ``optimizer_state="keep"``.

    With ``seed`` the draw is the same everywhere, whatever the device, and the global generator is left
    alone; without it, the global generator of the CPU is used.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> redraw(net, ["3"], biases=False, seed=0)
    ['3.weight']
    """
    if optimizer_state not in ("reset", "keep"):
        raise unknown("optimizer_state", optimizer_state, ("reset", "keep"))
    refuse_lazy(model)
    if where is not None:
        _check_masks(model, where)
    parts = _layers(model, what)
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    if isinstance(what, Part) and any(id(parameter) not in name_of for parameter in what.parameters):
        raise RequestError("the part is of another model, or of one that this is a copy of: partition this one")
    targets: dict[str, nn.Parameter] = {}
    sources: dict[str, str] = {}  # the name under which the initialiser knows a target: tied tensors have two
    for path, layer in parts.items():
        for own, parameter in layer._parameters.items():
            if parameter is None or not parameter.requires_grad:
                continue  # a frozen weight could never relearn
            if not (norm_affine if is_norm(layer) else biases or "bias" not in own):
                continue
            name = name_of[id(parameter)]
            if name not in targets and (where is None or name in where):
                targets[name] = parameter
                sources[name] = join(path, own)

    needed = {source.rpartition(".")[0] for source in sources.values()}
    with _generator(seed):
        drawn = _initialiser(model, init).draw({path: parts[path] for path in parts if path in needed})
    parameters: list[Tensor] = list(targets.values())
    values = [drawn[sources[name]] for name in targets]
    masks = None if where is None else [where[name].to(targets[name].device) for name in targets]
    with torch.no_grad():
        if masks is not None:
            values = [
                torch.where(mask, value.to(parameter), parameter)
                for mask, value, parameter in zip(masks, values, parameters, strict=True)
            ]
        if parameters:
            torch._foreach_copy_(parameters, values)
    if optimizer is not None and optimizer_state == "reset":
        reset_state(optimizer, parameters, masks)
    start = init.start if isinstance(init, Rewound) else {}
    statistics = _reset_statistics(parts, start) if norm_buffers and where is None else []
    return [*targets, *statistics]


def _layers(model: nn.Module, what: Part | str | Iterable[str] | None) -> dict[str, nn.Module]:
    if isinstance(what, Part):
        return what.modules
    every = layers(model)
    if what is None or what == "all":
        return every
    paths = [what] if isinstance(what, str) else list(what)
    known = dict(model.named_modules())
    for path in paths:
        if path not in known:
            raise unknown("module", path, filter(None, known))
    return {path: layer for path, layer in every.items() if any(inside(path, parent) for parent in paths)}


def _initialiser(model: nn.Module, init: Initialiser | Callable[[nn.Module], object] | None) -> Initialiser:
    if init is None:
        return own_initialiser(model, pretrained=True)  # what the model holds now may be trained
    if not callable(init):
        return init

    def draw(layer: nn.Module) -> None:
        reset(layer)  # such functions usually leave biases and norms as the constructor made them
        init(layer)

    return ByLayer(draw)


def _check_masks(model: nn.Module, where: Mapping[str, Tensor]) -> None:
    known = dict(model.named_parameters())
    for name, mask in where.items():
        if name not in known:
            raise unknown("parameter in where", name, known)
        if mask.dtype != torch.bool or mask.shape != known[name].shape:
            raise RequestError(
                f"the mask of {name} is {mask.dtype} of shape {tuple(mask.shape)}: "
                f"it should be torch.bool of shape {tuple(known[name].shape)}"
            )


def _reset_statistics(parts: Mapping[str, nn.Module], start: Mapping[str, Tensor]) -> list[str]:
    names = []
    for path, layer in parts.items():
        trained = [parameter.requires_grad for parameter in layer._parameters.values() if parameter is not None]
        if trained and not any(trained):
            continue  # a frozen norm may never see a batch again
        for own, buffer in layer._buffers.items():
            if buffer is not None and own in NORM_BUFFERS and is_norm(layer):
                name = join(path, own)
                if name in start:
                    buffer.copy_(start[name])
                else:
                    buffer.fill_(NORM_BUFFERS[own])
                names.append(name)
    return names


@contextmanager
def _generator(seed: int | None) -> Iterator[None]:
    """The CPU's generator, as it is, or seeded for the moment."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs too
        yield
