"""Networks that were trained before: they see images in their own size and on their own scale, wherever they run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fallow
from fallow.base.errors import RequestError
from fallow.data import Data
from fallow.data.normalise import resized
from fallow.models import Inputs
from fallow.training.prepare import prepare


class Known(nn.Module):
    """A small network that was trained on images of 16 pixels, as (pixel − 100) / 50."""

    inputs = Inputs(size=20, mean=(100.0,), std=(50.0,), fast=16)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4, 3)
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(tuple(x.shape[1:]))
        return self.head(self.conv(x).relu().mean((2, 3)))


def test_images_are_resized_and_scaled_as_the_network_knows_them(images: Data) -> None:
    ctx = prepare(Known(), images, "normal")
    x, _ = next(iter(ctx.train.epoch(0)))
    assert x.shape[1:] == (1, 16, 16)
    whole = torch.cat([x for x, _ in ctx.val.ordered()])
    wanted = resized((images.val.x.float() - 100) / 50, 16)
    torch.testing.assert_close(whole, wanted)
    assert images.size is None  # the data of others stay as they are
    assert ctx.data.normalisation() == {"mean": [100.0], "std": [50.0], "size": 16}


def test_the_size_can_be_chosen(images: Data) -> None:
    net = Known()
    result = fallow.fit(net, images, "normal", epochs=1, input_size=12)
    assert set(net.seen) == {(1, 12, 12)}
    assert result.model.size == 12
    with pytest.raises(RequestError, match="size=12 out"):
        fallow.fit("scnn:width=4", images, "normal", epochs=1, input_size=12)


def test_the_model_takes_examples_as_the_data_hold_them(images: Data, tmp_path: Path) -> None:
    result = fallow.fit(Known(), images, "normal", epochs=2, out=tmp_path)
    kept = torch.cat([result.model(part) for part in images.test.x.split(7)])
    from fallow.core.record import RunFolder

    torch.testing.assert_close(kept, RunFolder(tmp_path).outputs()["test_last"], atol=1e-5, rtol=1e-4)
    predictor = fallow.Predictor(tmp_path, "last", model=Known())
    torch.testing.assert_close(predictor.logits(images.test.x), kept)


def test_numbers_on_a_scale_of_their_own_keep_it() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(60, 1, 8, 8, generator=draw), torch.arange(60) % 3
    ctx = prepare(Known(), (x, y), "normal")
    assert ctx.data.size == 16
    assert ctx.data.mean.item() == pytest.approx(0.5, abs=0.02)
