"""Few-shot learners against plain loops over episodes."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.evaluate import learners
from fallow.evaluate.affine import adapt, affine_names, learn_affine, outputs
from fallow.evaluate.heads import LinearHead
from fallow.evaluate.learners import LEARNERS, learn
from fallow.evaluate.sampling import episodes
from fallow.evaluate.span import CDFSL, Protocol, descend, fresh_heads, orders
from fallow.evaluate.statistics import interval, paired


def table(width: int = 64, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Positive features, as after a ReLU, of classes that overlap."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(8).repeat(20)
    x = torch.randn(8, width, generator=draw, dtype=torch.float64)[y] / 2
    return (x + torch.randn(len(y), width, generator=draw, dtype=torch.float64)).relu().to(dtype), y


def loop(x: Tensor, y: Tensor, start: LinearHead, seed: int, protocol: Protocol) -> nn.Linear:
    """The public protocol as one writes it, minibatches drawn as it goes."""
    head = nn.Linear(x.shape[1], start.weight.shape[0], dtype=x.dtype)
    with torch.no_grad():
        head.weight.copy_(start.weight)
        head.bias.copy_(start.bias)
    descent = torch.optim.SGD(
        head.parameters(), lr=protocol.rate, momentum=protocol.momentum,
        dampening=protocol.dampening, weight_decay=protocol.decay,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    for _ in range(protocol.epochs):
        order = rng.permutation(len(x))
        for j in range(0, len(x), protocol.batch):
            batch = torch.from_numpy(order[j : j + protocol.batch])
            descent.zero_grad()
            functional.cross_entropy(head(x[batch]), y[batch]).backward()
            descent.step()
    return head


def differences(protocol: Protocol, shots: int, count: int, dtype: torch.dtype) -> tuple[float, bool]:
    """The largest difference of a weight, and whether all predictions are equal."""
    x, labels = table(dtype=dtype)
    drawn = episodes(labels, 5, shots, 10, count, seed=0)
    y = torch.arange(5).repeat_interleave(shots)
    support, query = x[drawn.support.flatten(1)], x[drawn.query.flatten(1)]
    seeds = [mix(7, i) for i in range(count)]
    start = fresh_heads(seeds, 5, x.shape[1])
    start = LinearHead(start.weight.to(dtype), start.bias.to(dtype))
    found = descend(support, y, start, orders(seeds, 5 * shots, protocol.epochs), protocol)
    worst, equal = 0.0, True
    with torch.random.fork_rng():
        for i, seed in enumerate(seeds):
            head = loop(support[i], y, LinearHead(start.weight[i], start.bias[i]), seed, protocol)
            worst = max(worst, (found.weight[i] - head.weight).abs().max().item())
            worst = max(worst, (found.bias[i] - head.bias).abs().max().item())
            equal &= bool((found(query)[i].argmax(1) == head(query[i]).argmax(1)).all())
    return worst, equal


@pytest.mark.parametrize(("shots", "count"), [(1, 10), (5, 10)])
def test_the_span_follows_the_loop(shots: int, count: int) -> None:
    worst, equal = differences(CDFSL, shots, count, torch.float64)
    assert worst < 1e-12
    assert equal


def test_the_span_follows_the_loop_in_single_precision() -> None:
    worst, equal = differences(CDFSL, 1, 3, torch.float32)
    assert worst < 1e-5
    assert equal


@pytest.mark.parametrize(
    "other", [{"momentum": 0.5}, {"dampening": 0.0}, {"decay": 0.5}, {"batch": 7}, {"batch": 100}, {"rate": 0.3}]
)
def test_the_span_follows_the_loop_with_other_settings(other: dict[str, float]) -> None:
    worst, equal = differences(replace(CDFSL, epochs=15, **other), 3, 2, torch.float64)
    assert worst < 1e-11
    assert equal


def test_fresh_heads_are_those_of_a_linear_layer_in_distribution_and_depend_on_their_seed_alone() -> None:
    heads = fresh_heads([3, 4], 5, 1000)
    bound = 1000**-0.5
    assert heads.weight.abs().max() <= bound
    assert heads.weight.std() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert torch.equal(heads.weight[1], fresh_heads([4], 5, 1000).weight[0])


def test_episodes_are_drawn_without_replacement_and_the_first_do_not_depend_on_how_many_follow() -> None:
    y = torch.cat([torch.arange(7).repeat(9), torch.tensor([9, 9, 9, 9, 9, 9])])[torch.randperm(69)]
    drawn = episodes(y, 5, 2, 4, 100, seed=1)
    rows = torch.cat(drawn, 2)
    assert rows.shape == (100, 5, 6)
    assert (y[rows] == y[rows[..., :1]]).all()
    for episode in rows:
        assert len(episode.unique()) == 30
        assert len(y[episode[:, 0]].unique()) == 5
    assert len(y[rows].unique()) == 8
    assert torch.equal(episodes(y, 5, 2, 4, 30, seed=1).support, drawn.support[:30])
    assert not torch.equal(episodes(y, 5, 2, 4, 100, seed=2).support, drawn.support)
    counts = torch.bincount(rows.flatten(), minlength=69)[y < 7].double()
    assert counts.std() / counts.mean() < 0.25  # every example about as often as another


@pytest.mark.parametrize(
    ("ways", "shots", "queries", "says"),
    [
        (5, 1, 1, "there are 4 classes: 5-way episodes need 5"),
        (3, 2, 2, "class 'cat' has 3 images: 2 shots and 2 queries need 4; take fewer, or leave the class out"),
        (1, 1, 1, "ways is 1: it must be a whole number from 2"),
        (3, 0, 1, "shots is 0: it must be a whole number from 1"),
    ],
)
def test_episodes_that_cannot_be_drawn_are_refused(ways: int, shots: int, queries: int, says: str) -> None:
    y = torch.cat([torch.arange(3).repeat(4), torch.tensor([5, 5, 5])])
    with pytest.raises(RequestError) as error:
        episodes(y, ways, shots, queries, 10, 0, names=["ant", "bee", "cow", "-", "-", "cat"])
    assert str(error.value) == says


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_judge_episodes_alike_in_chunks_of_any_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table()
    drawn = episodes(y, 4, 3, 10, 12, seed=0)
    together = learn(x, drawn, name, seed=5)
    assert together.shape == (12,)
    assert 0.4 < together.mean() < 1.0
    monkeypatch.setattr(learners, "BYTES", 1)
    assert torch.equal(learn(x, drawn, name, seed=5), together)


def test_the_protocol_by_name_is_the_loop() -> None:
    x, labels = table()
    drawn = episodes(labels, 4, 1, 10, 3, seed=0)
    found = learn(x, drawn, seed=5)
    y, asked = torch.arange(4), torch.arange(4).repeat_interleave(10)
    for i in range(3):
        start = fresh_heads([mix(5, i)], 4, 64)
        head = loop(x[drawn.support[i, :, 0]], y, LinearHead(start.weight[0], start.bias[0]), mix(5, i), CDFSL)
        assert found[i] == (head(x[drawn.query[i].flatten()]).argmax(1) == asked).double().mean()


def test_the_logistic_learner_is_scikit_learns() -> None:
    x, labels = table()
    drawn = episodes(labels, 4, 3, 10, 5, seed=0)
    found = learn(x, drawn, "logistic")
    y, asked = torch.arange(4).repeat_interleave(3), torch.arange(4).repeat_interleave(10)
    for i in range(5):
        s, q = (x[rows[i].flatten()].numpy() for rows in drawn)
        spread = ((s - s.mean(0)) ** 2).sum() / len(s)
        theirs = LogisticRegression(C=1 / spread, tol=1e-10, max_iter=10000).fit(s, y).predict(q)
        assert found[i] == (torch.from_numpy(theirs) == asked).double().mean()


def test_an_unknown_learner_is_refused() -> None:
    x, y = table()
    with pytest.raises(RequestError, match="did you mean 'nearest'"):
        learn(x, episodes(y, 4, 1, 1, 1, 0), "neares")


def test_the_same_episodes_make_pairs() -> None:
    x, y = table()
    drawn = episodes(y, 4, 1, 10, 60, seed=0)
    worse = x + torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    ours, theirs = (learn(features, drawn, "nearest").tolist() for features in (x, worse))
    difference = paired(ours, theirs)
    apart = interval(ours), interval(theirs)
    assert difference is not None
    assert difference.low > 0
    assert difference.high - difference.low < sum(e.high - e.low for e in apart if e.high and e.low)


def backbone() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(),
            nn.Flatten(),
        ).double()  # fmt: skip
        net(torch.randn(50, 1, 6, 6, dtype=torch.float64))  # running statistics of some data
    return net.eval()


def pictures() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(4).repeat(12)
    patterns = torch.randn(4, 1, 6, 6, generator=draw, dtype=torch.float64)
    return patterns[y] + torch.randn(48, 1, 6, 6, generator=draw, dtype=torch.float64), y


def test_affine_adaptation_is_a_plain_loop_and_leaves_the_backbone_as_it_was() -> None:
    x, labels = pictures()
    drawn = episodes(labels, 3, 3, 5, 1, seed=0)
    x, query, y = x[drawn.support.flatten()], x[drawn.query.flatten()], torch.arange(3).repeat_interleave(3)
    net = backbone()
    before = copy.deepcopy(net.state_dict())
    protocol = replace(CDFSL, epochs=20)
    start = LinearHead(*(p[0].double() for p in fresh_heads([1], 3, 32)))
    adapted = adapt(net, x, y, start, orders([1], 9, 20)[0], protocol)
    assert affine_names(net) == ["1.weight", "1.bias", "4.weight", "4.bias"]
    assert not net.training
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(p.grad is None for p in net.parameters())

    plain = copy.deepcopy(net).train()
    for p in plain.parameters():
        p.requires_grad_(p.ndim == 1 and p is not plain[0].bias and p is not plain[3].bias)
    head = nn.Linear(32, 3, dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(start.weight)
        head.bias.copy_(start.bias)
    first = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9, dampening=0.9, weight_decay=1e-3)
    second = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.01)
    rng = np.random.default_rng(1)
    for _ in range(20):
        order = torch.from_numpy(rng.permutation(9))
        for batch in order.split(4):
            first.zero_grad()
            second.zero_grad()
            functional.cross_entropy(head(plain(x[batch])), y[batch]).backward()
            first.step()
            second.step()
    torch.testing.assert_close(adapted.head.weight, head.weight.detach(), atol=1e-10, rtol=0)
    for name, tensor in {**adapted.affines, **adapted.buffers}.items():
        torch.testing.assert_close(tensor, plain.state_dict()[name], atol=1e-10, rtol=0)
    torch.testing.assert_close(outputs(net, adapted, query), head(plain.eval()(query)).detach(), atol=1e-9, rtol=0)
    assert (adapted.affines["1.weight"] - before["1.weight"]).abs().max() > 1e-3


def test_episodes_of_affine_adaptation_can_be_divided() -> None:
    x, y = pictures()
    drawn, protocol = episodes(y, 3, 2, 5, 4, seed=0), replace(CDFSL, epochs=3)
    whole = learn_affine(backbone(), x, drawn, range(4), seed=2, protocol=protocol)
    parts = [learn_affine(backbone(), x, drawn, some, seed=2, protocol=protocol) for some in ([0], [1, 2], [3], [])]
    assert torch.equal(torch.cat(parts), whole)


def test_a_backbone_without_affines_is_refused() -> None:
    with pytest.raises(RequestError, match="no norms"):
        learn_affine(nn.Flatten(), torch.zeros(8, 3), episodes(torch.arange(2).repeat(4), 2, 1, 1, 1, 0), [0])


def test_a_norm_that_would_see_one_value_is_refused() -> None:
    net, y = nn.BatchNorm1d(3), torch.arange(5).repeat(4)
    with pytest.raises(RequestError, match="minibatch of 1: take ways × shots that leave no single"):
        learn_affine(net, torch.randn(20, 3), episodes(y, 5, 1, 1, 1, 0), [0])
