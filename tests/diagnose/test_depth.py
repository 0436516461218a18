from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fallow import models
from fallow.base.errors import RequestError
from fallow.diagnose import neighbours, prediction_depth
from tests.diagnose.networks import digits, network

MODULE = sys.modules["fallow.evaluate.neighbours"]


def brute(train: torch.Tensor, test: torch.Tensor, k: int, distance: str) -> torch.Tensor:
    """By the definition, in float64; a stable sort settles ties by the lower index."""
    train, test = train.double(), test.double()
    if distance == "euclidean":
        far = (test[:, None] - train[None]).square().sum(2)
    else:
        far = 1 - functional.cosine_similarity(test[:, None], train[None], dim=2, eps=1e-30)
    return far.sort(dim=1, stable=True).indices[:, :k]


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize(("n", "m", "k"), [(7, 5, 1), (300, 40, 5), (2000, 30, 7), (3001, 20, 5)])
def test_neighbours_are_those_of_brute_force(
    distance: str, n: int, m: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(n)
    train = torch.randn(n, 6, generator=draw, dtype=torch.float64) + 50
    test = torch.randn(m, 6, generator=draw, dtype=torch.float64) + 50
    expected = brute(train, test, k, distance)
    assert torch.equal(neighbours(train, test, k, distance=distance), expected)
    for rows, columns, group in ((16, 128, 4), (7, 1000, 8)):
        monkeypatch.setattr(MODULE, "ROWS", rows)
        monkeypatch.setattr(MODULE, "COLUMNS", columns)
        monkeypatch.setattr(MODULE, "GROUP", group)
        assert torch.equal(neighbours(train, test, k, distance=distance), expected)
    single = neighbours(train.float(), test.float(), k, distance=distance)
    assert (single == expected).double().mean() > 0.95


@pytest.mark.parametrize(("rows", "columns", "group"), [(1024, 16384, 64), (8, 128, 4), (50, 64, 2)])
def test_equal_distances_go_to_the_lower_index(
    rows: int, columns: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "ROWS", rows)
    monkeypatch.setattr(MODULE, "COLUMNS", columns)
    monkeypatch.setattr(MODULE, "GROUP", group)
    draw = torch.Generator().manual_seed(0)
    for n in (300, 1024):
        for high in (1, 2, 5):  # whole numbers, so that distances are exact and most of them equal
            train = torch.randint(0, high, (n, 2), generator=draw).double()
            train = torch.cat([train, -train])  # their mean is 0, so that centring is exact too
            test = torch.randint(0, high, (20, 2), generator=draw).double()
            assert torch.equal(neighbours(train, test, 5), brute(train, test, 5, "euclidean"))


def test_a_zero_vector_is_at_a_right_angle_to_all() -> None:
    train = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.1]])
    assert neighbours(train, torch.tensor([[2.0, 0.0]]), 3, distance="cosine").tolist() == [[1, 0, 2]]


def reference(net: nn.Sequential, train, test, cuts: list[int], k: int, standard: bool):  # type: ignore[no-untyped-def]
    """Probes and depths in plain loops."""
    (x, y), (u, v) = train, test
    own = net(u).argmax(1)
    predictions = []
    for cut in cuts:
        a, b = (net[: cut + 1](values).flatten(2).mean(2) if cut < 6 else net[: cut + 1](values) for values in (x, u))
        if standard:
            mean, std = a.mean(0), a.std(0, correction=0)
            std[std == 0] = 1
            a, b = (a - mean) / std, (b - mean) / std
        row = []
        for near in brute(a, b, k, "euclidean"):
            labels = [int(y[i]) for i in near]
            most = max(labels.count(label) for label in labels)
            row.append(
                next(label for label in labels if labels.count(label) == most)
            )  # the nearest of the most frequent
        predictions.append(row)
    depths = []
    for i in range(len(u)):
        depth = len(cuts)
        while depth > 0 and predictions[depth - 1][i] == int(own[i]):
            depth -= 1
        depths.append(depth)
    accuracies = [np.mean([p == int(t) for p, t in zip(row, v, strict=True)]) for row in predictions]
    return accuracies, depths


