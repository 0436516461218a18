"""MuMoMAML's modulation: a task's embedding scales and shifts what its layers give (Vuorio et al. 2019).

    υ = mean over the support set of h(x, y),   τ_i = g_i(υ),   layer i gives  FiLM: (1 + τ_γ)·z + τ_β,  or  τ·z

τ is found once for a task, and stays while the inner loop adapts θ beneath it. Scaling and shifting what a layer gives
is the same as scaling its kernels and its bias (or those of the norm that follows it), and shifting the bias: so the
modulation is a function of the parameters, and any model can be modulated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fallow.adaptation.objective import Params
from fallow.base.errors import RequestError
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order, is_norm, join, layers

KINDS = ("film", "sigmoid", "softmax")
SCALE, SHIFT = "/scale", "/shift"  # after a layer's path: no name of a parameter


def modulate(params: Params) -> Params:
    """The parameters with which a modulated network computes; what modulates them lies among them, and is left out.

    >>> found = modulate({"0.weight": torch.ones(2, 3), "0.bias": torch.ones(2), "0/scale": torch.tensor([2.0, 3.0]),
    ...                   "0/shift": torch.ones(2)})
    >>> found["0.weight"][:, 0], found["0.bias"]
    (tensor([2., 3.]), tensor([3., 4.]))
    """
    found = {name: p for name, p in params.items() if "/" not in name}
    for key, scale in params.items():
        if key.endswith(SCALE):
            path = key.removesuffix(SCALE)
            weight, bias = join(path, "weight"), join(path, "bias")
            found[weight] = scale.view(-1, *[1] * (found[weight].ndim - 1)) * found[weight]
            if bias in found:
                found[bias] = scale * found[bias]
                if path + SHIFT in params:
                    found[bias] = found[bias] + params[path + SHIFT]
    return found


def modulated(model: nn.Module) -> dict[str, int]:
    """The layers that can be modulated, by path, and how many numbers each gives; all but the head.

    Of a layer and the norm that follows it, the norm.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    >>> modulated(net)
    {'1': 4}
    """
    head = head_of(model, execution_order(model))
    names = {name for name, _ in model.named_parameters()}
    found: list[tuple[str, int]] = []
    for path, module in layers(model).items():
        weight = getattr(module, "weight", None)
        if path == head or not isinstance(weight, nn.Parameter) or not weight.requires_grad:
            continue
        if join(path, "weight") not in names:
            raise RequestError(f"mumomaml cannot modulate {path!r}: its weights are another layer's too")
        if is_norm(module) and found:
            found.pop()
        found.append((path, len(weight)))
    return dict(found)


class Encoder(nn.Module):
    """υ of a task: the mean over its support examples of what a small network says of each, and of its answer.

    The mean does not hang on the order of the examples; the public code reads curves by a recurrent network.
    """

    def __init__(self, first: nn.Module, answers: int, width: int) -> None:
        super().__init__()
        self.answers = answers
        self.body: nn.Module
        if isinstance(first, nn.Conv2d):
            convolutions = [nn.Conv2d(c, width, 3, stride=2, padding=1) for c in (first.in_channels, width, width)]
            parts = [part for conv in convolutions for part in (conv, nn.ReLU())]
            self.body, seen = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten()), width
        elif isinstance(first, nn.Linear):
            self.body, seen = nn.Flatten(), first.in_features
        else:
            kind = type(first).__name__
            raise RequestError(f"mumomaml knows tasks of vectors and images: the model begins with a {kind}")
        self.join = nn.Sequential(nn.Linear(seen + answers, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """υ (width,) of a task."""
        seen = self.body(x)
        if not y.is_floating_point():
            y = (y[:, None] == torch.arange(self.answers, device=y.device)).to(seen.dtype)
        return self.join(torch.cat([seen, y.reshape(len(y), -1).to(seen.dtype)], 1)).mean(0)


class Modulator(nn.Module):
    """From the support set of a task to τ, as entries that :func:`modulate` knows.

    FiLM starts without any effect, at MAML: the last layers start at 0.
    """

    def __init__(self, model: nn.Module, kind: str, width: int) -> None:
        super().__init__()
        self.kind, self.sizes = kind, modulated(model)
        if not self.sizes:
            raise RequestError("mumomaml finds nothing to modulate: the model has no layer before its head")
        order = [module for module in layers(model).values() if not is_norm(module)]
        head = model.get_submodule(head_of(model, execution_order(model)))
        weight = head.weight
        assert isinstance(weight, Tensor)
        self.encoder = Encoder(order[0], len(weight), width)
        total = sum(self.sizes.values()) * (2 if kind == "film" else 1)
        self.generator = nn.Linear(width, total)
        if kind == "film":
            nn.init.zeros_(self.generator.weight)
            nn.init.zeros_(self.generator.bias)

    def forward(self, x: Tensor, y: Tensor) -> Params:
        """τ of a task."""
        raw = self.generator(self.encoder(x, y))
        sizes = list(self.sizes.values())
        if self.kind == "film":
            scales, shifts = raw.tensor_split(2)
            found = {path + SCALE: 1 + part for path, part in zip(self.sizes, scales.split(sizes), strict=True)}
            return found | {path + SHIFT: part for path, part in zip(self.sizes, shifts.split(sizes), strict=True)}
        gate = torch.sigmoid if self.kind == "sigmoid" else lambda part: part.softmax(-1)
        return {path + SCALE: gate(part) for path, part in zip(self.sizes, raw.split(sizes), strict=True)}
