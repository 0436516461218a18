"""What a policy's parameters are moved by: the policy gradient, and surrogates that hold near the policy that acted.

``judged`` targets are (…, actions + 1): the action that was taken, and its advantage.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.control.policy import log_probability
from fallow.data.environments.base import Trajectories


def judged(seen: Trajectories, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """Observations (tasks, states, …) and judged targets (tasks, states, actions + 1), as a learner takes them."""
    y = torch.cat([seen.actions, advantages[..., None]], -1)
    return seen.observations.flatten(1, 2), y.flatten(1, 2)


def policy_gradient(output: Tensor, y: Tensor) -> Tensor:
    """−mean log π(a|s)·A, whose gradient is the vanilla policy gradient (Williams 1992)."""
    return -(log_probability(output, y[..., :-1]) * y[..., -1]).mean(-1)


def surrogate(output: Tensor, y: Tensor, old: Tensor, clip: float | None = None) -> Tensor:
    """−mean ρ·A with ρ = π(a|s) / π_old(a|s) (Schulman et al. 2015, equation 14), of each task.

    With ``clip`` the pessimistic −mean min(ρA, clamp(ρ, 1 − clip, 1 + clip)·A) (Schulman et al. 2017, equation 7).
    """
    actions, advantage = y[..., :-1], y[..., -1]
    ratio = torch.exp(log_probability(output, actions) - log_probability(old, actions))
    gain = ratio * advantage
    if clip is not None:
        gain = torch.minimum(gain, ratio.clamp(1 - clip, 1 + clip) * advantage)
    return -gain.mean(-1)
