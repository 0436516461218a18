"""A Gaussian policy: a network gives the mean of the action, a parameter the logarithm of its deviation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Gaussian(nn.Module):
    """π(a|s) = N(μ_θ(s), diag(σ²)), σ = exp(log_std) the same in all states.

    Its output holds both, (μ, log σ), so that whatever takes a network's output takes a distribution.

    >>> policy = Gaussian(nn.Linear(3, 2), actions=2)
    >>> policy(torch.zeros(5, 3)).shape
    torch.Size([5, 4])
    """

    def __init__(self, network: nn.Module, actions: int, std: float = 1.0) -> None:
        super().__init__()
        self.network = network
        self.log_std = nn.Parameter(torch.full((actions,), math.log(std)))

    def forward(self, observations: Tensor) -> Tensor:
        """Means and log-deviations (…, 2 · actions)."""
        mean = self.network(observations)
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)


def log_probability(output: Tensor, actions: Tensor) -> Tensor:
    """The log π(a|s) of actions under the distributions of a policy's output.

    >>> round(float(log_probability(torch.zeros(2), torch.zeros(1)).exp()), 4)
    0.3989
    """
    mean, log_std = output.chunk(2, -1)
    scaled = (actions - mean) * torch.exp(-log_std)
    return -(0.5 * scaled.square() + log_std).sum(-1) - 0.5 * math.log(2 * math.pi) * actions.shape[-1]


def divergence(old: Tensor, new: Tensor) -> Tensor:
    """KL(old ‖ new) = Σ log(σ'/σ) + (σ² + (μ − μ')²) / 2σ'² − ½ of the distributions of two outputs, in each state."""
    mean, log_std = old.chunk(2, -1)
    other, other_log = new.chunk(2, -1)
    spread = (torch.exp(2 * log_std) + (mean - other).square()) * torch.exp(-2 * other_log)
    return (other_log - log_std + 0.5 * spread - 0.5).sum(-1)


def metric(output: Tensor, change: Tensor) -> Tensor:
    """M·d of a change d of the output: the Fisher information of N(μ, σ²), 1/σ² for means and 2 for log-deviations.

    It is the second derivative of :func:`divergence` where both distributions are the same.
    """
    _, log_std = output.chunk(2, -1)
    mean, spread = change.chunk(2, -1)
    return torch.cat([mean * torch.exp(-2 * log_std), 2 * spread], -1)
