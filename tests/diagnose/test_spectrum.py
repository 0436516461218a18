from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from fallow.base.errors import RequestError
from fallow.diagnose import spectrum, top_of_batches
from fallow.diagnose.lanczos import Lanczos, ends
from fallow.diagnose.quadrature import tridiagonal
from fallow.diagnose.sums import Sums
from fallow.diagnose.trace import hutch
from tests.diagnose.networks import NAMES, dense, digits, hessian_of, network


@pytest.mark.parametrize(("name", "trained"), [(name, name != "relu") for name in NAMES])
def test_against_the_dense_hessian(name: str, trained: bool) -> None:
    values = torch.linalg.eigvalsh(hessian_of(name, trained)).numpy()
    found = spectrum(network(name, trained), "cross_entropy", *digits(), probe_steps=32, probes=6, threshold=1e-3)
    assert found.converged
    assert found.largest.value == pytest.approx(values[-1], rel=1e-5)
    assert found.smallest.value == pytest.approx(values[0], rel=1e-5)
    assert [one.value for one in found.top] == pytest.approx(values[-1:-6:-1], rel=1e-5)
    assert found.trace.low < values.sum() < found.trace.high
    mass = -values[values < 0].sum() / abs(values).sum()
    assert found.negative_mass.low < mass < found.negative_mass.high
    share = (values < -1e-3 * values[-1]).mean()
    assert found.negative_share.low <= share <= found.negative_share.high
    assert found.steps <= found.products == found.steps + 6 + 6 * 32
    density = found.density
    assert np.trapezoid(density.values, density.grid) == pytest.approx(1, abs=1e-3)
    assert density.width == pytest.approx(0.01 * (values[-1] - values[0]), rel=1e-4)
    inside = (density.grid > values[0] - 3 * density.width) & (density.grid < values[-1] + 3 * density.width)
    apart = (density.grid[inside][:, None] - values) / density.width
    blurred = np.exp(-0.5 * apart**2).mean(1) / (density.width * np.sqrt(2 * np.pi))
    difference = abs(density.values[inside] - blurred)
    assert np.trapezoid(difference, density.grid[inside]) < 0.25
    json.dumps(found.describe(), allow_nan=False)


@pytest.mark.parametrize(("name", "trained"), [("smooth", True), ("layernorm", False)])
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, trained: bool) -> None:
    """In at least 90 of 100 repetitions, with the default number of probes."""
    exact = hessian_of(name, trained)
    values = torch.linalg.eigvalsh(exact).numpy()
    mass = -values[values < 0].sum() / abs(values).sum()
    hits, sizes = np.zeros(2), np.zeros(2)
    for seed in range(100):
        generator = torch.Generator().manual_seed(seed)

        def draw(generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randn(len(exact), generator=generator, dtype=torch.float64)

        known = Lanczos(exact.mv, draw(), ends(5, 1))
        trace = hutch(exact.mv, known, 10, generator)
        settled = np.flatnonzero(known.residuals <= 1e-3 * abs(known.values))
        probes = [tridiagonal(exact.mv, draw(), 24, without=known.vectors(settled)) for _ in range(10)]
        share = Sums(known.values[settled], probes, len(exact) - len(settled)).negative_mass()
        hits += trace.low <= values.sum() <= trace.high, share.low <= mass <= share.high
        sizes += trace.high - trace.low, share.high - share.low
    assert (hits >= 90).all(), hits
    assert sizes[0] / 100 < 1.5 * abs(values).sum()  # intervals that hold everything would be no feat
    assert sizes[1] / 100 < 0.2


def test_seeded_and_nothing_is_touched() -> None:
    x, y = digits()
    net = network("convolution", True)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random = torch.get_rng_state()
    options = {"mode": "train", "probes": 2, "probe_steps": 4, "steps": 12}
    first = spectrum(net, "cross_entropy", x, y, **options)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not net.training
    assert spectrum(net, "cross_entropy", x, y, **options).describe() == first.describe()
    other = spectrum(net, "cross_entropy", x, y, seed=1, **options)
    assert other.trace != first.trace
    assert (first.mode, first.chunk, first.examples) == ("train", 90, 90)
    largest = float(torch.linalg.eigvalsh(dense(net, x, y, "train"))[-1])
    assert first.largest.value == pytest.approx(largest, rel=1e-5)


def test_too_few_steps_are_not_called_converged() -> None:
    found = spectrum(network("smooth", True), "cross_entropy", *digits(), steps=4, probes=2, probe_steps=2)
    assert not found.converged
    assert not found.smallest.converged
    truth = float(torch.linalg.eigvalsh(hessian_of("smooth", True))[-1])
    assert abs(found.largest.value - truth) <= found.largest.error


def test_a_model_with_as_many_steps_as_weights_is_exact() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(30, 2, dtype=torch.float64), torch.arange(30) % 2
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)).double()
    values = torch.linalg.eigvalsh(dense(net, x, y)).numpy()
    # two logits leave the softmax as it is when both grow: H has repeated zeros, which Lanczos finds once
    found = spectrum(net, "cross_entropy", x, y, tolerance=1e-12)
    assert found.trace.value == pytest.approx(values.sum(), abs=1e-9)
    assert found.negative_mass.value == pytest.approx(-values[values < 0].sum() / abs(values).sum(), abs=1e-9)
    assert found.negative_share.value == pytest.approx((values < -1e-4 * values[-1]).mean(), abs=1e-9)


def test_progress_counts_products() -> None:
    seen: list[tuple[int, int]] = []
    spectrum(
        network("relu", True), "cross_entropy", *digits(), probes=2, probe_steps=3, steps=9,
        progress=lambda done, most: seen.append((done, most)),
    )  # fmt: skip
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert all(done <= most == 9 + 2 + 6 for done, most in seen)


def test_top_of_batches_counts_as_earlier_papers_did() -> None:
    x, y = digits()
    net = network("smooth", False)
    found = top_of_batches(net, "cross_entropy", x, y, k=3, batch_size=16, tolerance=1e-6)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    expected = []
    for index in order[:80].split(16):
        values = torch.linalg.eigvalsh(dense(net, x[index], y[index])).numpy()
        expected.append(values[np.argsort(-abs(values))[:3]])
    assert found.eigenvalues == pytest.approx(np.array(expected), rel=1e-5)
    assert found.converged
    assert found.negative_share == (np.array(expected) < 0).mean() > 0
    whole = spectrum(net, "cross_entropy", x, y, top=3, probes=2, probe_steps=2, batch_size=16)
    assert whole.top_of_batches is not None
    assert whole.top_of_batches.negative_share == found.negative_share
    json.dumps(whole.describe(), allow_nan=False)


def test_refuses() -> None:
    x, y = digits()
    net = network("relu", True)
    for options, words in (
        ({"top": 0}, "top=0"),
        ({"probes": 1}, "probes=1"),
        ({"steps": 1}, "steps=1"),
        ({"parameters": ["nothing"]}, "unknown parameter or module 'nothing'"),
    ):
        with pytest.raises(RequestError, match=words):
            spectrum(net, "cross_entropy", x, y, **options)
    broken = copy.deepcopy(net)
    broken[1].bias.data[0] = float("nan")
    with pytest.raises(RequestError, match="not finite"):
        spectrum(broken, "cross_entropy", x, y)
    with pytest.raises(RequestError, match="batch_size=0"):
        top_of_batches(net, "cross_entropy", x, y, batch_size=0)
