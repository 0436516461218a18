"""Exact products with the Hessian of the tail: κ = Tr(Hz·(K ⊗ G)) by as few directions as span K ⊗ G.

Where samples are independent, one product serves the whole batch, so that a linear layer takes min(d, m) of them: along
every neuron, contracted with the rows of G, or along every column of W. A layer with P positions takes min(P, m) times
as many, and one after which samples interact min(nP, m) times as many.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fallow.flatness.graph import derivative
from fallow.flatness.observation import Observation


def tail(seen: Observation) -> Tensor:
    """κ by products with the Hessian of the tail."""
    seen = cheaper(seen)
    first = seen.gradient
    value = seen.rows.phi.new_zeros(())
    for along, against in directions(seen):
        product = derivative(first, seen.site, seen.rows.back(along), like=first)
        value = value + (against * seen.rows.of(product)).sum()
    if seen.normed:
        value = value + seen.norm.curvature(seen.rows.of(first), seen.neurons)
    return value


def cheaper(seen: Observation) -> Observation:
    """The tail from where it takes fewer products: after the normalisation, or from the layer's own output."""
    if not seen.normed:
        return seen
    other = seen.without_norm()
    return other if products(other) < products(seen) else seen


def products(seen: Observation) -> int:
    """How many products the tail of this pass takes."""
    rows = seen.rows
    if seen.normed:
        return rows.positions * rows.d
    places = rows.positions * (rows.n if seen.coupled else 1)
    return min(places, rows.m) * _neurons(seen)


def _neurons(seen: Observation) -> int:
    return seen.rows.d if seen.simplified else min(seen.rows.d, seen.rows.m)


def directions(seen: Observation) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs (e, e') of shape (n, P, d) with Tr(Hz·M) = Σ ⟨e', Hz e⟩."""
    rows, g = seen.rows, seen.neurons.g
    if seen.normed:
        unit = g.new_zeros(rows.n, rows.positions, rows.d)
        for p in range(rows.positions):
            for s in range(rows.d):
                e = unit.clone()
                e[:, p, s] = 1
                yield e, seen.metric.apply(e.unsqueeze(1)).squeeze(1)
        return
    if _neurons(seen) == rows.d:
        neurons = list(zip(torch.eye(rows.d, dtype=g.dtype, device=g.device), g, strict=True))
    else:
        neurons = [(w, w) for w in rows.weight.T]
    for a, b in places(rows.phi, seen.coupled):
        for e, f in neurons:
            yield a.unsqueeze(-1) * e, b.unsqueeze(-1) * f


def places(phi: Tensor, coupled: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs (a, a') of shape (n, P) with K = Σ a a'ᵀ: columns of Φ, or single rows against rows of K."""
    n, positions, m = phi.shape
    if m < positions * (n if coupled else 1):
        yield from ((column, column) for column in phi.unbind(-1))
        return
    for p in range(positions):
        if coupled:
            for i in range(n):
                a = phi.new_zeros(n, positions)
                a[i, p] = 1
                yield a, phi @ phi[i, p]
        else:
            a = phi.new_zeros(n, positions)
            a[:, p] = 1
            yield a, (phi @ phi[:, p, :, None]).squeeze(-1)
