"""A multilayer perceptron: flatten, perhaps embed every number, hidden layers, head."""

from __future__ import annotations

import math

from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.models.base import Model
from fallow.models.blocks import norm_layer, sequential
from fallow.models.periodic import Periodic


class MLP(Model):
    """Fully connected layers of the given widths, each followed by a norm and ReLU.

    With ``embed``, every input becomes so many functions of it (:class:`fallow.models.periodic.Periodic`).

    >>> MLP((128,), 8, hidden=(32, 32)).blocks
    ('hidden1', 'hidden2')
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        hidden: tuple[int, ...] = (128, 128),
        norm: str = "none",
        embed: int | None = None,
        init: str = "he",
    ) -> None:
        super().__init__(init)
        width = math.prod(shape)
        if not shape or width < 1:
            raise RequestError(f"mlp cannot take shape {tuple(shape)}: every size should be at least 1")
        self.flatten = nn.Flatten()
        self.embedding = nn.Identity() if embed is None else Periodic(width, embed)
        width *= embed or 1
        self.blocks = tuple(f"hidden{i}" for i in range(1, len(hidden) + 1))
        for name, size in zip(self.blocks, hidden, strict=True):
            linear = nn.Linear(width, size, bias=norm == "none")  # a norm has a bias of its own
            self.add_module(name, sequential(linear=linear, norm=norm_layer(norm, size, 0), relu=nn.ReLU()))
            width = size
        self.head = nn.Linear(width, classes)
        self.start()

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch of inputs of any shape."""
        x = self.embedding(self.flatten(x))
        for block in self.blocks:
            x = self.get_submodule(block)(x)
        return self.head(x)
