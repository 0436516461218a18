"""Networks without their heads, and features that are computed once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fallow import models
from fallow.base.errors import RequestError
from fallow.data import Examples
from fallow.data.normalise import normalise
from fallow.models import frozen as module
from fallow.models.frozen import LAST, Frozen, frozen_features

MEAN, STD = torch.tensor([100.0, 110.0, 120.0]), torch.tensor([50.0, 60.0, 70.0])


def pictures(channels: int = 3, side: int = 8, count: int = 20) -> Examples:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, channels, side, side), generator=draw, dtype=torch.uint8)
    return Examples(x, torch.arange(count) % 2)


def network(name: str = "scnn:width=4,dense=8") -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.build(name, shape=(3, 8, 8), classes=5).eval()


@pytest.mark.parametrize("name", ["scnn:width=4,dense=8", "mlp:hidden=7,6", "resnet18:width=4"])
def test_the_head_of_the_features_is_the_network(name: str) -> None:
    net, part = network(name), pictures()
    found = frozen_features(Frozen(net, (3, 8, 8), MEAN, STD), part, blocks=None)
    assert list(found)[:-1] == list(net.blocks)
    whole = net(normalise(part.x, MEAN, STD))
    torch.testing.assert_close(net.head(found[LAST]), whole)


def test_the_last_block_of_any_network_is_among_its_blocks() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    found = frozen_features(Frozen(net, (3, 8, 8), None, None), pictures(), blocks=None)
    assert list(found) == ["1", "3", LAST]
    assert torch.equal(found["3"], found[LAST])


def test_images_of_other_sizes_and_colours_are_brought_to_the_networks() -> None:
    frozen, grey = Frozen(network(), (3, 8, 8), MEAN, STD), pictures(1, 8)
    as_three = Examples(grey.x.repeat(1, 3, 1, 1), grey.y)
    torch.testing.assert_close(frozen_features(frozen, grey), frozen_features(frozen, as_three))
    assert frozen.fits((1, 8, 8)) == "grey taken as three equal channels"
    assert frozen.fits((3, 8, 8)) == ""
    assert frozen.fits((1, 9, 4)) == "resized from 9×4 to 8×8 and grey taken as three equal channels"
    dark = Frozen(models.build("scnn", shape=(1, 8, 8), classes=2), (1, 8, 8), MEAN[:1], STD[:1])
    colours = pictures()
    flat = Examples(colours.x.float().mean(1, keepdim=True), colours.y)
    torch.testing.assert_close(frozen_features(dark, colours), frozen_features(dark, flat))
    for shape in ((4, 8, 8), (12,), (3, 8)):
        with pytest.raises(RequestError, match="only images can be resized"):
            frozen.fits(shape)


def test_features_are_computed_once_for_one_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = module.features

    def counted(*arguments: object) -> object:
        calls.append(1)
        return plain(*arguments)

    monkeypatch.setattr(module, "features", counted)
    net, part = network(), pictures()

    def asked(mean: torch.Tensor = MEAN, part: Examples = part, **more: object) -> dict[str, torch.Tensor]:
        return frozen_features(Frozen(net, (3, 8, 8), mean, STD), part, tmp_path, **more)

    first = asked()
    torch.testing.assert_close(asked(part=pictures()), first)
    assert len(calls) == 1
    asked(mean=MEAN + 1)
    asked(part=pictures(count=10))
    asked(blocks=["conv1"])
    with torch.no_grad():
        next(net.parameters()).add_(1)
    asked()
    assert len(calls) == 5
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    asked()
    assert len(calls) == 6


def test_what_has_no_features_is_refused() -> None:
    dense = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    with pytest.raises(RequestError, match="the model ends in a Conv2d: features are what a linear layer"):
        Frozen(dense, (3, 8, 8), None, None)
    net = network()
    with torch.no_grad():
        next(net.parameters()).fill_(float("nan"))
    with pytest.raises(RequestError, match="not finite"):
        frozen_features(Frozen(net, (3, 8, 8), None, None), pictures())
    with pytest.raises(RequestError, match="unknown block 'conv9'"):
        frozen_features(Frozen(network(), (3, 8, 8), None, None), pictures(), blocks=["conv9"])
