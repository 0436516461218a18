"""A normalisation right after the layer, by the second-order chain rule instead of by differentiating twice.

With a = γ·x̂ + β, x̂ = (z − μ)/σ over sets of N numbers, J = ∂a/∂z and g = ∂L/∂a,

    Tr(Hz·M) = Tr(Ha·(J M Jᵀ)) + Σ g·Tr(∇²a·M),        M = K ⊗ G,

    ∂x̂_i/∂z_j      = (P_ij − x̂_i x̂_j/N)/σ,
    ∂²x̂_i/∂z_j∂z_k = −(x̂_k P_ij + x̂_j P_ik + x̂_i P_jk − 3 x̂_i x̂_j x̂_k/N)/(N σ²),

P = I − 11ᵀ/N (P = I for RMSNorm, which does not centre; ε is inside σ). So the metric moves through the normalisation,
the curvature of the normalisation itself is added in closed form, and what is left to differentiate begins at a. That
makes BatchNorm in training mode exact: it couples all samples, but after it they are independent again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from fallow.flatness.metric import Metric, Neurons, Plain, gram
from fallow.flatness.rows import Rows

NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm, nn.RMSNorm)
# over which of (sample, position, channel within its group) a normalisation takes its statistics
SCOPES = {"row": (3,), "sample": (1, 3), "batch": (0, 1, 3)}


def scope_of(norm: nn.Module, rows: Rows) -> tuple[str, int] | None:
    """The scope of a normalisation of the layer's output and its groups of channels; None if it is none of ours."""
    if isinstance(norm, nn.SyncBatchNorm) or not type(norm).__module__.startswith("torch.nn."):
        return None  # a subclass may do more, such as activate
    if isinstance(norm, nn.modules.batchnorm._BatchNorm):
        of_batch = norm.training or norm.running_mean is None
        return ("batch", rows.d) if of_batch and (rows.conv or len(rows.shape) == 2) else None
    if isinstance(norm, nn.GroupNorm):
        return ("sample", norm.num_groups) if rows.conv or len(rows.shape) == 2 else None
    if isinstance(norm, nn.modules.instancenorm._InstanceNorm):
        own = norm.training or norm.running_mean is None
        return ("sample", rows.d) if own and rows.conv else None
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        if tuple(norm.normalized_shape) == tuple(rows.shape[1:]):
            return "sample", 1
        return ("row", 1) if not rows.conv and tuple(norm.normalized_shape) == (rows.d,) else None
    return None


