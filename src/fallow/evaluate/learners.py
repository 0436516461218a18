"""How well features serve few-shot episodes: learners by name, each for many episodes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fallow.base.errors import unknown
from fallow.base.seeds import mix
from fallow.evaluate.heads import LinearHead, nearest, principal, ridge
from fallow.evaluate.logistic import logistic
from fallow.evaluate.sampling import DrawnEpisodes
from fallow.evaluate.span import CDFSL, descend, fresh_heads, orders

BYTES = 1 << 27  # of supports and their products that are held at once; more does not make it faster
JUDGED = 16  # episodes whose queries are looked at together: memory is used again while it is warm

# (supports (episodes, n, width), labels (n,), a seed for each episode) → heads
Learner = Callable[[Tensor, Tensor, Sequence[int]], LinearHead]


def _protocol(support: Tensor, y: Tensor, seeds: Sequence[int]) -> LinearHead:
    start = fresh_heads(seeds, int(y[-1]) + 1, support.shape[-1])
    start = LinearHead(start.weight.to(support), start.bias.to(support))
    return descend(support, y, start, orders(seeds, len(y), CDFSL.epochs))


def _ridge(support: Tensor, y: Tensor, seeds: Sequence[int]) -> LinearHead:
    axes = principal(support)
    return ridge(support, y, axes.values.sum(-1) / len(y), axes=axes)


def _logistic(support: Tensor, y: Tensor, seeds: Sequence[int]) -> LinearHead:
    axes = principal(support)
    return logistic(support, y, axes.values.sum(-1) / len(y), axes=axes)


def _nearest(support: Tensor, y: Tensor, seeds: Sequence[int]) -> LinearHead:
    return nearest(support, y)


LEARNERS: dict[str, Learner] = {
    "cdfsl": _protocol,  # literally, for comparisons with the literature; those below are usually better
    "ridge": _ridge,  # both penalties are 1 for features whose mean squared distance from their mean is 1
    "logistic": _logistic,
    "nearest": _nearest,
}


def learn(features: Tensor, drawn: DrawnEpisodes, learner: str | Learner = "cdfsl", *, seed: int = 0) -> Tensor:
    """The accuracy (episodes,) on the queries of each episode, after learning its support.

    ``features`` (examples, width) are those of one backbone; ``seed`` decides on fresh heads and minibatches. With
    the same episodes and seed, accuracies of two backbones or learners are pairs for ``statistics.paired``.

    >>> from fallow.evaluate.sampling import episodes
    >>> y = torch.arange(6).repeat(10)
    >>> x = torch.eye(6)[y] + torch.randn(60, 6, generator=torch.Generator().manual_seed(0)) / 10
    >>> learn(x, episodes(y, ways=3, shots=1, queries=4, count=5, seed=0), "nearest").tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if isinstance(learner, str):
        if learner not in LEARNERS:
            raise unknown("learner", learner, LEARNERS)
        learner = LEARNERS[learner]
    count, ways, shots = drawn.support.shape
    labels = torch.arange(ways, device=features.device)
    y, asked = labels.repeat_interleave(shots), labels.repeat_interleave(drawn.query.shape[2])
    bytes_each = features.element_size() * len(y) * (features.shape[1] + len(y) + 2 * CDFSL.epochs)
    found = []
    for numbers in torch.arange(count).split(max(1, BYTES // bytes_each)):
        support, query = (rows[numbers].flatten(1).to(features.device) for rows in drawn)
        head = learner(features[support], y, [mix(seed, number) for number in numbers.tolist()])
        for some in torch.arange(len(query)).split(JUDGED):
            outputs = LinearHead(head.weight[some], head.bias[some])(features[query[some]])
            found.append((outputs.argmax(-1) == asked).double().mean(1))
    return torch.cat(found).cpu()
