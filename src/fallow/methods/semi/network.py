"""C(u; ω), a network that gives every image a weight: on its own, or on the classifier's trunk."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fallow import models
from fallow.base.errors import RequestError
from fallow.weights import redraw
from fallow.weights.layers import copied

HIDDEN = 64  # units between the classifier's features and the weight


class Confidence(nn.Module):
    """C(u; ω) = 2·sigmoid(h(u)), between 0 and 2, or h(u) itself where it is not ``bounded``.

    The last layer starts at a constant, so that all weights are 1 to begin with: what the thesis trains the network
    for is had exactly, and without a step. Where not (``even=False``), the weights are those of a random network.

    >>> network = Confidence(nn.Linear(4, 1), bounded=True)
    >>> network(torch.randn(3, 4)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, body: nn.Module, *, bounded: bool, even: bool = True) -> None:
        super().__init__()
        self.body, self.bounded = body, bounded
        last = [module for module in body.modules() if isinstance(module, nn.Linear)][-1]
        with torch.no_grad():
            if even:
                last.weight.zero_()
            last.bias.fill_(0.0 if bounded else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        """A weight for each image."""
        h = self.body(x).squeeze(1)
        return 2 * torch.sigmoid(h) if self.bounded else h


class Shared(nn.Module):
    """A small head on the features of the classifier, of which this holds a copy: see :meth:`follow`."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = copied(classifier).requires_grad_(False)
        last = find_head(self.classifier)[1]
        self.features: Tensor | None = None
        last.register_forward_pre_hook(self._take)
        self.head = nn.Sequential(nn.Linear(last.in_features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def _take(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.features = inputs[0]

    def follow(self, classifier: nn.Module) -> None:
        """Take over what the classifier has learned."""
        self.classifier.load_state_dict(classifier.state_dict())

    def train(self, mode: bool = True) -> Shared:
        """The classifier is only looked at."""
        super().train(mode)
        self.classifier.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """One number for each image."""
        with torch.no_grad():
            self.classifier(x)
        features, self.features = self.features, None
        assert features is not None
        return self.head(features)


def build(kind: str, classifier: nn.Module, init: Any, shape: tuple[int, ...], seed: int) -> nn.Module:
    """The body of a confidence network: a model's name, "shared", or "" for another of the classifier's kind."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "shared":
            return Shared(classifier)
        if kind:
            return models.build(kind, shape=shape, classes=1)
        body = copied(classifier)
        redraw(body, init=init, seed=seed)
        path, last = find_head(body)
        parent = body.get_submodule(path.rpartition(".")[0])
        setattr(parent, path.rpartition(".")[2], nn.Linear(last.in_features, 1))
        return body


def find_head(model: nn.Module) -> tuple[str, nn.Linear]:
    """The last linear layer, and its path."""
    linear = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear or not linear[-1][0]:
        raise RequestError("the classifier does not end in a linear layer, which a confidence network builds upon")
    return linear[-1]
