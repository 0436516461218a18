"""Few-shot episodes of labelled rows: which rows are seen and which are asked for, the same for every backbone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.base.seeds import mix

BLOCK = 64  # episodes drawn at a time, so that the first ones do not depend on how many follow


class DrawnEpisodes(NamedTuple):
    """Episodes as rows of a table of features; an example's label is its place on the axis of the classes."""

    support: Tensor  # (episodes, ways, shots)
    query: Tensor  # (episodes, ways, queries)


def episodes(
    y: Tensor, ways: int, shots: int, queries: int, count: int, seed: int, *, names: Sequence[str] | None = None
) -> DrawnEpisodes:
    """``count`` episodes of the classes in ``y``: classes without replacement, and examples within each.

    Episode i is a function of the labels, the shape and (seed, i) alone, so that backbones and learners are judged
    on the same ones, and the differences between them are paired.

    >>> support, query = episodes(torch.arange(6).repeat(4), ways=3, shots=1, queries=2, count=100, seed=0)
    >>> support.shape, query.shape
    (torch.Size([100, 3, 1]), torch.Size([100, 3, 2]))
    """
    for what, value, least in (("ways", ways, 2), ("shots", shots, 1), ("queries", queries, 1), ("count", count, 1)):
        if value < least:
            raise RequestError(f"{what} is {value}: it must be a whole number from {least}")
    y = y.cpu()
    present, counts = y.unique(return_counts=True)
    if len(present) < ways:
        raise RequestError(f"there are {len(present)} classes: {ways}-way episodes need {ways}")
    needed = shots + queries
    for label, images in zip(present.tolist(), counts.tolist(), strict=True):
        if images < needed:
            name = str(label) if names is None else names[label]
            raise RequestError(
                f"class {name!r} has {images} images: {shots} shots and {queries} queries need {needed}; "
                "take fewer, or leave the class out"
            )
    places = torch.arange(int(counts.max()))
    absent = places >= counts[:, None]
    table = y.argsort(stable=True)[(counts.cumsum(0) - counts)[:, None] + places.masked_fill(absent, 0)]
    rows = torch.cat([_block(table, absent, ways, needed, mix(seed, i)) for i in range(-(-count // BLOCK))])[:count]
    return DrawnEpisodes(rows[..., :shots], rows[..., shots:])


def _block(table: Tensor, absent: Tensor, ways: int, each: int, seed: int) -> Tensor:
    """Rows (BLOCK, ways, each): the places of the largest random numbers are a draw without replacement."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.rand(BLOCK, len(table), generator=draw).topk(ways).indices
    keys = torch.rand(BLOCK, ways, table.shape[1], generator=draw).masked_fill_(absent[classes], -1.0)
    return table[classes[..., None], keys.topk(each).indices]
