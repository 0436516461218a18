"""L2F's attenuation: how much of each layer of the shared initialisation a task keeps (Baik et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from fallow.adaptation.objective import Params
from fallow.weights.layers import is_norm, join, layers

GRANULARITIES = ("layer", "tensor")


def attenuate(params: Params, gamma: Tensor, owner: dict[str, int]) -> Params:
    """θ̄ = γ·θ: every parameter times the γ (…, layers) of its layer; without an owner it stays as it is.

    >>> params = {"weight": torch.ones(2, 3), "bias": torch.ones(3)}
    >>> attenuate(params, torch.tensor([0.5]), {"weight": 0})["weight"].sum()
    tensor(3.)
    """
    lead = gamma.shape[:-1]

    def scale(name: str, p: Tensor) -> Tensor:
        factor = gamma[..., owner[name]]
        return factor.view(*lead, *[1] * (p.ndim - len(lead))) * p

    return {name: scale(name, p) if name in owner else p for name, p in params.items()}


def embed(found: Sequence[Tensor], names: Sequence[str], owner: dict[str, int], lead: torch.Size) -> Tensor:
    """The task as L2F sees it: the mean of its gradient in every layer (…, layers)."""
    sums: dict[int, Tensor] = {}
    sizes: dict[int, int] = {}
    for name, gradient in zip(names, found, strict=True):
        if name in owner:
            flat = gradient.reshape(*lead, -1)
            layer = owner[name]
            sums[layer] = sums[layer] + flat.sum(-1) if layer in sums else flat.sum(-1)
            sizes[layer] = sizes.get(layer, 0) + flat.shape[-1]
    return torch.stack([sums[layer] / sizes[layer] for layer in sorted(sums)], -1)


def owners(model: nn.Module, per: str, norms: bool) -> dict[str, int]:
    """Which γ belongs to which parameter; a norm belongs to the layer that it follows.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    >>> owners(net, "layer", norms=True)
    {'0.weight': 0, '0.bias': 0, '1.weight': 0, '1.bias': 0, '2.weight': 1, '2.bias': 1}
    >>> owners(net, "tensor", norms=False)
    {'0.weight': 0, '0.bias': 1, '2.weight': 2, '2.bias': 3}
    """
    owner: dict[str, int] = {}
    count = 0
    trained = {name for name, p in model.named_parameters() if p.requires_grad}  # a tied one by its first name alone
    for path, module in layers(model).items():
        normalises = is_norm(module)
        names = [full for name, _ in module.named_parameters(recurse=False) if (full := join(path, name)) in trained]
        if not names or (normalises and not norms):
            continue
        if per == "tensor":
            owner |= {name: count + i for i, name in enumerate(names)}
            count += len(names)
        else:
            count += not (normalises and count)
            owner |= dict.fromkeys(names, count - 1)
    return owner


class Attenuator(nn.Module):
    """g_φ: an MLP from the embedding to γ, ReLU in between and a sigmoid at the end (supplement, section E.1).

    ``constant``: one γ for every layer, learned and the same for all tasks.
    """

    def __init__(
        self, owner: dict[str, int], depth: int, hidden: int | None, start: float | None, *, constant: bool = False
    ) -> None:
        super().__init__()
        self.owner, self.constant = owner, constant
        self.count = count = max(owner.values()) + 1
        if constant:
            at = 0.5 if start is None else start
            self.raw = nn.Parameter(torch.full((count,), math.log(at / (1 - at))))
            return
        width = count if hidden is None else hidden
        sizes = [count, *[width] * (depth - 1), count]
        linears = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        if start is not None:
            nn.init.constant_(linears[-1].bias, math.log(start / (1 - start)))
        parts = [part for linear in linears for part in (linear, nn.ReLU())]
        self.net = nn.Sequential(*parts[:-1], nn.Sigmoid())

    def forward(self, embedding: Tensor) -> Tensor:
        """γ (…, layers) of tasks, from their embeddings (…, layers)."""
        return torch.sigmoid(self.raw).expand_as(embedding) if self.constant else self.net(embedding)
