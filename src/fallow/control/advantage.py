"""How much better an action was than expected: discounted sums, a linear baseline, generalised advantages.

All of it for many tasks and trajectories at once: rewards are (tasks, trajectories, horizon).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.data.environments.base import Trajectories

RIDGE = 1e-5  # of the baseline's least squares
SCALE = 100.0  # steps of time in a unit of the baseline's features
TINY = 1e-8


def discounted(values: Tensor, factor: float) -> Tensor:
    """Σ_{l ≥ 0} factor^l · v_{t+l} at every step t of the last axis.

    >>> discounted(torch.tensor([1.0, 1.0, 1.0]), 0.5)
    tensor([1.7500, 1.5000, 1.0000])
    """
    steps = torch.arange(values.shape[-1], dtype=torch.float64, device=values.device)
    apart = steps - steps[:, None]  # of step t in the rows, t + l in the columns
    powers = torch.where(apart >= 0, factor ** apart.clamp(min=0), 0.0)
    return values @ powers.T.to(values.dtype)


def features(observations: Tensor) -> Tensor:
    """What the baseline sees of a state (Duan et al. 2016): s, s², and 1, t, t², t³ in units of 100 steps."""
    seen = observations.clamp(-10, 10)
    horizon = observations.shape[-2]
    t = torch.arange(horizon, dtype=seen.dtype, device=seen.device)[:, None] / SCALE
    time = torch.cat([torch.ones_like(t), t, t**2, t**3], -1).expand(*seen.shape[:-1], 4)
    return torch.cat([seen, seen.square(), time], -1)


def linear_baseline(observations: Tensor, returns: Tensor) -> Tensor:
    """V(s, t), linear in :func:`features`, fitted to the returns of every task by least squares, at the same states.

    The normal equations (ΦᵀΦ + ridge·I)·w = Φᵀ·R are solved in float64.
    """
    phi = features(observations.double()).flatten(1, 2)  # (tasks, states, features)
    target = returns.double().flatten(1, 2)[..., None]
    gram = phi.mT @ phi
    gram.diagonal(dim1=-2, dim2=-1).add_(RIDGE)
    weights = torch.linalg.solve(gram, phi.mT @ target)
    return (phi @ weights).view_as(returns).to(returns.dtype)


def generalised(rewards: Tensor, values: Tensor, discount: float, decay: float) -> Tensor:
    """Generalised advantages (Schulman et al. 2016, equation 16); after the last step nothing is expected::

    A_t = Σ_l (γλ)^l δ_{t+l},    δ_t = r_t + γ V_{t+1} − V_t
    """
    following = torch.cat([values[..., 1:], torch.zeros_like(values[..., :1])], -1)
    return discounted(rewards + discount * following - values, discount * decay)


def advantages(seen: Trajectories, discount: float = 0.99, decay: float = 1.0) -> Tensor:
    """Of every action (tasks, trajectories, horizon), with mean 0 and deviation 1 in every task."""
    returns = discounted(seen.rewards, discount)
    found = generalised(seen.rewards, linear_baseline(seen.observations, returns), discount, decay)
    flat = found.flatten(1)
    mean, std = flat.mean(1), flat.std(1)
    return (found - mean[:, None, None]) / (std[:, None, None] + TINY)
