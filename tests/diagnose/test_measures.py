from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow import relative_flatness
from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.diagnose import flatness, margins, noise, slices, spectrum, weight_size
from fallow.diagnose.slices import filter_normalised
from tests.diagnose.networks import dense, digits, hessian_of, network


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((net(x).argmax(1) == y).double().mean())


def test_margins_are_those_of_a_loop() -> None:
    x, y = digits(700)
    net = network("smooth", False)
    found = margins(net, x, y, n=50)
    expected = []
    for row, label in zip(functional.softmax(net(x), 1).tolist(), y.tolist(), strict=True):
        others = [p for c, p in enumerate(row) if c != label]
        expected.append(row[label] - max(others))
    assert found.values.tolist() == expected
    order = sorted(range(len(expected)), key=lambda i: (expected[i], i))[:50]
    assert found.indices.tolist() == order
    assert found.smallest.tolist() == [expected[i] for i in order]
    assert found.negative == pytest.approx(1 - accuracy(net, x, y))
    assert found.quantiles()[0.5] == np.median(expected)
    json.dumps(found.describe(), allow_nan=False)
    assert len(margins(net, x[:9], y[:9]).smallest) == 9


def test_margins_in_single_precision_keep_what_differs_near_one() -> None:
    logits = torch.tensor([[20.0, 0.0], [21.0, 0.0], [40.0, 0.0]])
    found = margins(nn.Identity(), logits, torch.zeros(3, dtype=torch.int64))
    assert found.values[0] < found.values[1] < found.values[2] == 1 - 2 * np.exp(-40)


def test_weight_size_is_that_of_appendix_d() -> None:
    x, _ = digits(300)
    net = network("convolution", True)
    found = weight_size(net, x, seed=3)
    index = torch.randperm(300, generator=torch.Generator().manual_seed(3))[:256]
    activations = net[:-1](x[index])
    assert found.head == "6"
    assert found.activations == pytest.approx(float(activations.norm().detach()), rel=1e-12)
    assert found.weight == pytest.approx(float(net[-1].weight.norm().detach()), rel=1e-12)
    assert found.size == pytest.approx(found.activations * found.weight)
    assert found.per_example == pytest.approx(found.size / 16)
    assert (found.sample, weight_size(net, x[:40]).sample) == (256, 40)
    json.dumps(found.describe(), allow_nan=False)


def bits(net: nn.Module) -> list[bytes]:
    return [tensor.detach().contiguous().numpy().tobytes() for tensor in net.state_dict().values()]


def test_noise_against_a_loop() -> None:
    x, y = digits()
    net = copy.deepcopy(network("convolution", True)).train()
    before, random = bits(net), torch.get_rng_state()
    found = noise(net, "cross_entropy", x, y, sigmas=(0.0, 0.05, 0.5), draws=4)
    assert bits(net) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert net.training
    net.eval()
    assert found.loss == pytest.approx(float(functional.cross_entropy(net(x), y).detach()))
    assert found.accuracy == accuracy(net, x, y)
    assert found.losses[0].tolist() == [0.0] * 4
    assert (found.losses[2] > 0).all()
    assert len(set(found.losses[1])) == 4
    again = noise(net, "cross_entropy", x, y, sigmas=(0.05,), draws=2)
    assert again.losses[0].tolist() == found.losses[1, :2].tolist()  # the same draws for every σ and every count
    # for a small σ the mean change is σ² Tr H / 2, which holds the scale of the noise to account
    small = noise(net, "cross_entropy", x, y, sigmas=(1e-3,), draws=40, seed=1)
    expected = 0.5e-6 * float(hessian_of("convolution", True).diagonal().sum())
    spread = small.losses.std(ddof=1) / np.sqrt(40)
    assert abs(small.losses.mean() - expected) < 3 * spread
    described = json.loads(json.dumps(found.describe(), allow_nan=False))
    assert described["accuracy"]["mean"][0] == 0.0


def test_noise_on_some_parameters_and_without_classes() -> None:
    x = torch.randn(30, 3)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    found = noise(net, "squared_error", x, torch.randn(30, 1), sigmas=(1e30,), draws=2, parameters=["2"])
    assert found.accuracies is None
    described = found.describe()
    json.dumps(described, allow_nan=False)
    assert "accuracy" not in described


def test_slices_pass_through_the_weights() -> None:
    x, y = digits()
    net = network("convolution", True)
    before = bits(net)
    one = slices(net, "cross_entropy", x, y, points=5, radius=0.5)
    two = slices(net, "cross_entropy", x, y, points=5, radius=0.5, dimensions=2)
    assert bits(net) == before
    now = float(functional.cross_entropy(net(x), y).detach())
    assert one.losses[2] == pytest.approx(now, rel=1e-12)
    assert two.losses[2, 2] == pytest.approx(now, rel=1e-12)
    assert two.losses[:, 2] == pytest.approx(one.losses, rel=1e-12)  # the first direction is the same
    assert two.accuracies is not None
    assert two.accuracies[2, 2] == accuracy(net, x, y)
    moved = copy.deepcopy(net)
    first, second = (filter_normalised(list(net.parameters()), seed) for seed in (mix(0, 0), mix(0, 1)))
    with torch.no_grad():
        for weight, d, e in zip(moved.parameters(), first, second, strict=True):
            weight += 0.25 * d - 0.5 * e
    expected = float(functional.cross_entropy(moved(x), y).detach())
    assert two.losses[3, 0] == pytest.approx(expected, rel=1e-9)
    json.dumps(two.describe(), allow_nan=False)


