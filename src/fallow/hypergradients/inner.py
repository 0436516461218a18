"""The training loss at its present weights, as far as a hypergradient must know it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fallow.hypergradients.penalty import Penalty
from fallow.hypergradients.products import Gradient, Loss, Operator, Slopes, add, flat, shaped


class Inner(Operator):
    """L_T = the sum of its chunks + a penalty in closed form, averaged over processes where there are several.

    Called with a vector it gives the product with H = ∂²L_T/∂w².
    """

    def __init__(
        self,
        chunks: Sequence[Loss],
        weights: Sequence[Tensor],
        penalty: Penalty | None = None,
        mean: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        data = Gradient(chunks, weights)
        averaged = mean or (lambda vector: vector)

        def apply(v: Tensor) -> Tensor:  # knows nothing of self: a cycle would keep the graph alive
            return averaged(flat(data.product(shaped(v, weights), weights), weights))

        self.data, self.weights, self.penalty, self.averaged, self.shared = data, weights, penalty, averaged, bool(mean)
        self.loss = math.fsum(data.losses)  # of this process, without the penalty
        slopes = data.slopes if mean is None else shaped(mean(flat(data.slopes, weights)), weights)
        diagonal = None
        if penalty is not None:
            exact = penalty.at(weights)
            diagonal, self.closed = flat(exact.diagonal, weights), exact.mixed
            slopes = [g if s is None else g.add_(s) for g, s in zip(exact.gradient, slopes, strict=True)]
        self.gradient_norm = math.hypot(*(float(s.norm()) for s in slopes if s is not None))
        super().__init__(apply, diagonal)

    @property
    def idle(self) -> list[int]:
        """The weights that do not enter."""
        return [] if self.penalty is not None else [i for i, slope in enumerate(self.data.slopes) if slope is None]

    def horner(self, x: Tensor, b: Tensor, alpha: float, damping: float) -> Callable[[], None]:
        """The step as b + (1 − α(d + ρ)) ⊙ x − α·∂²L/∂w²·x, d the diagonal, with few passes over memory.

        For a small network these take as long as its arithmetic.
        """
        if self.diagonal is None or self.shared:
            return super().horner(x, b, alpha, damping)
        shrink = torch.rsub(self.diagonal, 1 - alpha * damping, alpha=alpha)
        places, factors, terms = (shaped(vector, self.weights) for vector in (x, shrink, b))

        def step() -> None:
            self.products += 1
            slopes = self.data.product(places, self.weights)
            for place, factor, term, slope in zip(places, factors, terms, slopes, strict=True):
                torch.addcmul(term, factor, place, out=place)
                if slope is not None:
                    place.sub_(slope, alpha=alpha)

        return step

    def mixed(self, x: Tensor, knobs: Sequence[Tensor]) -> Slopes:
        """x·∂²L_T/∂w∂λ for every hyperparameter, of this process."""
        along = shaped(x, self.weights)
        found = self.data.product(along, knobs)
        if self.penalty is None:
            return found
        parts = dict(zip(map(id, self.penalty.hyperparams), self.closed(along), strict=True))
        return add(found, [parts.get(id(knob)) for knob in knobs])
