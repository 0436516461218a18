"""Dropout in any model, without touching it (Srivastava et al. 2014)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn
from torch.nn import functional

from fallow.base.errors import RequestError, unknown
from fallow.core.context import Context
from fallow.core.method import Method
from fallow.core.ranges import linear
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order, refuse_compiled


@dataclass(eq=False)
class Dropout(Method):
    """In training, a random share of a layer's inputs is 0, and the others make up for it.

    Srivastava et al. 2014, section 4::

        x̃ = m ⊙ x / (1 − rate),    m ~ Bernoulli(1 − rate)

    The layer is the head, or every fully connected one. It comes on top of dropout that the model has itself.
    The hooks that drop are on the model only while it predicts for training: whatever happens in between, also
    an interruption, the model is plain.
    """

    name = "dropout"
    summary = "a random share of the head's inputs (or of every fully connected layer's) is 0 in training"
    ranges: ClassVar = {"rate": linear(0.05, 0.6)}

    rate: float = 0.25
    where: str = "head"  # or "dense": every fully connected layer

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise RequestError(f"rate is {self.rate}: it must be from 0 to below 1")
        if self.where not in ("head", "dense"):
            raise unknown("value for where", self.where, ("head", "dense"))

    def begin(self, ctx: Context) -> None:
        refuse_compiled(ctx.model, self.name)
        x, _ = next(iter(ctx.train.ordered()))
        head = ctx.model.get_submodule(head_of(ctx.model, execution_order(ctx.model, x[:2])))
        connected: list[nn.Module] = [module for module in ctx.model.modules() if isinstance(module, nn.Linear)]
        self.layers = [head] if self.where == "head" else connected or [head]

    @contextmanager
    def forward(self, ctx: Context) -> Iterator[None]:
        """Inside, the layers drop."""
        handles = [layer.register_forward_pre_hook(self.drop) for layer in self.layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def drop(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The layer's inputs, of which the first is thinned out in training."""
        return functional.dropout(inputs[0], self.rate, layer.training), *inputs[1:]
