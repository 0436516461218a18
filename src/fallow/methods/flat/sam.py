"""SAM: sharpness-aware minimization (Foret et al. 2021, equations 2 and 3), and ASAM (Kwon et al. 2021)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.core.context import Context
from fallow.core.method import Cost, Gradients, Method
from fallow.core.ranges import log


@dataclass(eq=False)
class SAM(Method):
    """Each step descends along the gradient at the worst point nearby (Foret et al. 2021, equations 2 and 3)::

        ε = ρ·g/‖g‖,  g = ∇L(w);    w ← w − η·∇L(w + ε)

    ``adaptive`` measures nearness relative to each weight (ASAM, Kwon et al. 2021, algorithm 1): ε = ρ·T²·g/‖T·g‖,
    T = |w| for weights and, as in ASAM's own code, 1 for biases, which start at 0 and would never move.
    """

    name = "sam"
    summary = "each step descends along the gradient at the worst point nearby: two passes per step"
    shards = True
    cost = Cost(gradients=2)
    ranges: ClassVar = {"rho": log(0.01, 0.5)}

    rho: float = 0.05  # ρ; ASAM takes about ten times as much
    adaptive: bool = False
    perturb: str = "synchronised"  # with several processes: all climb along their mean gradient, or "local"

    def __post_init__(self) -> None:
        if self.rho <= 0:
            raise RequestError(f"rho is {self.rho}: it must be above 0")
        if self.perturb not in ("synchronised", "local"):
            raise unknown("value for perturb", self.perturb, ("synchronised", "local"))

    def begin(self, ctx: Context) -> None:
        self.unscaled = {id(p) for name, p in ctx.model.named_parameters() if not _is_weight(name)}

    def update(self, ctx: Context, gradients: Gradients) -> Tensor:
        alone = ctx.engine.no_backward_sync(ctx.wrapped) if self.perturb == "local" else nullcontext()
        with _same_draws(ctx.device), alone:
            loss = gradients()
        trained = [p for group in ctx.optimizer.param_groups for p in group["params"] if p.grad is not None]
        unscaled = [p for p in trained if id(p) in self.unscaled] if self.adaptive else ()
        with perturbed(trained, self.rho, self.adaptive, unscaled), statistics_kept(ctx.model):
            gradients()
        ctx.step()
        return loss


def _is_weight(name: str) -> bool:
    """Whether a parameter is one of the weights, be it one of those that a weight norm makes them of.

    >>> [_is_weight(name) for name in ("0.weight", "0.bias", "0.parametrizations.weight.original1")]
    [True, False, True]
    """
    return "weight" in re.sub(r"\.original\d*$", "", name).rpartition(".")[2]


@contextmanager
def perturbed(
    parameters: Iterable[Tensor], rho: float, adaptive: bool = False, unscaled: Sequence[Tensor] = ()
) -> Iterator[None]:
    """Inside, the weights stand where the loss is highest nearby, as their gradients see it; then they are back.

    To the bit: they are kept, not subtracted. Nothing waits for the device. ``unscaled`` are those of the parameters
    that are no larger to an ``adaptive`` step for being large: biases. What has no gradient stays where it is.
    """
    parameters = [p for p in parameters if p.grad is not None]
    if not parameters:
        raise RequestError("no parameter has a gradient to climb along: call backward before")
    climb = _direction(parameters, rho, adaptive, unscaled)
    weights = [_local(p.detach()) for p in parameters]
    kept = [weight.clone() for weight in weights]
    torch._foreach_add_(weights, climb)  # climb to the local maximum
    try:
        yield
    finally:
        torch._foreach_copy_(weights, kept)


@torch.no_grad()
def _direction(parameters: Sequence[Tensor], rho: float, adaptive: bool, unscaled: Sequence[Tensor]) -> list[Tensor]:
    """ε, the norm being that of all tensors as one long vector, and of all shards where they are sharded."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    sizes: Sequence[Tensor] = torch._foreach_abs(list(parameters)) if adaptive else ()
    if adaptive:
        biases = {id(p) for p in unscaled}
        sizes = [torch.ones_like(p) if id(p) in biases else s for p, s in zip(parameters, sizes, strict=True)]
        gradients = list(torch._foreach_mul(gradients, sizes))
    norm = nn.utils.get_total_norm(gradients, foreach=True)
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    climb = list(torch._foreach_mul([_local(g) for g in gradients], rho / (norm + 1e-12)))
    if adaptive:
        torch._foreach_mul_(climb, [_local(size) for size in sizes])
    return climb


def _local(tensor: Tensor) -> Tensor:
    """The shard that this process has of a DTensor (asked by its method: to import the class takes a second)."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Inside, running statistics may change; then they are as before: a step moves them once."""
    places = [(m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None]
    buffers = [buffer for _, _, buffer in places]
    kept = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        if buffers:
            torch._foreach_copy_(buffers, kept)
        for module, name, buffer in places:
            module._buffers[name] = buffer  # a forward pass may put in others


def _same_draws(device: torch.device) -> AbstractContextManager[None]:
    """After it, the generators are as before: dropout drops the same units at both points."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
