"""The metric that makes flatness relative: κ = Tr(Hz·(K ⊗ G)).

With z = Wφ + b the Hessian of the loss with respect to W is Σ Hz[r, r'] ⊗ φ_r φ_r'ᵀ over rows r, r', so that

    κ = Σ_{s,s'} ⟨w_s, w_s'⟩ Tr H_{s,s'} = Σ_{r,r'} ⟨φ_r, φ_r'⟩ Tr(G·Hz[r, r']) = Tr(Hz·(K ⊗ G)),

G = WWᵀ and K = ΦΦᵀ. The simplified measure κ̂ = ‖W‖² Tr H (section 3.2) is the same with G = ‖W‖²·I. Where the samples
do not interact after the layer, Hz has a block for each and only the K of rows within a sample counts.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


class Metric(Protocol):
    """A positive semidefinite form on the space in which the tail begins, one block per sample."""

    def apply(self, u: Tensor) -> Tensor:
        """M·u for u of shape (n, k, P, d): k vectors for each sample."""

    def square(self, u: Tensor) -> Tensor:
        """⟨u, M·u⟩, (n, k): cheaper than applying M."""

    def diagonal(self) -> Tensor | None:
        """The diagonal of M, (n, P, d), if it is easily had."""


def gram(phi: Tensor, u: Tensor) -> Tensor:
    """K·u within each sample, K = ΦΦᵀ; phi (n, P, m), u (n, k, P, d). Whichever way round is cheaper."""
    _, positions, m = phi.shape
    if positions == 1:
        return phi.square().sum(-1)[:, None, :, None] * u
    if positions <= m:
        return (phi @ phi.mT).unsqueeze(1) @ u
    return phi.unsqueeze(1) @ (phi.mT.unsqueeze(1) @ u)


class Neurons:
    """G = WWᵀ, or ‖W‖²·I for the simplified measure; multiplied out only where that saves multiplications."""

    def __init__(self, weight: Tensor, simplified: bool) -> None:
        self.weight, self.simplified = weight, simplified
        self.d, self.m = weight.shape

    @cached_property
    def scale(self) -> Tensor:
        """‖W‖²."""
        return self.weight.square().sum()

    @cached_property
    def g(self) -> Tensor:
        """G itself."""
        if self.simplified:
            return self.scale * torch.eye(self.d, dtype=self.weight.dtype, device=self.weight.device)
        return self.weight @ self.weight.mT

    @cached_property
    def diagonal(self) -> Tensor:
        """G_ss."""
        return self.scale.expand(self.d) if self.simplified else self.weight.square().sum(1)

    @cached_property
    def distances(self) -> Tensor:
        """G_ss + G_tt − 2G_st: ‖w_s − w_t‖², or 2‖W‖² for the simplified measure."""
        diagonal = self.g.diagonal()
        return (diagonal + diagonal.unsqueeze(1)).sub(self.g, alpha=2)

    def pair(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """(a, b) with uGuᵀ = ⟨a, b⟩: (uW, uW) or (u, uG), whichever is cheaper."""
        if self.simplified:
            return self.scale * u, u
        rows = u.numel() // self.d
        if rows * self.m < self.d * (rows + self.m):
            u = u @ self.weight
            return u, u
        return u, u @ self.g

    def square(self, u: Tensor) -> Tensor:
        """uGuᵀ over the last dimension."""
        a, b = self.pair(u)
        return (a * b).sum(-1)

    def within(self, x: Tensor) -> Tensor:
        """x·G for x of shape (n, P, groups, channels in each), G cut to each group."""
        _, _, groups, size = x.shape
        if self.simplified or size == 1:
            return x * self.diagonal.view(groups, size)
        w = self.weight.view(groups, size, self.m)
        return torch.einsum("npgm,gsm->npgs", torch.einsum("npgs,gsm->npgm", x, w), w)

    def traces(self, groups: int) -> Tensor:
        """Tr G of each group."""
        return self.diagonal.view(groups, -1).sum(1)

    def sums(self, groups: int) -> Tensor:
        """1ᵀG1 of each group."""
        if self.simplified:
            return self.traces(groups)
        return self.weight.view(groups, -1, self.m).sum(1).square().sum(-1)


class Plain:
    """K ⊗ G: the tail begins at the layer's own output."""

    def __init__(self, phi: Tensor, neurons: Neurons) -> None:
        self.phi, self.neurons = phi, neurons

    def apply(self, u: Tensor) -> Tensor:
        """(K·u)·G."""
        return gram(self.phi, u) @ self.neurons.g

    def square(self, u: Tensor) -> Tensor:
        """⟨K·u, u·G⟩."""
        a, b = self.neurons.pair(u)
        return (gram(self.phi, a) * b).sum((2, 3))

    def diagonal(self) -> Tensor:
        """‖φ_ip‖²·G_ss."""
        return self.phi.square().sum(-1, keepdim=True) * self.neurons.diagonal
