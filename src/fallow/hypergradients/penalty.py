"""Penalties whose Hessian is diagonal: their part of every product is one multiplication, not a double backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError


class Derivatives(NamedTuple):
    """Of a penalty P(w, λ), at the present w and λ."""

    gradient: Sequence[Tensor]  # ∂P/∂w, in memory that may be written to
    diagonal: Sequence[Tensor]  # of ∂²P/∂w², which is 0 elsewhere
    mixed: Callable[[Sequence[Tensor]], Sequence[Tensor]]  # x ↦ Σ x·∂²P/∂w∂λ, for every hyperparameter


class Penalty(Protocol):
    """A term of the training loss in closed form."""

    hyperparams: Sequence[Tensor]

    def at(self, params: Sequence[Tensor]) -> Derivatives:
        """Its derivatives."""


class SquaredDecay:
    """P = Σ (softplus(λ) ⊙ w)² (thesis, section 3.3): a weight decay of 2·softplus(λ)², always positive.

    ``hyperparams`` holds a tensor for every parameter: of its shape for a decay per weight, a scalar for one per
    tensor. Where several parameters share one, ``owner`` says which belongs to which; None has no decay.

    >>> w, raw = torch.tensor([3.0]), torch.tensor(0.0)
    >>> decay = SquaredDecay([raw])
    >>> decay([w]), decay.at([w]).gradient, decay.rates()  # softplus(0) = log 2
    (tensor(4.3241), [tensor([2.8827])], [tensor(0.9609)])
    """

    def __init__(self, hyperparams: Sequence[Tensor], owner: Sequence[int | None] | None = None) -> None:
        self.hyperparams = hyperparams
        self.owner: list[int | None] = list(range(len(hyperparams))) if owner is None else list(owner)
        named = {i for i in self.owner if i is not None}
        if named != set(range(len(hyperparams))):
            raise RequestError(f"owner names {sorted(named)}: each of 0 to {len(hyperparams) - 1} must occur")

    def __call__(self, params: Sequence[Tensor]) -> Tensor:
        """P itself, with a graph: for a loop that differentiates everything."""
        scales = [functional.softplus(raw) for raw in self.hyperparams]
        each = [(scales[i], w) for i, w in zip(self.owner, params, strict=True) if i is not None]
        return torch.stack([(scale * w).square().sum() for scale, w in each]).sum()

    @torch.no_grad()
    def rates(self) -> list[Tensor]:
        """2·softplus(λ)² for each parameter: what an optimiser calls weight decay."""
        found = [2 * functional.softplus(raw).square() for raw in self.hyperparams]
        return [found[0].new_zeros(()) if i is None else found[i] for i in self.owner]

    @torch.no_grad()
    def at(self, params: Sequence[Tensor]) -> Derivatives:
        """2·s² ⊙ w, 2·s², and x ↦ Σ 4·s·s' ⊙ w ⊙ x, with s = softplus(λ) and s' = sigmoid(λ)."""
        scales = [functional.softplus(raw) for raw in self.hyperparams]
        weights = [w.detach() for w in params]

        @torch.no_grad()
        def mixed(x: Sequence[Tensor]) -> list[Tensor]:
            found: dict[int, Tensor] = {}
            for i, w, along in zip(self.owner, weights, x, strict=True):
                if i is None:
                    continue
                part = (w * along).sum_to_size(scales[i].shape)
                found[i] = found[i].add_(part) if i in found else part
            # in place: there may be one for every weight
            return [found[i].mul_(torch.sigmoid(r)).mul_(scales[i]).mul_(4) for i, r in enumerate(self.hyperparams)]

        each = list(zip(self.rates(), weights, strict=True))
        return Derivatives([rate * w for rate, w in each], [rate.expand_as(w) for rate, w in each], mixed)


def inverse_softplus(value: float) -> float:
    """The λ with softplus(λ) = value.

    >>> round(inverse_softplus(0.6931472), 6), inverse_softplus(1000.0)
    (0.0, 1000.0)
    """
    return value + math.log(-math.expm1(-value))  # log(eˣ − 1), for large x too
