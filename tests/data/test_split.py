"""Splits against brute force: the nearest whole numbers, the exact total, nothing twice."""

from itertools import product

import pytest
import torch

from fallow.base.errors import RequestError
from fallow.data.split import apportion, stratified


def nearest(counts: list[int], number: int) -> float:
    """The least squared distance to exact proportion over every allowed choice."""
    quotas = [number * count / sum(counts) for count in counts]
    lows = [min(1, count - 1) for count in counts]
    if sum(lows) > number:
        lows = [0] * len(counts)
    return min(
        sum((take - quota) ** 2 for take, quota in zip(takes, quotas, strict=True))
        for takes in product(*(range(low, count) for low, count in zip(lows, counts, strict=True)))
        if sum(takes) == number
    )


@pytest.mark.parametrize("counts", [[5, 5, 5], [9, 1, 4], [2, 2, 2, 3], [12, 7, 2], [1, 8]])
def test_apportion_is_the_nearest_to_proportion(counts: list[int]) -> None:
    for number in range(sum(counts) - len(counts) + 1):
        takes = apportion(counts, number)
        assert sum(takes) == number
        assert all(0 <= take < count for take, count in zip(takes, counts, strict=True))
        quotas = [number * count / sum(counts) for count in counts]
        cost = sum((take - quota) ** 2 for take, quota in zip(takes, quotas, strict=True))
        assert cost == pytest.approx(nearest(counts, number))


def test_apportion_takes_every_class_when_it_can() -> None:
    assert min(apportion([1000, 2, 2], 100)) == 1
    assert apportion([1000, 2, 2], 2) == [2, 0, 0]  # fewer than classes: by proportion alone


def test_apportion_refuses_to_empty_a_class() -> None:
    with pytest.raises(RequestError, match="at most 7"):
        apportion([4, 5], 8)


def test_stratified_partitions_and_is_random_by_generator() -> None:
    y = torch.tensor([0] * 50 + [1] * 30 + [2] * 20)[torch.randperm(100)]
    kept, carved = stratified(y, 0.2, torch.Generator().manual_seed(1))
    assert sorted(kept.tolist() + carved.tolist()) == list(range(100))
    assert torch.bincount(y[carved]).tolist() == [10, 6, 4]
    assert torch.equal(stratified(y, 20, torch.Generator().manual_seed(1))[1], carved)
    assert not torch.equal(stratified(y, 20, torch.Generator().manual_seed(2))[1], carved)


def test_stratified_chooses_evenly_within_a_class() -> None:
    y, generator = torch.tensor([0, 0, 0, 0, 1, 1]), torch.Generator().manual_seed(0)
    hits = torch.zeros(6)
    for _ in range(3000):
        hits[stratified(y, 3, generator)[1]] += 1
    expected = torch.tensor([0.5] * 6)  # two of the four, one of the two
    assert torch.allclose(hits / 3000, expected, atol=0.04)
