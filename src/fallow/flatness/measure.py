"""Relative flatness of one layer: the plain function, for anyone's own loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fallow.base.numbers import require_whole
from fallow.evaluate.losses import Loss, criterion
from fallow.flatness.choose import Choice, evaluate
from fallow.flatness.observation import Observation
from fallow.flatness.watch import Watch


def relative_flatness(
    model: nn.Module,
    layer: str | nn.Module,
    inputs: Any,
    targets: Any,
    loss: str | Loss = "cross_entropy",
    form: str = "auto",
    *,
    simplified: bool = False,
    probes: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """κ = Σ_{s,s'} ⟨w_s, w_s'⟩ Tr H_{s,s'} of one layer (FAM, section 1): a scalar to differentiate.

    H is the Hessian of the loss over this batch with respect to the layer's weight. The model runs once more, in the
    mode it is in, and keeps its buffers and random generators; to share the forward pass of a training step, use
    :class:`fallow.flatness.Watch`.

    Parameters
    ----------
    model, inputs : called as ``model(inputs)``, or with the arguments of a tuple or the keywords of a mapping.
    layer : a linear layer or convolution, by its path or itself, or "head" (the matrix out of the penultimate
        neurons, which the paper means by "the penultimate layer") or "penultimate" (the last layer before the head).
    loss : "cross_entropy", "squared_error", or any function of (output, targets) with two derivatives.
    form : "head", "closed", "gauss-newton", "tail", "forward", "probe" or "dense"; "auto" takes the cheapest that
        is exact, and :func:`explain` says which. "gauss-newton" leaves out the curvature of what comes after the layer
        and so is never negative; "probe" estimates κ without bias.
    simplified : κ̂ = ‖W‖² Tr H (section 3.2).
    probes, generator : the number of estimates that "probe" averages, and where their signs come from.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> x, y = torch.randn(16, 4), torch.randint(3, (16,))
    >>> kappa = relative_flatness(net, "penultimate", x, y)
    >>> torch.allclose(kappa, relative_flatness(net, "0", x, y, form="dense"), rtol=1e-3)
    True

    """
    require_whole("probes", probes)
    observed, choice = _observe(model, layer, inputs, targets, loss, form, simplified)
    return evaluate(observed, choice, probes, generator)


def explain(
    model: nn.Module,
    layer: str | nn.Module,
    inputs: Any,
    targets: Any,
    loss: str | Loss = "cross_entropy",
    form: str = "auto",
    *,
    simplified: bool = False,
) -> Choice:
    """Which form :func:`relative_flatness` takes with these arguments, whether it is exact, and why.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> print(explain(net, "0", torch.randn(16, 4), torch.randint(3, (16,))))
    closed (exact): Relu, then a linear head; 3 times the layer's products
    >>> print(explain(net, "head", torch.randn(16, 4), torch.randint(3, (16,))))
    head (exact): the layer gives the logits of a softmax, a few small products
    """
    return _observe(model, layer, inputs, targets, loss, form, simplified)[1]


def _observe(
    model: nn.Module,
    layer: str | nn.Module,
    inputs: Any,
    targets: Any,
    loss: str | Loss,
    form: str,
    simplified: bool,
) -> tuple[Observation, Choice]:
    judge = criterion(loss)
    if isinstance(inputs, dict):
        arguments, keywords = (), inputs
    else:
        arguments, keywords = inputs if isinstance(inputs, tuple) else (inputs,), {}
    watch = Watch(model, layer, inputs, form=form, simplified=simplified)

    def run() -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.random.fork_rng(devices=_devices(watch.layer)):
            return judge(functional_call(model, buffers, arguments, keywords), targets)

    with torch.enable_grad():
        return watch.look(run)


def _devices(module: nn.Module) -> list[torch.device]:
    device = next(module.parameters()).device
    return [device] if device.type == "cuda" else []
