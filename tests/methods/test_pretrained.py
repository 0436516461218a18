"""Probing and fine-tuning, against scikit-learn and against what they say of rates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import fallow
from fallow.base.errors import RequestError
from fallow.data import Data
from fallow.data.normalise import normalise
from fallow.training.prepare import prepare

NET = "scnn:width=4,dense=16,norm=batch"


@pytest.fixture(scope="module")
def weights(images: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "weights.pt"
    found = fallow.fit(NET, images, generations=1, epochs=2, seed=3).network.state_dict()
    torch.save({name: tensor for name, tensor in found.items() if not name.startswith("head")}, file)
    return file


def test_probe_is_logistic_regression_on_the_features(images: Data, weights: Path) -> None:
    found = fallow.fit(NET, images, "probe:strength=0.01", weights=weights)
    before = prepare(NET, images, weights=weights).model.eval()
    with torch.no_grad():
        features = body(before, scaled(images))
    for name, tensor in before.state_dict().items():
        assert name.startswith("head") or torch.equal(found.network.state_dict()[name], tensor), name
    x = features.double()
    penalty = 0.01 * (x - x.mean(0)).square().sum() / x.shape[1]
    theirs = LogisticRegression(C=1 / penalty.item(), tol=1e-10, max_iter=10_000).fit(x.numpy(), images.train.y)
    torch.testing.assert_close(
        found.network.head(features).softmax(1).double(), torch.from_numpy(theirs.predict_proba(x.numpy())),
        rtol=0, atol=1e-4,
    )  # fmt: skip
    assert found.history[0]["strength"] == 0.01
    assert found.passes == pytest.approx(3 / 3)  # 96 examples in batches of 32, forward only


def scaled(images: Data) -> torch.Tensor:
    return normalise(images.train.x, images.mean, images.std)


def body(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model.dense(model.conv4(model.conv3(model.conv2(model.conv1(x)))))


def test_probe_chooses_its_penalty_on_validation(images: Data, weights: Path) -> None:
    chosen = fallow.fit(NET, images, "probe", weights=weights)
    strengths = (1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3)
    each = [fallow.fit(NET, images, f"probe:strength={s}", weights=weights).last for s in strengths]
    best = max(each, key=lambda last: (last["val_accuracy"], -last["val_loss"]))
    assert chosen.last == pytest.approx(best)
    assert chosen.history[0]["strength"] == strengths[each.index(best)]


@pytest.mark.parametrize("method", ["probe", "finetune", "lp-ft"])
def test_a_network_that_starts_afresh_is_refused(method: str, images: Data) -> None:
    with pytest.raises(RequestError, match=f"{method} uses what a network has learned before, and {NET} starts afresh"):
        fallow.fit(NET, images, method)
    fallow.fit(prepare(NET, images).model, images, method)  # of a module only its owner knows


def test_rates_fall_towards_the_input(images: Data, weights: Path) -> None:
    ctx = prepare(NET, images, "finetune:rate=0.02,lowest=0.0625,head=3", weights=weights)
    names = {id(p): name for name, p in ctx.model.named_parameters()}
    rates = {names[id(p)]: group["base_lr"] for group in ctx.optimizer.param_groups for p in group["params"]}
    assert len(rates) == len(names)
    for k, block in enumerate(("conv1", "conv2", "conv3", "conv4", "dense")):
        own = {rate for name, rate in rates.items() if name.startswith(block)}
        assert sorted(own) == pytest.approx([0.02 * 0.5 ** (4 - k)])
    assert {rates["head.weight"], rates["head.bias"]} == {0.06}


class Stemmed(nn.Module):
    """A stem before its blocks and a norm after them, as a wide ResNet has them."""

    blocks = ("one", "two")

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.two(self.one(self.stem(x)))))


def test_a_norm_after_the_last_block_learns_at_its_rate() -> None:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    ctx = prepare(Stemmed(), (x, (x[:, 0] > 0).long()), "finetune:rate=0.02,lowest=0.1,head=3")
    names = {id(p): name.partition(".")[0] for name, p in ctx.model.named_parameters()}
    rates = {names[id(p)]: group["base_lr"] for group in ctx.optimizer.param_groups for p in group["params"]}
    assert rates == pytest.approx({"stem": 0.002, "one": 0.002, "two": 0.02, "norm": 0.02, "head": 0.06})


def test_the_head_learns_first_and_statistics_stay(images: Data, weights: Path) -> None:
    start = {name: t.clone() for name, t in prepare(NET, images, weights=weights, seed=5).model.state_dict().items()}
    moved: list[set[str]] = []

    def look(ctx: object) -> None:
        if ctx.clock.step == ctx.clock.steps:
            state = ctx.model.state_dict()
            moved.append({name for name, tensor in start.items() if not torch.equal(state[name], tensor)})

    fallow.fit(NET, images, "finetune:epochs=4,first=0.5", weights=weights, seed=5, observer=look)
    head = {"head.weight", "head.bias"}
    assert moved[0] == moved[1] == head
    assert moved[2] == moved[3] == {name for name in start if "running" not in name and "tracked" not in name}


def test_lpft_starts_from_the_probe(images: Data, weights: Path) -> None:
    probe = fallow.fit(NET, images, "probe", weights=weights)
    still = fallow.fit(NET, images, "lp-ft:rate=1e-30,epochs=1", weights=weights)
    for name, tensor in probe.network.state_dict().items():
        torch.testing.assert_close(still.network.state_dict()[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
    frozen = fallow.fit(NET, images, "lp-ft:rate=1e-30,epochs=1", weights=weights, freeze="head")
    torch.testing.assert_close(frozen.network.head.weight, probe.network.head.weight, rtol=1e-4, atol=1e-5)


def test_probe_fits_numbers_and_labels(weights: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=draw)
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(6))
    y = x[:, :2] * 3 + 1
    assert fallow.fit(net, (x, y), "probe", target="numbers").last["test_rmse"] < 0.05
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2))
    assert fallow.fit(net, (x, (y > 1).float()), "probe", target="labels").last["val_loss"] < 0.3


@pytest.mark.parametrize("redraw_from", ["weights", "init"])
def test_what_is_redrawn_was_learned_before(redraw_from: str, images: Data, weights: Path) -> None:
    """At the edge of a generation llf's late layers, statistics included, are those of the file; the head is new."""
    ctx = prepare(NET, images, "llf", weights=weights, redraw_from=redraw_from, generations=2, epochs=1)
    start = {name: tensor.clone() for name, tensor in ctx.model.state_dict().items()}
    with torch.no_grad():
        for tensor in ctx.model.state_dict().values():
            tensor.add_(1)
    late = [name for name in start if name.startswith(("conv3", "conv4", "dense"))]
    ctx.clock.generation = 1
    ctx.method.begin_generation(ctx)
    now = ctx.model.state_dict()
    again = [torch.equal(now[name], start[name]) for name in late]
    assert all(again) if redraw_from == "weights" else not any(again[i] for i, n in enumerate(late) if "conv.w" in n)
    assert not torch.equal(now["head.weight"], start["head.weight"])
    assert not torch.equal(now["head.weight"], start["head.weight"] + 1)
    assert torch.equal(now["conv1.conv.weight"], start["conv1.conv.weight"] + 1)
