"""Products with second derivatives: one double backward each, and none for what is diagonal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from fallow.base.errors import RequestError, WorkError, first_line
from fallow.weights.layers import unfused

Loss = Tensor | Callable[[], Tensor]
Slopes = Sequence[Tensor | None]  # a gradient, with None where a loss does not depend on a tensor


class Operator:
    """v ↦ A·v = apply(v) + diagonal ⊙ v for a symmetric A; it counts its products.

    >>> A = Operator(lambda v: 2 * v, torch.tensor([0.0, 1.0]))
    >>> A(torch.ones(2)), A.products
    (tensor([2., 3.]), 1)
    """

    def __init__(self, apply: Callable[[Tensor], Tensor], diagonal: Tensor | None = None) -> None:
        self.apply, self.diagonal = apply, diagonal
        self.products = 0

    def __call__(self, v: Tensor) -> Tensor:
        product = self.without_diagonal(v)
        return product if self.diagonal is None else product.addcmul_(self.diagonal, v)

    def without_diagonal(self, v: Tensor) -> Tensor:
        """The part that takes work."""
        self.products += 1
        return self.apply(v)

    def horner(self, x: Tensor, b: Tensor, alpha: float, damping: float) -> Callable[[], None]:
        """The step x ← b + (I − α(A + ρI))·x, in place, to be taken again and again."""

        def step() -> None:
            x.sub_(self(x).add_(x, alpha=damping), alpha=alpha).add_(b)

        return step

    def finite(self, number: Tensor) -> float:
        """A number that the last product went into, and with it every entry of the product, is finite."""
        value = float(number)
        if not math.isfinite(value):
            raise WorkError(
                f"Hessian product {self.products} is not finite: look at the weights, and in the training loss for "
                "something without a second derivative, like the root of 0"
            )
        return value


class Gradient:
    """∂L_T/∂w with its graph, to be differentiated once more by w or by λ.

    The loss is the sum of its chunks: scalars with a graph, or functions that give one. A single function is called
    once and its graph kept; of several, each is called again for every product, so that only one graph is in memory.
    """

    def __init__(self, chunks: Sequence[Loss], params: Sequence[Tensor]) -> None:
        self.params, self.chunks = params, chunks
        keep = [i for i, chunk in enumerate(chunks) if len(chunks) == 1 or isinstance(chunk, Tensor)]
        self.kept = {i: self.take(i) for i in keep}
        self.losses: list[float] = []
        self.slopes: Slopes = [None] * len(params)  # of all chunks, without a graph
        for loss, slopes in self.graphs():
            self.losses.append(float(loss))
            self.slopes = add(self.slopes, [None if s is None else s.detach() for s in slopes])

    def take(self, index: int) -> tuple[Tensor, Slopes]:
        """One chunk and its gradient."""
        with unfused():
            loss = scalar(self.chunks[index], "training")
        try:
            return loss.detach(), differentiate(loss, self.params, graph=True)
        except RuntimeError as error:
            if "second time" not in str(error):
                raise
            raise RequestError("the graph of the training loss is gone: give a function that computes it") from error

    def graphs(self) -> Iterator[tuple[Tensor, Slopes]]:
        """The chunks and their gradients, one after another."""
        for index in range(len(self.chunks)):
            yield self.kept[index] if index in self.kept else self.again(index)

    def again(self, index: int) -> tuple[Tensor, Slopes]:
        """A chunk that was not kept; one that changes would give products with no Hessian at all."""
        loss, slopes = self.take(index)
        if index < len(self.losses) and abs(float(loss) - self.losses[index]) > 1e-3 * abs(self.losses[index]):
            raise RequestError(
                f"chunk {index} of the training loss was {self.losses[index]:.4g} and is {float(loss):.4g} when called "
                "again: it must not change (switch dropout off)"
            )
        return loss, slopes

    def product(self, v: Sequence[Tensor], by: Sequence[Tensor]) -> Slopes:
        """∂(v · ∂L_T/∂w)/∂by: a row of the Hessian for ``by`` the parameters, of the mixed derivative for λ."""
        total: Slopes = [None] * len(by)
        for _, slopes in self.graphs():
            pairs = [(s, x) for s, x in zip(slopes, v, strict=True) if s is not None and s.requires_grad]
            if pairs:  # a loss that is linear in w has no second derivative
                first, along = zip(*pairs, strict=True)
                total = add(total, differentiate(first, by, along, keep=True))
        return total


def differentiate(
    of: Tensor | Sequence[Tensor],
    by: Sequence[Tensor],
    along: Sequence[Tensor] | None = None,
    *,
    keep: bool = False,
    graph: bool = False,
) -> Slopes:
    """∂(along · of)/∂by, with None for what does not depend on it or has no gradient."""
    live = [t for t in by if t.requires_grad]
    if not live:
        return [None] * len(by)
    try:
        found = iter(torch.autograd.grad(of, live, along, keep or graph, create_graph=graph, allow_unused=True))
    except RuntimeError as error:
        if not str(error).startswith("derivative for"):
            raise
        raise RequestError(f"the loss has no second derivatives that torch can take: {first_line(error)}") from error
    return [next(found) if t.requires_grad else None for t in by]


def add(first: Slopes, second: Slopes) -> Slopes:
    """The sum of two gradients."""
    return [b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)]


def scalar(loss: Loss, which: str) -> Tensor:
    """The loss as a finite scalar with a graph."""
    with torch.enable_grad():
        found = loss if isinstance(loss, Tensor) else loss()
    if not isinstance(found, Tensor) or found.numel() != 1:
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise RequestError(f"the {which} loss is {what}: it must be a scalar with a graph, or a function giving one")
    if not found.requires_grad:
        raise RequestError(f"the {which} loss has no graph: compute it from the parameters without detaching them")
    if not math.isfinite(value := float(found.detach())):
        raise WorkError(f"the {which} loss is {value}: there is no gradient to take")
    return found


def flat(tensors: Slopes, like: Sequence[Tensor]) -> Tensor:
    """The tensors as one vector, zeros where there is none."""
    pairs = zip(tensors, like, strict=True)
    return torch.cat([(torch.zeros_like(p) if t is None else t).reshape(-1) for t, p in pairs])


def shaped(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A vector as tensors of these shapes."""
    return [part.view_as(p) for part, p in zip(vector.split([p.numel() for p in like]), like, strict=True)]
