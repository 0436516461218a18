"""U-Net: any size and number of dimensions, and that it learns masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fallow
from fallow.base.errors import RequestError
from fallow.models import build


@pytest.mark.parametrize("shape", [(2, 17), (1, 8, 8), (3, 21, 33), (1, 9, 16, 11)])
def test_a_channel_for_each_class_of_the_size_of_the_input(shape: tuple[int, ...]) -> None:
    net = build("unet:width=4", shape=shape, classes=3)
    assert net(torch.randn(2, *shape)).shape == (2, 3, *shape[1:])


def test_sizes_that_it_cannot_take() -> None:
    with pytest.raises(RequestError, match="at least 8 pixels a side"):
        build("unet", shape=(1, 7, 7), classes=2)
    with pytest.raises(RequestError, match="depth should be at most 2"):
        build("unet:depth=3", shape=(1, 16, 16), classes=2)
    with pytest.raises(RequestError, match=r"depth of model unet cannot be 'deep'"):
        build("unet:depth=deep", shape=(1, 16, 16), classes=2)


def test_it_is_the_default_for_masks_and_learns_them() -> None:
    """A square brighter than its surroundings; with the background alone, Dice would be 0."""
    draw = np.random.default_rng(0)
    y = np.zeros((60, 8, 8), np.int64)
    for mask in y:
        row, column = draw.integers(0, 5, 2)
        mask[row : row + 3, column : column + 3] = 1
    x = (y + draw.normal(0, 0.3, y.shape)).astype(np.float32)
    result = fallow.fit(None, (x, y), target="dense", as_="images", generations=1, epochs=8, batch_size=8, lr=0.05)
    assert type(result.network).__name__ == "UNet"
    assert result.last["test_dice"] > 0.9
