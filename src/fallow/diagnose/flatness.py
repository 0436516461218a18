"""Relative flatness of every layer (FAM): exact where that is cheap, otherwise estimated with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, unknown
from fallow.base.seeds import mix
from fallow.diagnose.checks import refuse_mismatch, refuse_nonfinite
from fallow.diagnose.intervals import Probed, half_width
from fallow.evaluate.features import CHUNK, place
from fallow.evaluate.losses import Loss
from fallow.flatness import explain, relative_flatness
from fallow.weights.layers import execution_order, untouched

CHEAP = 64  # products with a Hessian for one chunk of examples: beyond this, probes estimate


@dataclass(frozen=True)
class LayerFlatness:
    """κ of one layer, and in which form it was computed."""

    kappa: Probed  # the interval is a point where the form is exact
    form: str
    exact: bool

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {"kappa": self.kappa.describe(), "form": self.form, "exact": self.exact}


@dataclass(frozen=True)
class Flatness:
    """What :func:`flatness` found, layer by layer in the order in which they run."""

    layers: dict[str, LayerFlatness]
    left_out: dict[str, str]  # layers that have no relative flatness, and why
    probes: int
    seed: int

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        layers = {path: layer.describe() for path, layer in self.layers.items()}
        return {"layers": layers, "left_out": dict(self.left_out), "probes": self.probes, "seed": self.seed}


def flatness(
    model: nn.Module,
    loss: str | Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    layers: Sequence[str] | None = None,
    probes: int = 10,
    seed: int = 0,
) -> Flatness:
    """κ = Σ_{s,s'} ⟨w_s, w_s'⟩ Tr H_{s,s'} of every linear layer and convolution, over all examples and in eval mode.

    H, and with it κ, is a mean over the examples, so chunks of them are averaged. A layer whose exact form would take
    many products with a Hessian is estimated by ``probes`` instead. See :func:`fallow.relative_flatness`.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> found = flatness(net, "cross_entropy", torch.randn(16, 4), torch.arange(16) % 3)
    >>> {path: layer.exact for path, layer in found.layers.items()}
    {'0': True, '2': True}
    """
    refuse_mismatch(inputs, targets)
    refuse_nonfinite(model)
    if probes < 2:
        raise RequestError(f"probes={probes} gives no interval: two or more would")
    known = [path for path, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d)]
    for name in layers or ():
        if name not in known:
            raise unknown("layer", name, known)
    order = execution_order(model, place(model, inputs[:1]))
    found: dict[str, LayerFlatness] = {}
    left_out: dict[str, str] = {}
    with untouched(model):
        model.eval()
        for path in sorted(known if layers is None else layers, key=lambda path: order[path]):
            try:
                found[path] = _layer(model, path, loss, inputs, targets, probes, seed)
            except RequestError as error:
                left_out[path] = str(error)
    if not found:
        first = next(iter(left_out.values()), "the model has no linear layer or convolution")
        raise RequestError(f"no layer has a relative flatness: {first}")
    return Flatness(found, left_out, probes, seed)


def _layer(
    model: nn.Module, path: str, loss: str | Loss, inputs: Tensor, targets: Tensor, probes: int, seed: int
) -> LayerFlatness:
    chunks = list(zip(inputs.split(CHUNK), targets.split(CHUNK), strict=True))
    choice = explain(model, path, place(model, chunks[0][0]), place(model, chunks[0][1]), loss)
    form = choice.form if choice.exact and choice.products <= CHEAP else "probe"
    generator = torch.Generator().manual_seed(mix(seed, 0))

    def mean() -> float:
        parts = [
            float(
                relative_flatness(
                    model, path, place(model, x), place(model, y), loss, form, generator=generator
                ).detach()
            )
            * (len(x) / len(inputs))
            for x, y in chunks
        ]
        return sum(parts)

    samples = np.array([mean() for _ in range(probes if form == "probe" else 1)])
    value, width = float(samples.mean()), half_width(samples) if form == "probe" else 0.0
    return LayerFlatness(Probed(value, value - width, value + width), form, form != "probe")