def test_a_norm_over_several_dimensions_stays_in_a_slice() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.LayerNorm([2, 2, 2]), nn.Flatten(), nn.Linear(8, 3))
    x, y = torch.randn(6, 1, 4, 4), torch.arange(6) % 3
    still = slices(net, "cross_entropy", x, y, points=3, parameters=["1"])
    assert len(set(still.losses.tolist())) == 1
    whole, without = (slices(net, "cross_entropy", x, y, points=3, parameters=p) for p in (None, ["0"]))
    assert whole.losses[0] != without.losses[0] != still.losses[0]


def test_directions_have_the_norm_of_each_filter() -> None:
    net = network("convolution", True)
    for weight, direction in zip(net.parameters(), filter_normalised(list(net.parameters()), 0), strict=True):
        if weight.ndim > 1:
            assert torch.allclose(direction.flatten(1).norm(dim=1), weight.flatten(1).norm(dim=1))
        else:
            assert not direction.any()


@pytest.mark.parametrize("function", [noise, slices])
def test_weights_come_back_even_when_the_loss_fails(function: Callable[..., Any]) -> None:
    x, y = digits()
    net = copy.deepcopy(network("relu", True))
    before, calls = bits(net), []

    def loss(output: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            assert bits(net) != before
            raise KeyboardInterrupt
        return functional.cross_entropy(output, targets)

    with pytest.raises(KeyboardInterrupt):
        function(net, loss, x, y)
    assert bits(net) == before


def test_flatness_of_every_layer() -> None:
    x, y = digits(300)
    net = network("relu", True)
    found = flatness(net, "cross_entropy", x, y)
    exact = dense(net, x, y)
    at = 0
    for path, layer in (("1", net[1]), ("3", net[3])):
        d, m = layer.weight.shape
        block = exact[at : at + d * m, at : at + d * m].reshape(d, m, d, m)
        traces = torch.einsum("sitj,ij->st", block, torch.eye(m, dtype=torch.float64))
        kappa = float((traces * (layer.weight @ layer.weight.T)).sum().detach())
        assert found.layers[path].exact
        assert found.layers[path].kappa.value == pytest.approx(kappa, rel=1e-9)  # in two chunks
        at += d * (m + 1)
    json.dumps(found.describe(), allow_nan=False)


def test_flatness_names_what_it_cannot_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fallow.diagnose.flatness"], "CHEAP", 4)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 2), nn.Tanh(), nn.Conv2d(8, 8, 2, groups=2), nn.Flatten(), nn.Linear(32, 4))
    x, y = digits()
    found = flatness(net.double(), "cross_entropy", x, y, probes=40)
    assert list(found.layers) == ["0", "4"]
    assert "2 groups" in found.left_out["2"]
    first = found.layers["0"]
    assert (first.form, first.exact) == ("probe", False)
    exact = float(relative_flatness(net, "0", x, y, form="dense").detach())
    assert first.kappa.low < exact < first.kappa.high


def test_bad_input_is_one_line() -> None:
    x, y = digits()
    net = network("relu", True)
    diverged = copy.deepcopy(net)
    diverged[3].weight.data[0, 0] = float("inf")
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("3.weight is not finite in 1 of", lambda: margins(diverged, x, y)),
        ("3.weight is not finite in 1 of", lambda: weight_size(diverged, x)),
        ("3.weight is not finite in 1 of", lambda: noise(diverged, "cross_entropy", x, y)),
        ("3.weight is not finite in 1 of", lambda: slices(diverged, "cross_entropy", x, y)),
        ("3.weight is not finite in 1 of", lambda: flatness(diverged, "cross_entropy", x, y)),
        ("unknown layer '2'", lambda: flatness(net, "cross_entropy", x, y, layers=["2"])),
        ("no linear layer or convolution", lambda: flatness(nn.Flatten(), "cross_entropy", x, y)),
        ("unknown parameter or module '9'", lambda: noise(net, "cross_entropy", x, y, parameters=["9"])),
        ("unknown parameter or module '9'", lambda: slices(net, "cross_entropy", x, y, parameters=["9"])),
        ("sigmas=", lambda: noise(net, "cross_entropy", x, y, sigmas=(-1.0,))),
        ("dimensions=3", lambda: slices(net, "cross_entropy", x, y, dimensions=3)),
        ("points=1", lambda: slices(net, "cross_entropy", x, y, points=1)),
        ("unknown loss 'ce'", lambda: noise(net, "ce", x, y)),
        ("no margin", lambda: margins(net, x, y.double())),
        ("n=0", lambda: margins(net, x, y, n=0)),
        ("no layer with a weight matrix", lambda: weight_size(nn.BatchNorm2d(1).double(), x)),
        ("90 inputs and 80 targets", lambda: margins(net, x, y[:80])),
        ("no examples", lambda: noise(net, "cross_entropy", x[:0], y[:0])),
    ]
    for words, call in calls:
        with pytest.raises(RequestError) as raised:
            call()
        assert words in str(raised.value)
        assert "\n" not in str(raised.value)


def test_targets_of_one_number_may_lack_an_axis() -> None:
    """(N,) against outputs of (N, 1): broadcast, every output would be compared with every target."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x, y = torch.randn(12, 3, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    flat, column = (spectrum(net, "squared_error", x, target).top for target in (y, y[:, None]))
    assert flat == column
    kappas = [relative_flatness(net, "0", x, target, "squared_error") for target in (y, y[:, None])]
    assert kappas[0] == kappas[1]
