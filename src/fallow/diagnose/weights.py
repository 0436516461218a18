"""The size of the weights (LW, appendix D and figure 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.diagnose.checks import refuse_nonfinite
from fallow.evaluate.features import CHUNK, place
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order, has_matrix, layers, untouched


@dataclass(frozen=True)
class WeightSize:
    """‖Φ‖_F ‖W‖_F with the head's inputs Φ, a row for each example of a sample, and its weight W."""

    head: str  # the path of the classifier head
    activations: float  # ‖Φ‖_F
    weight: float  # ‖W‖_F, without the bias
    sample: int
    seed: int

    @property
    def size(self) -> float:
        """The product of the two, as in appendix D."""
        return self.activations * self.weight

    @property
    def per_example(self) -> float:
        """The same for one example (root mean square), which does not grow with the sample."""
        return self.size / math.sqrt(self.sample)

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        names = ("size", "per_example", "head", "activations", "weight", "sample", "seed")
        return {name: getattr(self, name) for name in names}


@torch.no_grad()
def weight_size(model: nn.Module, inputs: Tensor, *, sample: int = 256, seed: int = 0) -> WeightSize:
    """The product of the norms of the classifier head's input and of its weight, which counts norms layers in.

    Norm layers undo the scale of the layers before them, so that the product of all layers' norms in margin bounds
    says little; appendix D takes the norm of what arrives at the head instead, for a random sample of 256 training
    examples.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> found = weight_size(net, torch.randn(100, 3))
    >>> found.head, found.sample
    ('2', 100)
    """
    if len(inputs) == 0 or sample < 1:
        raise RequestError(f"a sample of {min(sample, len(inputs))} examples has no norm: give at least one")
    refuse_nonfinite(model)
    if not any(has_matrix(layer) for layer in layers(model).values()):
        raise RequestError("the model has no layer with a weight matrix, so no classifier head")
    path = head_of(model, execution_order(model, place(model, inputs[:1])))
    head = model.get_submodule(path)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(inputs), generator=generator)[:sample]
    arrived: list[Tensor] = []

    def note(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        arrived.append(arguments[0].double().square().sum())

    handle = head.register_forward_pre_hook(note)
    try:
        with untouched(model):
            model.eval()
            for some in chosen.split(CHUNK):
                model(place(model, inputs[some]))
    finally:
        handle.remove()
    matrices = [weight for weight in head._parameters.values() if weight is not None and weight.ndim >= 2]
    weight = math.sqrt(sum(float(matrix.double().square().sum()) for matrix in matrices))
    return WeightSize(path, math.sqrt(float(torch.stack(arrived).sum())), weight, len(chosen), seed)