@pytest.mark.parametrize("normalisation", ["none", "standard"])
@pytest.mark.parametrize("k", [4, 5])
def test_depth_is_its_definition(k: int, normalisation: str) -> None:
    x, y = digits(240)
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.ReLU(), nn.Conv2d(4, 6, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4),
    ).double()  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(15):
        optimizer.zero_grad()
        functional.cross_entropy(net(x[:160]), y[:160]).backward()
        optimizer.step()
    train, test = (x[:160], y[:160]), (x[160:], y[160:])
    found = prediction_depth(net, train, test, k=k, normalisation=normalisation)
    with torch.no_grad():
        accuracies, depths = reference(net, train, test, [1, 3, 6, 8], k, normalisation == "standard")
    assert found.layers == ("0", "2", "4", "7")
    assert found.accuracies.tolist() == accuracies
    assert found.depths.tolist() == depths
    assert len(set(depths)) > 2  # the case tests something
    assert found.counts.sum() == len(depths)
    assert found.mean == np.mean(depths)
    plain = json.loads(json.dumps(found.describe(), allow_nan=False))
    assert plain["depths"] == depths
    assert plain["distance"] == "euclidean"


def test_the_models_own_blocks_and_named_ones() -> None:
    data = torch.randn(40, 1, 8, 8), torch.arange(40) % 3
    net = models.build("resnet18:width=2", shape=(1, 8, 8), classes=3)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random = torch.get_rng_state()
    found = prediction_depth(net, data, data, k=1)
    assert found.layers == net.blocks
    assert found.accuracies.tolist() == [1.0] * 8  # every point is its own neighbour
    assert net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    named = prediction_depth(net, data, data, ["layer3.1", "layer2.0.conv1", "conv1"], k=1, pooling="flatten")
    assert named.layers == ("conv1", "layer2.0.conv1", "layer3.1")  # in the order in which they run
    assert named.pooling == "flatten"


def test_work_in_place_does_not_reach_the_features() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 3)
    data = x, torch.arange(50) % 2
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    found = prediction_depth(net, data, (x[:10] + 0.1, data[1][:10]), ["0"], pooling="flatten")
    near = brute(net[0](x), net[0](x[:10] + 0.1), 5, "euclidean")
    assert found.predictions[0].tolist() == (data[1][near].double().mean(1) > 0.5).long().tolist()


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"x": x}


def test_refuses() -> None:
    x, y = digits()
    data = x, y
    net = network("relu", True)
    for arguments, words in (
        ({"blocks": ["hidden"]}, "unknown block 'hidden'"),
        ({"blocks": []}, "no block can be found"),
        ({"k": 91}, "k=91"),
        ({"distance": "euclid"}, "did you mean 'euclidean'"),
        ({"pooling": "average"}, "unknown pooling"),
        ({"normalisation": "unit"}, "unknown normalisation"),
        ({"pooling": lambda rows: rows[0]}, "N×F"),
    ):
        with pytest.raises(RequestError, match=words):
            prediction_depth(net, data, data, **arguments)
    with pytest.raises(RequestError, match="no block can be found"):
        prediction_depth(Bare(), (torch.randn(9, 3), y[:9]), (torch.randn(9, 3), y[:9]))
    with pytest.raises(RequestError, match="no block can be found"):
        prediction_depth(nn.Identity(), (torch.randn(9, 3), y[:9]), (torch.randn(9, 3), y[:9]))
    odd = nn.Sequential(nn.Linear(3, 3), nn.Sequential(Pair()))
    odd.forward = lambda values: odd[1](odd[0](values))["x"]  # type: ignore[assignment]
    with pytest.raises(RequestError, match="gives a dict"):
        prediction_depth(odd, (torch.randn(9, 3), y[:9]), (torch.randn(9, 3), y[:9]), ["1"])
    idle = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    idle.forward = lambda values: idle[0](values)  # type: ignore[assignment]
    with pytest.raises(RequestError, match="does not run"):
        prediction_depth(idle, (torch.randn(9, 3), y[:9]), (torch.randn(9, 3), y[:9]), ["1"])
    with pytest.raises(RequestError, match="not finite"):
        prediction_depth(net, (x * torch.inf, y), data)