class Normalised:
    """The layer's output x̂ and 1/σ as a normalisation makes them, in the shape (n, P, groups, channels in each)."""

    def __init__(self, norm: Any, rows: Rows, z: Tensor, scope: str, groups: int) -> None:
        self.rows, self.scope, self.dims = rows, scope, SCOPES[scope]
        self.shape = (rows.n, rows.positions, groups, rows.d // groups)
        x = rows.of(z).reshape(self.shape)
        self.size = math.prod(self.shape[i] for i in self.dims)  # N
        self.centres = not isinstance(norm, nn.RMSNorm)
        eps = torch.finfo(z.dtype).eps if norm.eps is None else norm.eps
        x = self.centred(x)
        self.rstd = torch.rsqrt(x.square().mean(self.dims, keepdim=True) + eps)
        self.x = x * self.rstd
        self.gamma = self._gamma(norm)

    def _gamma(self, norm: Any) -> Tensor:
        """γ, in a shape that multiplies (n, P, d)."""
        if norm.weight is None:
            return self.x.new_ones(())
        gamma = norm.weight.to(self.x.dtype)
        if gamma.ndim == 1:
            return gamma
        return gamma.flatten(1).mT if self.rows.conv else gamma.reshape(self.rows.positions, self.rows.d)

    def centred(self, x: Tensor) -> Tensor:
        """P·x."""
        return x - x.mean(self.dims, keepdim=True) if self.centres else x

    def metric(self, plain: Plain) -> Metric:
        """J M Jᵀ."""
        return ThroughBatch(self, plain.neurons.g) if self.scope == "batch" else ThroughSample(self, plain)

    def curvature(self, gradient: Tensor, neurons: Neurons) -> Tensor:
        """Σ g·Tr(∇²a·M); ``gradient`` is ∂L/∂a as (n, P, d)."""
        dims, n = self.dims, self.size
        pull = (self.gamma * gradient).reshape(self.shape)
        groups = self.shape[2]
        kx, trace_k, sum_k = self._gram()
        mx = neurons.within(kx)
        trace = trace_k * neurons.traces(groups)[:, None]  # of P·M
        if self.centres:
            trace = trace - sum_k * neurons.sums(groups)[:, None] / n
        square = (self.x * mx).sum(dims, keepdim=True)
        cross = (self.centred(pull) * mx).sum(dims, keepdim=True)
        along = (pull * self.x).sum(dims, keepdim=True)
        return -(self.rstd.square() / n * (2 * cross + along * trace - 3 / n * along * square)).sum()

    def _gram(self) -> tuple[Tensor, Tensor, Tensor]:
        """K·x̂, Tr K and 1ᵀK1 over the rows of each set."""
        phi, flat = self.rows.phi, self.x.flatten(2)
        squares = phi.square().sum(-1)
        if self.scope == "row":
            each = squares[:, :, None, None]
            return each * self.x, each, each
        if self.scope == "batch":
            phi, flat = phi.flatten(0, 1).unsqueeze(0), flat.flatten(0, 1).unsqueeze(0)
        kx = gram(phi, flat.unsqueeze(1)).reshape(self.shape)
        trace = squares.sum() if self.scope == "batch" else squares.sum(1)
        return kx, trace.reshape(-1, 1, 1, 1), phi.sum(1).square().sum(-1).reshape(-1, 1, 1, 1)


class ThroughSample:
    """J M Jᵀ where the statistics are of one sample or row: J is applied as it stands."""

    def __init__(self, norm: Normalised, plain: Plain) -> None:
        self.norm, self.inner = norm, plain
        self.dims = tuple(i + 1 for i in norm.dims)

    def project(self, u: Tensor) -> Tensor:
        """(P − x̂x̂ᵀ/N)·u/σ for u of shape (n, k, P, d)."""
        norm = self.norm
        x = norm.x.unsqueeze(1)
        grouped = u.reshape(len(u), -1, *norm.shape[1:])
        out = grouped - x * (grouped * x).mean(self.dims, keepdim=True)
        if norm.centres:
            out = out - grouped.mean(self.dims, keepdim=True)
        return (out * norm.rstd.unsqueeze(1)).reshape(u.shape)

    def apply(self, u: Tensor) -> Tensor:
        """J·M·Jᵀ·u."""
        return self.norm.gamma * self.project(self.inner.apply(self.project(self.norm.gamma * u)))

    def square(self, u: Tensor) -> Tensor:
        """‖Jᵀ·u‖² in the metric M."""
        return self.inner.square(self.project(self.norm.gamma * u))

    def diagonal(self) -> None:
        """It would take d applications."""
        return None


class ThroughBatch:
    """The blocks of J M Jᵀ for each sample, J that of BatchNorm with the statistics of the batch.

    J_s = r_s (I − 11ᵀ/N − x̂_s x̂_sᵀ/N) for channel s, r = γ/σ. With φ̃ = φ − φ̄, c_s = Σ_r x̂_rs φ_r/N and
    ψ_ips = φ̃_ip − x̂_ips c_s, the block of sample i is r_s r_t G_st ⟨ψ_ips, ψ_iqt⟩.
    """

    def __init__(self, norm: Normalised, g: Tensor) -> None:
        rows = norm.rows
        self.g, self.x = g, norm.x.reshape(rows.n, rows.positions, rows.d)
        self.r = norm.gamma * norm.rstd.flatten()
        self.phi = rows.phi - rows.phi.mean((0, 1))
        c = torch.einsum("npd,npm->dm", self.x, self.phi) / norm.size
        self.e = self.phi @ c.mT  # ⟨c_s, φ̃_ip⟩
        self.cc = c @ c.mT

    def apply(self, u: Tensor) -> Tensor:
        """The bilinear form above, multiplied out so that nothing is larger than u."""
        x, e = self.x.unsqueeze(1), self.e.unsqueeze(1)
        t = self.r * u
        along = (t * x).sum(2, keepdim=True)
        tg = t @ self.g
        far = along @ (self.g * self.cc) - (e * tg).sum(2, keepdim=True)
        return self.r * ((gram(self.phi, t) - e * along) @ self.g + x * far)

    def square(self, u: Tensor) -> Tensor:
        """The same form with u on both sides."""
        t = self.r * u
        along = (t * self.x.unsqueeze(1)).sum(2, keepdim=True)
        near = (gram(self.phi, t) - 2 * self.e.unsqueeze(1) * along) * (t @ self.g)
        return near.sum((2, 3)) + (along * (along @ (self.g * self.cc))).sum((2, 3))

    def diagonal(self) -> Tensor:
        """r_s² G_ss ‖ψ_ips‖²."""
        squares = self.phi.square().sum(-1, keepdim=True)
        return self.r**2 * self.g.diagonal() * (squares - 2 * self.x * self.e + self.x**2 * self.cc.diagonal())
