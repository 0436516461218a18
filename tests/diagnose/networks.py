"""Small networks in float64, fresh and trained, and their dense Hessians."""

from __future__ import annotations

from functools import lru_cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

NAMES = ("relu", "smooth", "layernorm", "convolution")


@lru_cache
def digits(n: int = 90) -> tuple[Tensor, Tensor]:
    bundled = load_digits(n_class=4)
    images = torch.tensor(bundled.images)[:n]
    images = functional.avg_pool2d(images[:, None], 2)
    return (images - images.mean()) / images.std(), torch.tensor(bundled.target)[:n]


@lru_cache
def network(name: str, trained: bool) -> nn.Module:
    torch.manual_seed(1)
    if name == "relu":
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 4))
    elif name == "smooth":
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    elif name == "layernorm":
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 9), nn.LayerNorm(9), nn.SiLU(), nn.Linear(9, 4))
    else:
        net = nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Conv2d(3, 6, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6, 4),
        )
    net = net.double()
    if trained:
        train(net, 120)
    return net.eval()


def train(net: nn.Module, steps: int) -> None:
    x, y = digits()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()


def dense(net: nn.Module, x: Tensor, y: Tensor, mode: str = "eval") -> Tensor:
    """The Hessian of the mean cross-entropy by its definition."""
    names = [name for name, p in net.named_parameters() if p.requires_grad]
    weights = [p for p in net.parameters() if p.requires_grad]
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split([weight.numel() for weight in weights])
        state = {name: part.view_as(w) for name, part, w in zip(names, parts, weights, strict=True)}
        return functional.cross_entropy(functional_call(net, {**state, **buffers}, (x,)), y)

    was = net.training
    net.train(mode == "train")
    try:
        flat = torch.cat([weight.detach().reshape(-1) for weight in weights])
        found = torch.autograd.functional.hessian(loss, flat, vectorize=True)
    finally:
        net.train(was)
    assert isinstance(found, Tensor)
    return (found + found.T) / 2


@lru_cache
def hessian_of(name: str, trained: bool) -> Tensor:
    return dense(network(name, trained), *digits())
