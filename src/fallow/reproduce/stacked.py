"""Many small networks trained as one: full-batch gradient descent on stacks of MLPs (LW, section 1.1).

The runs of one table share their shapes, so a layer of all of them is one batched product. The M runs on one
data set also share its inputs, so that the first layer, where most of the work is, is a product with M·32
columns instead of M products with 32. The backward pass is written out: three products, one softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

Init = Callable[[int, int], float]  # the standard deviation of a layer's weights from its fan-in and fan-out

INITS: dict[str, Init] = {
    "he": lambda fan_in, fan_out: (2 / fan_in) ** 0.5,
    "xavier": lambda fan_in, fan_out: (2 / (fan_in + fan_out)) ** 0.5,
}


@dataclass
class Stack:
    """D data sets × M networks: x is D×N×F, y is D×N, weights[l] is D×M×in×out, biases[l] is D×M×1×out.

    ``mean`` and ``std`` (layers × D × M) are LW's fixed normalisations, behind every layer, the identity at
    the start. ``inits`` names the initialisation of each of the M networks.
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]
    inits: list[str]
    generator: torch.Generator
    weights: list[Tensor] = field(init=False)
    biases: list[Tensor] = field(init=False)
    norms: list[Tensor] = field(init=False)  # at initialisation: layers of D×M
    mean: Tensor = field(init=False)
    std: Tensor = field(init=False)

    def __post_init__(self) -> None:
        data, nets, layers = len(self.x), len(self.inits), len(self.sizes) - 1
        self.weights = [self.draw(layer) for layer in range(layers)]
        # the first layer's weights lie in memory as D×in×M×out: one matrix a data set
        self.weights[0] = self.weights[0].transpose(1, 2).contiguous().transpose(1, 2)
        self.biases = [torch.zeros(data, nets, 1, out) for out in self.sizes[1:]]
        self.norms = [weight.flatten(2).norm(dim=2) for weight in self.weights]
        self.mean = torch.zeros(layers, data, nets)
        self.std = torch.ones(layers, data, nets)
        self.targets = functional.one_hot(self.y, self.sizes[-1]).to(self.x).unsqueeze(1)  # D×1×N×C

    def draw(self, layer: int) -> Tensor:
        """Fresh weights for one layer of all networks."""
        fan_in, fan_out = self.sizes[layer], self.sizes[layer + 1]
        std = torch.tensor([INITS[init](fan_in, fan_out) for init in self.inits]).view(1, -1, 1, 1)
        return torch.randn(len(self.x), len(self.inits), fan_in, fan_out, generator=self.generator) * std

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """What the hidden layers give before their fixed normalisation, D×M×N×out each, and the logits.

        A normalisation is folded into the weights that follow it: ((h − μ)/σ)·W + b = h·(W/σ) + (b − μ/σ·ΣW).
        """
        data, nets, into, out = self.weights[0].shape
        joint = self.weights[0].transpose(1, 2).reshape(data, into, nets * out)
        bias = self.biases[0].transpose(1, 2).reshape(data, 1, nets * out)
        z = torch.baddbmm(bias, x, joint).view(data, -1, nets, out).transpose(1, 2)
        hidden = []
        for layer in range(1, len(self.weights)):
            hidden.append(z.clamp_min(0).contiguous())
            weight = self.weights[layer] / _wide(self.std[layer - 1])
            shift = self.biases[layer] - _wide(self.mean[layer - 1]) * weight.sum(2, keepdim=True)
            z = torch.baddbmm(shift.flatten(0, 1), hidden[-1].flatten(0, 1), weight.flatten(0, 1))
            z = z.view(data, nets, *z.shape[1:])
        return hidden, (z - _wide(self.mean[-1])) / _wide(self.std[-1])

    def gradients(self, penalty: Tensor | None = None) -> list[Tensor]:
        """Of the mean cross-entropy, plus ``penalty`` (one for each of the M) times Σw²; like ``parameters``."""
        hidden, logits = self.forward(self.x)
        upstream = logits.softmax(3).sub_(self.targets).div_(_wide(self.std[-1]) * self.x.shape[1])
        found: list[Tensor] = []
        for layer in reversed(range(len(self.weights))):
            total = upstream.sum(2, keepdim=True)  # of the bias
            if layer:
                mean, std = _wide(self.mean[layer - 1]), _wide(self.std[layer - 1])
                gradient = (hidden[layer - 1].transpose(2, 3) @ upstream - mean * total) / std
                upstream = upstream @ (self.weights[layer] / std).transpose(2, 3)
                upstream.mul_(hidden[layer - 1].sign())  # the ReLU's slope: what it gave is 0 or above
            else:
                data, nets, n, out = upstream.shape
                joint = upstream.transpose(1, 2).reshape(data, n, nets * out)
                gradient = (self.x.transpose(1, 2) @ joint).view(data, -1, nets, out).transpose(1, 2)
            if penalty is not None:
                gradient = gradient + 2 * penalty.view(1, -1, 1, 1) * self.weights[layer]
            found += [total, gradient]
        return found[::-1]

    @property
    def parameters(self) -> list[Tensor]:
        """Weights and biases, layer by layer."""
        return [tensor for pair in zip(self.weights, self.biases, strict=True) for tensor in pair]

    def train(self, steps: int, rate: float, penalty: Tensor | None = None, adam: bool = False) -> None:
        """Full-batch gradient descent, or Adam started afresh."""
        update = torch.optim.Adam(self.parameters, lr=rate) if adam else torch.optim.SGD(self.parameters, lr=rate)
        for _ in range(steps):
            for parameter, gradient in zip(self.parameters, self.gradients(penalty), strict=True):
                parameter.grad = gradient
            update.step()

    def accuracy(self, x: Tensor, y: Tensor) -> Tensor:
        """D×M accuracies."""
        return (self.forward(x)[1].argmax(3) == y.unsqueeze(1)).double().mean(2)

    # ---- what the methods do between rounds; ``which`` are positions among the M networks -------------------

    def redraw(self, layer: int, which: list[int], mask: Tensor | None = None) -> None:
        """Fresh weights, everywhere or under a mask (D×len(which)×in×out); a whole layer loses its bias too."""
        fresh, old = self.draw(layer)[:, which], self.weights[layer][:, which]
        self.weights[layer][:, which] = fresh if mask is None else torch.where(mask, fresh, old)
        if mask is None:
            self.biases[layer][:, which] = 0

    def rescale(self, layer: int, which: list[int]) -> None:
        """W ← (s / ‖W‖)·W."""
        weight = self.weights[layer][:, which]
        size = weight.flatten(2).norm(dim=2)
        self.weights[layer][:, which] = weight * _wide(self.norms[layer][:, which] / size)

    def normalise(self, layer: int, which: list[int]) -> None:
        """μ and σ of the layer's output over the whole batch become its fixed normalisation."""
        self.mean[layer][:, which], self.std[layer][:, which] = 0.0, 1.0
        hidden, logits = self.forward(self.x)
        z = [*hidden, logits][layer][:, which].flatten(2)
        self.mean[layer][:, which], self.std[layer][:, which] = z.mean(2), z.std(2, correction=0)


def _wide(values: Tensor) -> Tensor:
    """D×M against D×M×N×out."""
    return values[:, :, None, None]
