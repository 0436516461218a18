"""A model and a loss as one function of the parameters: of one task, or of many tasks at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fallow.base.errors import unknown
from fallow.weights.layers import join, unfused

Params = dict[str, Tensor]
Criterion = Callable[[Tensor, Tensor], Tensor]

BATCH_NORMS = ("batch", "per-step", "frozen")


class Objective:
    """(losses, outputs) of tasks, each with parameters of its own.

    With ``batched`` every tensor carries tasks on its first axis (but for ``shared`` parameters), and one call of vmap
    runs them side by side; otherwise there is one task and no such axis. Gradients of the *sum* of the losses are the
    tasks' own gradients, since no task's loss depends on another's parameters: plain autograd then differentiates
    batched products, which on a small network is nearly twice as fast as vmap over a gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        *,
        batched: bool,
        shared: Collection[str] = (),
        effective: Callable[[Params], Params] = dict,  # of the parameters: what the model computes with
    ) -> None:
        self.batched, self.shared = batched, frozenset(shared)

        def call(params: Params, buffers: Params, x: Tensor) -> Tensor:
            with nullcontext() if torch.compiler.is_compiling() else unfused():
                return functional_call(model, (effective(params), buffers), (x,))

        def one(params: Params, buffers: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            output = call(params, buffers, x)
            return criterion(output, y), output

        self.call, self.one = call, one

    def __call__(
        self, params: Params, x: Tensor, y: Tensor, buffers: Params | None = None, *, common: bool = True
    ) -> tuple[Tensor, Tensor]:
        """``buffers`` replace the model's own: ``common`` to all tasks, or each task's own."""
        buffers = buffers or {}
        if not self.batched:
            return self.one(params, buffers, x, y)
        axes = {name: None if name in self.shared else 0 for name in params}
        in_dims = (axes, dict.fromkeys(buffers, None if common else 0), 0, 0)
        return vmap(self.one, in_dims, randomness="different")(params, buffers, x, y)  # every task drops its own units


class _Laid(torch.autograd.Function):
    """Channels innermost on the way there, as usual on the way back, for second derivatives."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor) -> Tensor:
        return kernel.contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        return outer[0].contiguous()


def channels_last(params: Params, x: Tensor) -> tuple[Params, Tensor]:
    """Images of one task and the kernels for them with channels innermost, where that is faster: on a CPU.

    Convolutions need no reordering then, and pooling is vectorised: a pass over the queries of the 4-conv net takes
    two thirds of the time. Differentiating twice is slower so, hence only queries are laid out like this.
    """
    if x.ndim != 4 or x.device.type != "cpu":
        return params, x
    _, c, h, w = x.shape  # explicit strides: with one channel torch takes either layout for the other
    x = torch.empty_strided(x.shape, (c * h * w, 1, w * c, c), dtype=x.dtype).copy_(x)
    return {name: _Laid.apply(p) if p.ndim == 4 else p for name, p in params.items()}, x


def norms(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """The layers that keep running statistics."""
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]


@contextmanager
def normalised(model: nn.Module, behaviour: str, training: bool) -> Iterator[None]:
    """What batch normalisation does inside; the running statistics stay as they are, and so do the modes after it.

    ``batch``: always the statistics of the batch at hand (a query set is then classified together: transductive).
    ``frozen``: always the running statistics that the model came with.
    ``per-step``: the batch's while training, the running ones of the inner step at evaluation (MAML++).
    """
    if behaviour not in BATCH_NORMS:
        raise unknown("batch_norm", behaviour, BATCH_NORMS)
    found = norms(model)
    before = [(m, m.training, m.track_running_stats) for m in found]
    try:
        for module in found:
            module.training = behaviour == "batch" or (behaviour == "per-step" and training)
            module.track_running_stats = bool(module.track_running_stats) and behaviour != "batch"
        yield
    finally:
        for module, mode, tracked in before:
            module.training, module.track_running_stats = mode, tracked


def supported(model: nn.Module, objective: Objective, params: Params, x: Tensor, y: Tensor) -> Params:
    """The statistics of every norm over the support set of a task, or of each task, as buffers of the model.

    With them a query is normalised as the support set is, whatever the other queries are. Variances are torch's running
    ones, n/(n − 1) times those of the batch.
    """
    lead = x.shape[:1] if objective.batched else torch.Size()
    held = {
        join(path, name): buffer.expand(lead + buffer.shape).clone()
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        for name, buffer in module.named_buffers(recurse=False)
    }
    found = norms(model)
    before = [(module, module.training, module.momentum) for module in found]
    try:
        for module in found:
            module.training, module.momentum = True, 1.0
        objective(params, x, y, held, common=False)
    finally:
        for module, mode, momentum in before:
            module.training, module.momentum = mode, momentum
    return held


class Statistics(nn.Module):
    """Running statistics of every norm for each inner step apart (MAML++), for ``batch_norm="per-step"``."""

    def __init__(self, model: nn.Module, steps: int) -> None:
        super().__init__()
        self.last = steps
        self.paths: dict[str, str] = {}  # a buffer's name here → in the model
        for path, module in model.named_modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                for name, buffer in module.named_buffers(recurse=False):
                    mine = f"{path}.{name}".replace(".", "/")
                    self.paths[mine] = f"{path}.{name}" if path else name
                    self.register_buffer(mine, buffer.detach().expand(steps + 1, *buffer.shape).clone())
        self.fresh: dict[int, list[Params]] = {}

    def at(self, step: int, lead: torch.Size | None) -> Params:
        """The statistics of a step: to use, or with ``lead`` a copy for every task to move on from."""
        step = min(step, self.last)
        held = {path: getattr(self, mine)[step] for mine, path in self.paths.items()}
        if lead is None:
            return held
        moved = {path: value.expand(lead + value.shape).clone() for path, value in held.items()}
        self.fresh.setdefault(step, []).append(moved)
        return moved

    @torch.no_grad()
    def settle(self) -> None:
        """Keep the mean over the tasks of what they moved on to."""
        for step, moved in self.fresh.items():
            for mine, path in self.paths.items():
                held = getattr(self, mine)[step]
                each = torch.cat([m[path].reshape(-1, *held.shape) for m in moved])
                held.copy_(each.float().mean(0) if held.is_floating_point() else each[0])
        self.fresh = {}
