"""Multinomial logistic regression, many strengths or many problems at once, by Newton's method in principal axes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fallow.evaluate.heads import Axes, LinearHead, principal

NEWTON, CONJUGATE, HALVINGS = 100, 250, 30  # steps at most


@torch.no_grad()
def logistic(
    x: Tensor, y: Tensor, strengths: Tensor | float, *, axes: Axes | None = None, tolerance: float = 1e-10
) -> LinearHead:
    """Minimise Σ cross-entropy + λ/2 ‖W‖² for every strength λ; biases are free (scikit-learn's problem, C = 1/λ).

    ``x`` is (n, width) and shared by ``strengths`` (k,), or (problems, n, width) with a number or one for each;
    ``y`` (n,) holds classes. Newton's equations are solved by conjugate gradients, preconditioned by the Hessian's
    diagonal, which is most of it in principal axes. The logits are linear in the parameters, so that a trial of the
    line search costs no product with the features. ``tolerance`` is what the last step may still have promised,
    relative to the loss; another would gain about its square.
    """
    axes = axes or principal(x)
    z = torch.cat([axes.z, axes.z.new_ones(*axes.z.shape[:-1], 1)], -1)  # the bias is the weight of a 1
    members = functional.one_hot(y).to(z)
    strength = torch.as_tensor(strengths, dtype=z.dtype, device=z.device)
    batch = torch.broadcast_shapes(strength.shape, z.shape[:-2])
    penalty = strength.expand(batch).reshape(-1, 1, 1).repeat(1, z.shape[-1], 1)
    penalty[:, -1] = 0

    def loss(v: Tensor, logits: Tensor) -> Tensor:
        entropy = logits.logsumexp(-1) - (logits * members).sum(-1)
        return entropy.sum(-1)[:, None, None] + _dot(v, penalty * v) / 2

    v = z.new_zeros(len(penalty), z.shape[-1], members.shape[-1])
    logits = z @ v
    value = loss(v, logits)
    open_ = torch.ones_like(value, dtype=torch.bool)
    for _ in range(NEWTON):
        p = logits.softmax(-1)
        gradient = (z.mT @ (p - members) + penalty * v).where(open_, 0)
        direction = _newton(z, p, penalty, -gradient)
        along = z @ direction
        promise = -_dot(gradient, direction)
        t = torch.ones_like(value)
        for _ in range(HALVINGS):  # until the loss falls enough (Armijo), up to its last digits
            trial = loss(v + t * direction, logits + t * along)
            short = trial > value - 1e-4 * t * promise + 1e-14 * value
            if not short.any():
                break
            t = torch.where(short, t / 2, t)
        v, logits, value = v + t * direction, logits + t * along, trial
        open_ = promise > tolerance * value
        if not open_.any():
            break
    v = v.view(*batch, *v.shape[1:])
    return axes.head(v[..., :-1, :], v[..., -1, :])


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-2, -1), keepdim=True)


def _newton(z: Tensor, p: Tensor, penalty: Tensor, right: Tensor) -> Tensor:
    """Solve H·d = right for every problem by conjugate gradients, the more exactly the nearer the minimum is.

    The residual may be √‖right‖ of where it began, between 10⁻⁴ and half of it, measured with the preconditioner.
    Problems that are there are left out as soon as they are half of all.
    """
    inverse = 1 / (z.square().mT @ (p * (1 - p)) + penalty).clamp(min=torch.finfo(z.dtype).tiny)
    solved = torch.zeros_like(right)
    index = torch.arange(len(right), device=z.device)
    d, rest, way = solved.clone(), right, inverse * right
    size = _dot(rest, way)
    enough = size * size.sqrt().clamp(1e-8, 0.25)
    for _ in range(CONJUGATE):
        active = size > enough
        remaining = int(active.sum())
        if 2 * remaining <= len(index):
            solved[index] = d
            if not remaining:
                return solved
            kept = active.flatten()
            held = (index, d, rest, way, size, enough, inverse, p, penalty, active)
            index, d, rest, way, size, enough, inverse, p, penalty, active = (each[kept] for each in held)
            z = z[kept] if z.ndim == 3 else z
        u = z @ way
        bent = z.mT @ (p * (u - (p * u).sum(-1, keepdim=True))) + penalty * way
        step = (size / _dot(way, bent)).where(active, 0)
        d, rest = d + step * way, rest - step * bent
        scaled = inverse * rest
        before, size = size, torch.where(active, _dot(rest, scaled), size)
        way = torch.where(active, scaled + size / before * way, way)
    solved[index] = d
    return solved
