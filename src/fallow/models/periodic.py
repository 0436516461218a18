"""Periodic embeddings of numbers (Gorishniy, Rubachev and Babenko 2022)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

WAVES, SPREAD = 16, 0.1  # of every feature, and the deviation of their frequencies (RealMLP's, Holzmüller et al. 2024)


class Periodic(nn.Module):
    """``size`` functions of every feature x, each with weights of its own: relu(Σ_k W_k·cos(2π·f_k·x + φ_k) + b).

    The paper's PLR, with a phase φ in place of sine and cosine. Frequencies and phases are learned too. A linear layer
    on top bends along every feature, for which a plain network needs many units.

    >>> Periodic(3, size=4)(torch.zeros(2, 3)).shape
    torch.Size([2, 12])
    """

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.empty(features, WAVES))
        self.phase = nn.Parameter(torch.empty(features, WAVES))
        self.weight = nn.Parameter(torch.empty(features, WAVES, size))
        self.bias = nn.Parameter(torch.empty(features, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Slow waves, f ~ N(0, 0.1²), of any phase."""
        nn.init.normal_(self.frequency, std=SPREAD)
        nn.init.uniform_(self.phase, -math.pi, math.pi)
        nn.init.uniform_(self.weight, -(WAVES**-0.5), WAVES**-0.5)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(n, features) to (n, features · size)."""
        waves = torch.cos(2 * math.pi * x[..., None] * self.frequency + self.phase)
        return torch.relu(torch.einsum("nfk,fks->nfs", waves, self.weight) + self.bias).flatten(1)
