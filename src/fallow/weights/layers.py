"""The layers of any model, the order in which they run, and what kind they are."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fallow.base.errors import RequestError

_TORCH_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def layers(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that own parameters or buffers themselves, by path, in order of registration.

    >>> list(layers(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))))
    ['0', '2']
    """
    return {path: module for path, module in model.named_modules() if own_tensors(module)}


def refuse_lazy(model: nn.Module) -> None:
    """Refuse a model with layers that wait for a first batch: they have no weights to choose from or to draw."""
    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        raise RequestError("the model has layers without a shape yet: pass one batch through it first")


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers that belong to the module itself and not to its children."""
    own = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in own.items() if tensor is not None}


def join(path: str, name: str) -> str:
    """The name of something inside the module at ``path``; the model's own path is empty."""
    return f"{path}.{name}" if path else name


def owner(path: str) -> str:
    """The layer that owned tensors belong to: a parametrised weight (weight norm, …) has a module inside its layer.

    >>> owner("head.parametrizations.weight"), owner("head")
    ('head', 'head')
    """
    above, inside, _ = path.rpartition("parametrizations.")
    return above.removesuffix(".") if inside else path


def is_norm(module: nn.Module) -> bool:
    """Whether a layer normalises: torch's own norms, or a class called so that has no weight matrix."""
    if isinstance(module, _TORCH_NORMS):
        return True
    return "norm" in type(module).__name__.lower() and not has_matrix(module) and not module._modules


def has_matrix(module: nn.Module) -> bool:
    """Whether the module itself owns a parameter with two or more dimensions."""
    return any(tensor is not None and tensor.ndim >= 2 for tensor in module._parameters.values())


def is_numeric(tensor: Tensor) -> bool:
    """Whether a tensor can be averaged and scaled: no quantised weights, no mask of attention, which holds −∞."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return tensor.requires_grad or bool(tensor.isfinite().all())  # what is trained belongs to it even if it diverges


def execution_order(model: nn.Module, inputs: Any = None) -> dict[str, int]:
    """The rank of every module, by path: the order of first calls in a forward pass of ``inputs``.

    A module that is never called, such as a projection whose weight its parent uses, ranks right after the
    nearest parent that is called; if that is only the model itself, it comes last, with a rank of at least
    the number of modules. Without ``inputs`` the rank is the order of registration. ``inputs`` is a tensor,
    a tuple of arguments or a mapping of keywords.
    """
    paths = [path for path, _ in model.named_modules()]
    registered = {path: rank for rank, path in enumerate(paths)}
    if inputs is None:
        return registered
    called = _first_calls(model, inputs)

    def caller(path: str) -> str:
        """The module itself if it is called, or else the nearest parent that is."""
        while path and path not in called:
            path = path.rpartition(".")[0]
        return path

    run = [path for path in paths if caller(path) or not path]
    run.sort(key=lambda path: (called[caller(path)], registered[path]))
    idle = [path for path in paths if path and not caller(path)]
    return {path: rank for rank, path in enumerate(run)} | {
        path: rank for rank, path in enumerate(idle, start=len(paths))
    }


def _first_calls(model: nn.Module, inputs: Any) -> dict[str, int]:
    called: dict[str, int] = {"": 0}

    paths = {module: path for path, module in model.named_modules()}
    if any(isinstance(module, torch.jit.ScriptModule) for module in paths):
        raise RequestError(
            "the model is a script of torch.jit, whose layers take no hooks: give the module it was made of"
        )

    def note(module: nn.Module, _: Any) -> None:
        called.setdefault(paths[module], len(called))

    handles = [module.register_forward_pre_hook(note) for module in paths]
    try:
        with untouched(model), torch.no_grad():
            call(model.eval(), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return called


def call(model: nn.Module, inputs: Any) -> Any:
    """What the model gives for a tensor, a tuple of arguments or a mapping of keywords."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


@torch.no_grad()
def normalised_layers(model: nn.Module, x: Tensor) -> list[str]:
    """The layers whose output goes right into one of torch's norms: the model's output does not depend on their scale.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 2))
    >>> normalised_layers(net, torch.zeros(4, 2))
    ['0']
    """
    paths = {module: path for path, module in model.named_modules()}
    given: list[tuple[Any, str]] = []
    found: dict[str, None] = {}

    def gives(module: nn.Module, _: Any, output: Any) -> None:
        given.append((output, paths[module]))

    def takes(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        found.update(dict.fromkeys(path for output, path in given if inputs and output is inputs[0]))

    handles = [module.register_forward_hook(gives) for module in paths if has_matrix(module)]
    handles += [m.register_forward_pre_hook(takes) for m in paths if isinstance(m, _TORCH_NORMS)]
    try:
        with untouched(model):
            model.eval()
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return list(found)


def is_compiled(model: nn.Module) -> bool:
    """Whether a model is under ``torch.compile``, which passes over new hooks on its layers in silence."""
    return any("_orig_mod" in module._modules for module in model.modules())


def refuse_compiled(model: nn.Module, what: str) -> None:
    """Refuse a model that does not call the hooks which this needs in every step."""
    if is_compiled(model):
        raise RequestError(f"{what} needs hooks on layers, which a compiled model does not call: give it uncompiled")


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """After it, every module is in the mode it was in: a frozen norm that evaluates in training goes on doing so."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        model.train(modes[0][1])  # a model may do more than to set the flag: merge weights, or part them again
        for module, training in modes:
            module.training = training


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Whatever happens inside, the model's modes and buffers and the random generators are as before.

    A compiled model runs as it is written: it is looked at by hooks.
    """
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        eager = torch.compiler.set_stance("force_eager") if is_compiled(model) else nullcontext()
        with torch.random.fork_rng(), modes_kept(model), eager:
            yield
    finally:
        for module, name, buffer, before in buffers:
            module._buffers[name] = buffer.copy_(before)  # a forward may change a buffer or put in another


@contextmanager
def unfused() -> Iterator[None]:
    """Inside, attention is made of matrix products: torch's fused kernels have no second derivatives.

    The fast path of its layers, which they take in evaluation also where torch.func wants a gradient, has none at all.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def copied(model: nn.Module) -> nn.Module:
    """A deep copy, also of a model that keeps what a forward pass left: a weight norm's weight, an activation.

    Such a tensor has a history, which ``deepcopy`` refuses; in the copy it has none.
    """
    left = [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor) and v.grad_fn is not None]
    return copy.deepcopy(model, {id(tensor): tensor.detach() for tensor in left})


def layer_of(path: str) -> str:
    """The layer that a parameter is in; "model" where the model itself is one.

    >>> layer_of("hidden1.linear.weight"), layer_of("weight")
    ('hidden1.linear', 'model')
    """
    return path.rpartition(".")[0] or "model"
