"""Networks cut in two, and training behind frozen layers, against training the whole with the same layers fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import fallow
from fallow import models
from fallow.base.errors import RequestError
from fallow.data import Data
from fallow.models import features as kept
from fallow.models.cut import Cut
from fallow.models.features import front_features
from fallow.training.prepare import prepare
from tests.conftest import small_images

SCNN = "scnn:width=4,dense=16"
SETTINGS = {"generations": 1, "epochs": 3, "batch_size": 16, "lr": 0.05, "seed": 4, "precision": "float64"}


def network(name: str, shape: tuple[int, ...]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return models.build(name, shape=shape, classes=3).eval()


@pytest.mark.parametrize(
    ("name", "at", "begins"),
    [
        ("mlp:hidden=7,6,5", 1, "hidden2"), (SCNN, "conv3", "conv3"), (SCNN, 0.4, "conv3"), (SCNN, "head", "head"),
        ("resnet18:width=4", "layer3", "layer3"), ("resnet18:width=4", "layer2.1", "layer2.1"),
        ("wideresnet:depth=10,widen=1", "head", "head"), ("vgg16:dense=8", 5, "conv6"),
        ("mobilenet", "block4", "block4"), ("lite0:pretrained=false", "stage6.2", "stage6.2"),
        ("lite0:pretrained=false", "head", "head"),
    ],
)  # fmt: skip
def test_the_two_parts_are_the_network(name: str, at: str | int | float, begins: str) -> None:
    net, x = network(name, (3, 16, 16)), torch.randn(3, 3, 16, 16)
    cut = Cut(net, at, x[:2])
    assert cut.at == begins
    with torch.no_grad():
        whole = net(x)
        torch.testing.assert_close(cut.tail.eval()(cut.front(x)), whole)
        own = dict(net.named_parameters())
        for name, parameter in cut.tail.named_parameters():
            torch.testing.assert_close(parameter, own[name])  # the same names
            parameter.add_(1)
        changed = cut.joined(cut.tail)(x)
    assert not torch.allclose(changed, whole)
    torch.testing.assert_close(cut.tail(cut.front(x)), changed)


def test_what_cannot_be_cut_is_refused() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.b(self.a(x)) + x)

    x = torch.randn(2, 4)
    with pytest.raises(RequestError, match=r"cannot be frozen up to b .*: freeze=head trains the last layer"):
        Cut(Around(), "b", x)
    assert Cut(Around(), "head", x).trained == ["head"]
    with pytest.raises(RequestError, match="leaves nothing before it"):
        Cut(Around(), "a", x)
    with pytest.raises(RequestError, match="unknown module in freeze 'c'"):
        Cut(Around(), "c", x)
    with pytest.raises(RequestError, match="freeze=7 does not fit a model of 2 blocks"):
        Cut(Around(), 7, x)


@pytest.mark.parametrize("augment", ["none", "crop"])
@pytest.mark.parametrize("method", ["normal", "ema:decay=0.9", "sam"])
def test_training_behind_frozen_layers_is_training_with_them_fixed(method: str, augment: str, images: Data) -> None:
    found = fallow.fit(SCNN, images, method, freeze="conv4", augment=augment, **SETTINGS)
    whole = prepare(SCNN, images, seed=4).model
    early = {name: p.detach().clone() for name, p in whole.named_parameters() if name < "conv4"}
    for name in early:
        whole.get_parameter(name).requires_grad_(False)
    alone = fallow.fit(whole, images, method, augment=augment, **SETTINGS)
    for (name, mine), its in zip(found.network.named_parameters(), alone.network.parameters(), strict=True):
        torch.testing.assert_close(mine.double(), its.double(), rtol=0, atol=1e-6, msg=name)
        assert name not in early or torch.equal(mine.float(), early[name])
    assert found.last["test_accuracy"] == alone.last["test_accuracy"]


def test_a_run_behind_frozen_layers_is_kept_whole(images: Data, tmp_path: Path) -> None:
    found = fallow.fit(SCNN, images, "lw", freeze="conv3", generations=2, epochs=2, out=tmp_path / "run")
    predictor = fallow.Predictor(tmp_path / "run", weights="last")
    assert images.test is not None
    torch.testing.assert_close(predictor.logits(images.test.x), found.model.eval()(images.test.x).detach())


@pytest.mark.parametrize("freeze", ["conv3", "head"])
def test_what_was_trained_in_double_precision_answers_whole(freeze: str, images: Data) -> None:
    result = fallow.fit(SCNN, images, "ema", freeze=freeze, **SETTINGS)
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}
    with torch.no_grad():
        right = (result.model(images.test.x).argmax(1) == images.test.y).double().mean()
    assert float(right) == result.last["test_accuracy"]


@pytest.mark.parametrize("method", ["llf", "fc", "wels", "fam", "mixup", "swa"])
def test_the_head_alone_is_late(method: str, images: Data) -> None:
    found = fallow.fit(SCNN, images, method, freeze="head", generations=2, epochs=4, lr=0.1)
    assert found.last["train_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("seal", "all early layers are frozen"), ("cutmix", "there is no space left: use mixup"),
        ("fixmatch", "looks at images in ever new views: leave freeze=head out"),
        ("lw", "lw goes through 2 blocks and the model has 1"),
    ],
)  # fmt: skip
def test_what_a_head_alone_cannot_do_is_refused(method: str, why: str, images: Data) -> None:
    with pytest.raises(RequestError, match=why):
        fallow.fit(SCNN, images, method, freeze="head", generations=2, epochs=2)


def test_features_are_computed_once_for_every_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    plain = kept._computed

    def counted(front, part, data):
        computed.append(len(part))
        return plain(front, part, data)

    monkeypatch.setattr(kept, "_computed", counted)
    images = small_images()
    front = Cut(network(SCNN, (1, 8, 8)), "conv3", torch.zeros(2, 1, 8, 8)).front
    train = images.train
    first = front_features(front, train.subset(torch.arange(60)), images, tmp_path)
    order = torch.randperm(96, generator=torch.Generator().manual_seed(0))
    again = front_features(front, train.subset(order), images, tmp_path)  # another seed's split, 36 of them new
    assert computed == [60, 36]
    torch.testing.assert_close(again, plain(front, train.subset(order), images))
    torch.testing.assert_close(first, plain(front, train.subset(torch.arange(60)), images))
    other = Cut(network(SCNN, (1, 8, 8)), "conv4", torch.zeros(2, 1, 8, 8)).front
    front_features(other, train, images, tmp_path)
    assert computed[-1] == 96
    for file in tmp_path.glob("*/*.safetensors"):
        file.write_bytes(b"damaged")
    torch.testing.assert_close(front_features(front, train.subset(order), images, tmp_path), again)
    assert computed[-1] == 96
