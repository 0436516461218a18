"""An estimate without bias from one product with the Hessian: κ = E⟨V, H·V⟩ with V = WΞ, Ξ random signs (m × m).

Since E[vec V vec Vᵀ] = G ⊗ I, any network and any layer will do. Where samples are independent and the layer has one
position, every sample gets its own v_i = Wξ_i, which is cheaper and spreads less: κ = E Σ_i ‖φ_i‖² v_iᵀ Hz_i v_i. A
tail that is linear but for kinks is passed once, forward, and not there and back (forward.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.flatness.forward import squares
from fallow.flatness.graph import derivative
from fallow.flatness.observation import Observation


def probe(seen: Observation, probes: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """The mean of so many estimates of κ."""
    rows, edge = seen.rows, seen.seen.edge
    if _apart(seen) and not seen.normed and seen.kinked:
        return squares(seen, torch.stack([_own(seen, generator)[0] for _ in range(probes)])) / probes
    first = derivative(seen.loss, edge)
    value = rows.phi.new_zeros(())
    for _ in range(probes):
        along, against = _own(seen, generator) if _apart(seen) else _shared(seen, generator)
        product = derivative(first, edge, rows.back(along), like=first)
        value = value + (against * rows.of(product)).sum()
    return value / probes


def _apart(seen: Observation) -> bool:
    """Whether every sample can have a probe of its own."""
    through_batch = seen.normed and seen.norm.scope == "batch"
    return seen.rows.positions == 1 and not seen.coupled and not through_batch


def _own(seen: Observation, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    rows = seen.rows
    if seen.simplified:
        along = rows.weight.norm() * _signs((rows.n, 1, rows.d), rows.phi, generator)
    else:
        along = _signs((rows.n, 1, rows.m), rows.phi, generator) @ rows.weight.mT
    return along, rows.phi.square().sum(-1, keepdim=True) * along


def _shared(seen: Observation, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    rows = seen.rows
    if seen.simplified:
        v = rows.weight.norm() * _signs((rows.d, rows.m), rows.phi, generator)
    else:
        v = rows.weight @ _signs((rows.m, rows.m), rows.phi, generator)
    along = rows.phi @ v.mT
    return along, along


def _signs(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    device = like.device if generator is None else generator.device
    return torch.randint(2, shape, generator=generator, device=device).to(like) * 2 - 1
