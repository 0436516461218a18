"""The nearest neighbours of every test point, by blocked matrix products and a running choice of the nearest."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown

DISTANCES = ("euclidean", "cosine")
ROWS, COLUMNS = 1024, 16384  # distances at a time: 64 MB in float32
GROUP = 64  # columns of which first only the smallest distance is looked at


@torch.no_grad()
def neighbours(train: Tensor, test: Tensor, k: int = 5, *, distance: str = "euclidean") -> Tensor:
    """The indices of the ``k`` training points nearest to each test point, the nearest first.

    With a = ‖t‖² / 2 − ⟨q, t⟩ in place of ‖q − t‖², which differs from 2a by the same number for all t, a distance
    costs one multiplication per feature. Both are taken relative to the training points' mean, so that features far
    from 0 lose no digits. The cosine of a zero vector with any other is taken as 0. Of equal distances the one to the
    training point with the lower index is the smaller.

    Memory beyond the features is a copy of them and some 100 MB.

    >>> neighbours(torch.tensor([[0.0], [1.0], [3.0], [1.0]]), torch.tensor([[0.9]]), 3).tolist()
    [[1, 3, 0]]
    """
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    if not 1 <= k <= len(train):
        raise RequestError(
            f"k={k} neighbours cannot be found among {len(train)} training points: 1 to {len(train)} can"
        )
    if distance == "euclidean":
        centre = train.mean(0)
        train, test = train - centre, test - centre
        offset = (train * train).sum(1) / 2
    else:
        train, test = (torch.nn.functional.normalize(points) for points in (train, test))
        offset = train.new_zeros(len(train))
    blocks = -(-len(train) // COLUMNS)
    pieces = list(zip(train.tensor_split(blocks), offset.tensor_split(blocks), strict=True))
    result = torch.empty(len(test), k, dtype=torch.int64, device=test.device)
    scratch = test.new_empty(min(ROWS, len(test)) * len(pieces[0][0]))
    for rows, found in zip(test.split(ROWS), result.split(ROWS), strict=True):
        values = rows.new_empty(len(rows), 0)
        indices = found.new_empty(len(rows), 0)
        first = 0
        for some, beside in pieces:
            scores = scratch[: len(rows) * len(some)].view(len(rows), len(some))
            torch.addmm(beside, rows, some.T, alpha=-1, out=scores)
            new_values, new_indices = _smallest(scores, k)
            values, indices = _merge(values, indices, new_values, new_indices + first, k)
            first += len(some)
        found.copy_(indices)
    return result


def vote(labels: Tensor) -> Tensor:
    """The most frequent label of each row, the nearest neighbour first; of equally frequent ones, the nearest.

    >>> vote(torch.tensor([[2, 1, 1, 2, 0], [0, 1, 2, 1, 3]])).tolist()
    [2, 1]
    """
    k = labels.shape[1]
    votes = (labels[:, :, None] == labels[:, None, :]).sum(2)
    rank = votes * k - torch.arange(k, device=labels.device)
    return labels.gather(1, rank.argmax(1, keepdim=True)).squeeze(1)


def _smallest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` smallest of each row, ties to the lower index.

    The k smallest lie in the k groups of columns with the smallest minima, so only those are searched. One more than
    ``k`` are looked for: a tie at the end shows in that the last two are equal.
    """
    rows, columns = scores.shape
    more = min(k + 1, columns)
    width = columns // GROUP
    if width <= 2 * more:
        values, indices = scores.topk(more, largest=False)
    else:
        least = scores[:, : GROUP * width].unflatten(1, (GROUP, width)).amin(1)
        groups = least.topk(more, largest=False).indices
        members = torch.arange(GROUP, device=scores.device) * width
        candidates = (groups[:, :, None] + members).flatten(1)
        rest = torch.arange(GROUP * width, columns, device=scores.device).expand(rows, -1)
        candidates = torch.cat([candidates, rest], 1)
        values, place = scores.gather(1, candidates).topk(more, largest=False)
        indices = candidates.gather(1, place)
    if more > k:
        tied = (values[:, k - 1] == values[:, k]).nonzero().squeeze(1)
        values, indices = values[:, :k], indices[:, :k]
        if len(tied):
            indices[tied] = _first_of_equals(scores[tied], values[tied], indices[tied])
    return values, indices


def _first_of_equals(scores: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """Replace, among the chosen, those as far as the last one by the first columns that are as far."""
    k, last = values.shape[1], values[:, -1:]
    columns = torch.arange(scores.shape[1], device=scores.device)
    equals = torch.where(scores == last, columns, scores.shape[1]).topk(k, largest=False).values
    nearer = (values < last).sum(1, keepdim=True)
    place = torch.arange(k, device=scores.device) - nearer
    return torch.where(place < 0, indices, equals.gather(1, place.clamp(min=0)))


def _merge(values: Tensor, indices: Tensor, more: Tensor, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` smallest of both, in the order of their values and then of their indices."""
    values, indices = torch.cat([values, more], 1), torch.cat([indices, places], 1)
    order = indices.argsort(dim=1)
    values, indices = values.gather(1, order), indices.gather(1, order)
    values, order = values.sort(dim=1, stable=True)
    return values[:, :k], indices.gather(1, order)[:, :k]
