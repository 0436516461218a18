"""The public protocol of cross-domain few-shot transfer, for all episodes at once, in the span of their supports.

A linear head W on support features S (N × width) follows SGD with momentum, dampening and decay, four examples a step.
Every gradient of the loss is a combination of rows of S, and decay and momentum only scale and add, so that

    W = a · W₀ + A · S,        A: classes × N,

at every step, and so is the momentum, with v and V. The logits of a batch are a · (W₀Sᵀ) + A·K with K = SSᵀ, and no
step touches the features: episodes advance side by side on their N × N matrices. The bias is the weight of a feature
that is always 1, hence K + 1. It is the same trajectory, not an approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fallow.evaluate.heads import LinearHead


@dataclass(frozen=True)
class Protocol:
    """How a head is fine-tuned on an episode; the defaults are those of the public cross-domain benchmark."""

    epochs: int = 100
    batch: int = 4
    rate: float = 0.01
    momentum: float = 0.9
    dampening: float = 0.9
    decay: float = 1e-3


CDFSL = Protocol()


def fresh_heads(seeds: Sequence[int], classes: int, width: int) -> LinearHead:
    """A head for every seed, as ``nn.Linear`` draws them: uniform within ±1/√width, the bias too."""
    drawn = [torch.rand(classes, width + 1, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    both = torch.stack(drawn).mul_(2).sub_(1).mul_(width**-0.5)
    return LinearHead(both[..., :-1], both[..., -1])


def orders(seeds: Sequence[int], examples: int, epochs: int) -> Tensor:
    """The order (seeds, epochs, examples) in which every epoch takes the support.

    They are those of a loop that calls ``rng.permutation(examples)`` each epoch, ``rng`` being
    ``numpy.random.default_rng(seed)``: minibatches are then read from left to right.
    """
    rows = np.broadcast_to(np.arange(examples), (epochs, examples))
    return torch.from_numpy(np.stack([np.random.default_rng(seed).permuted(rows, axis=1) for seed in seeds]))


@torch.no_grad()
def descend(support: Tensor, y: Tensor, start: LinearHead, orders: Tensor, protocol: Protocol = CDFSL) -> LinearHead:
    """The heads after the protocol, from ``start``, on supports (episodes, N, width) with labels ``y`` (N,).

    ``orders`` (episodes, epochs, N) says which examples make the minibatches, as from :func:`orders`.
    """
    episodes, n, _ = support.shape
    gram = (support @ support.mT).add_(1)
    begin = torch.baddbmm(start.bias[..., None], start.weight, support.mT)  # what W₀ says: (episodes, classes, N)
    members = functional.one_hot(y, begin.shape[1]).to(support).T.expand_as(begin)
    combination, velocity = torch.zeros_like(begin), torch.zeros_like(begin)  # A and V
    a, v = 1.0, 0.0
    momentum, damped = 0.0, 1.0  # the first step takes the gradient itself as its momentum, as torch's SGD does
    rows, first_row = gram.view(-1, n), n * torch.arange(episodes, device=support.device)[:, None]
    for order in orders.to(support.device).unbind(1):
        places = order[:, None].expand_as(begin)
        logits_0, targets = begin.gather(2, places), members.gather(2, places)
        for i in range(0, n, protocol.batch):
            batch = slice(i, min(i + protocol.batch, n))
            size = batch.stop - batch.start
            products = rows.index_select(0, (order[:, batch] + first_row).flatten()).view(episodes, size, n)
            logits = torch.baddbmm(logits_0[..., batch], combination, products.mT, beta=a)
            error = logits.softmax(1).sub_(targets[..., batch]).mul_(damped / size)
            velocity.mul_(momentum).add_(combination, alpha=damped * protocol.decay)
            velocity.scatter_add_(2, places[..., batch], error)
            combination.sub_(velocity, alpha=protocol.rate)
            v = momentum * v + damped * protocol.decay * a
            a -= protocol.rate * v
            momentum, damped = protocol.momentum, 1 - protocol.dampening
    weight = torch.baddbmm(start.weight, combination, support, beta=a)
    return LinearHead(weight, a * start.bias + combination.sum(2))
