from __future__ import annotations

import copy
import math
import pickle
import random
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.swa_utils import update_bn

import fallow
from fallow.base.errors import RequestError
from fallow.core import loop
from fallow.core.method import Method
from fallow.data import Data
from fallow.data.targets import Classes
from fallow.methods import SWA, CutMix, Dropout, Mixup, build
from fallow.methods.baselines import swa
from fallow.methods.baselines.mixing import draw_box
from fallow.training.prepare import prepare
from tests.core.small import TINY, Net, equal, points, weights


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ema:decay=1", "decay is 1: it must be from 0 to below 1"),
        ("ema:decay=-0.1", "decay is -0.1"),
        ("swa:start=1", "start is 1: it must be from 0 to below 1"),
        ("swa:rate=0", "rate is 0: it must be above 0"),
        ("mixup:alpha=0", "alpha is 0: it must be above 0"),
        ("cutmix:alpha=-1", "alpha is -1: it must be above 0"),
        ("cutmix:probability=0", "probability is 0: it must be above 0 and at most 1"),
        ("dropout:rate=1", "rate is 1: it must be from 0 to below 1"),
        ("dropout:where=haed", "did you mean 'head'?"),
        ("ema+swa", "ema and swa do not go together: both choose the evaluated model"),
        ("mixup+cutmix", "mixup and cutmix do not go together: both decide the loss of a step"),
        ("mixup+born-again", "mixup and born-again do not go together: both decide the loss of a step"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(spec: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        build(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- averages -------------------------------------------------------------------------------------


class Normed(nn.Module):
    """A net with a batch norm; of two layers, as float64 as its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.double())


class Watch(Method):
    """Keeps the weights after every step and epoch of the present generation, and the learning rates."""

    name = "watch"

    def begin(self, ctx) -> None:
        self.rates: list[float] = []
        self.itself: list[bool] = []

    def begin_generation(self, ctx) -> None:
        self.steps: list[dict[str, Tensor]] = []
        self.epochs: list[dict[str, Tensor]] = []

    def end_step(self, ctx) -> None:
        self.steps.append(weights(ctx.model))
        self.rates.append(ctx.optimizer.param_groups[0]["lr"])

    def end_epoch(self, ctx) -> None:
        self.epochs.append(weights(ctx.model))
        self.itself.append(ctx.method.evaluated(ctx) is ctx.model)


def moving(history: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """The average of all steps as a weighted sum, with the weights multiplied out."""
    decays = [min(decay, t / (t + 9)) for t in range(len(history))]
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in history[0].items()}
    for t, step in enumerate(history):
        weight = (1 - decays[t]) * math.prod(decays[t + 1 :])
        for name, value in step.items():
            total[name] += weight * value
    return total


@pytest.mark.parametrize("spec", ["ema", "ema:decay=0.3", "restart+ema:decay=0.9"])
def test_ema_is_the_formula(spec: str) -> None:
    watch = Watch()
    torch.manual_seed(1)
    result = fallow.fit(Normed(), points(), build(spec) + watch, **(TINY | {"epochs": 5}))
    wanted = moving(watch.steps, 0.3 if "0.3" in spec else 0.9 if "0.9" in spec else 0.999)
    assert len(watch.steps) == (10 if "restart" in spec else 20)  # of the last generation: the average starts again
    for name, value in weights(result.network).items():
        if value.is_floating_point():  # running statistics as well
            torch.testing.assert_close(value, wanted[name], rtol=1e-12, atol=1e-14, msg=name)
            assert not torch.equal(value, watch.steps[-1][name]), name
        else:
            assert torch.equal(value, watch.steps[-1][name]), name


@pytest.mark.parametrize("spec", ["ema", "swa:rate=1"])
def test_an_average_changes_nothing_in_the_training(spec: str) -> None:
    settings = TINY | {"schedule": "constant"}
    net = Net()
    mine = fallow.fit(net, points(), spec, **settings)
    other = fallow.fit(Net(), points(), "long", **settings)
    assert [row["train_loss"] for row in mine.history] == [row["train_loss"] for row in other.history]
    assert mine.network is net  # trained in place, and it holds the average
    assert not equal(weights(mine.network), weights(other.network))


@pytest.mark.parametrize("rival", ["ema", "swa:start=0"])
@pytest.mark.parametrize("forgetting", ["llf", "seal:ascent=adaptive,share=0.5"])
def test_what_is_forgotten_is_measured_at_the_model_itself(rival: str, forgetting: str, images: Data) -> None:
    """An average would still remember: the number must not depend on it, in whatever order they are named."""
    settings = {"generations": 2, "epochs": 6, "batch_size": 16, "lr": 0.05, "schedule": "constant"}
    rate = ",rate=1" if "swa" in rival else ""  # the training itself must stay the same
    specs = (forgetting, f"{forgetting}+{rival}{rate}", f"{rival}{rate}+{forgetting}")
    alone, after, before = (fallow.fit("scnn:width=4,dense=16", images, s, **settings).generations[1] for s in specs)
    assert alone["forgot_to"] == after["forgot_to"] == before["forgot_to"]
    assert alone["forgot_to"] < 0.9


def test_an_average_takes_in_what_another_method_builds_in(images: Data) -> None:
    for spec in ("lw+ema", "ema+lw"):
        result = fallow.fit("scnn:width=4,dense=16", images, spec, generations=2, epochs=2, seed=1)
        assert "conv1.fixed_norm.std" in result.network.state_dict()
        assert result.network.conv1.fixed_norm.std != 1


def test_swa_is_the_mean_of_the_epochs_weights() -> None:
    watch = Watch()
    result = fallow.fit(Net(dtype=torch.float64), points(), SWA(start=0.5) + watch, generations=1, epochs=8, lr=0.05)
    assert watch.itself == [True] * 3 + [False] * 5  # from the end of the fourth epoch on, half of the training
    for name, value in weights(result.network).items():
        wanted = torch.stack([epoch[name] for epoch in watch.epochs[3:]]).mean(0)
        torch.testing.assert_close(value, wanted, rtol=1e-13, atol=1e-15)


def test_swa_starts_again_with_every_generation() -> None:
    watch = Watch()
    settings = TINY | {"epochs": 4}
    result = fallow.fit(Net(dtype=torch.float64), points(), build("restart+swa:start=0.75") + watch, **settings)
    assert watch.itself == [True, True, False, False] * 2
    for name, value in weights(result.network).items():
        wanted = (watch.epochs[2][name] + watch.epochs[3][name]) / 2
        torch.testing.assert_close(value, wanted, rtol=1e-13, atol=1e-15)


def test_swa_keeps_the_rate_up_and_leaves_the_schedule_and_scales_alone() -> None:
    class Scale(Method):
        name = "scale"

        def begin(self, ctx) -> None:
            ctx.optimizer.param_groups[0]["scale"] = 0.1

    watch = Watch()
    fallow.fit(
        Net(), points(), SWA(start=0.75, rate=0.4) + Scale() + watch, generations=1, epochs=6, lr=0.05, batch_size=8
    )
    cosine = [0.005 * 0.5 * (1 + math.cos(math.pi * t / 12)) for t in range(9)]
    assert watch.rates == pytest.approx(cosine + [0.002] * 3)  # in the middle of an epoch, where ¾ are done


def test_swa_renews_the_statistics_of_batch_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    renewals = []
    renew = swa.renew_statistics
    monkeypatch.setattr(swa, "renew_statistics", lambda *given: renewals.append(1) or renew(*given))
    torch.manual_seed(1)
    net = Normed()
    ctx = prepare(net, points(), SWA(start=0.5), epochs=4, generations=1, batch_size=8, lr=0.05)
    loop.run(ctx)
    assert len(renewals) == 3  # once for each average, however often it is looked at
    reference = copy.deepcopy(net)
    reference.net[3].p = 0.0  # update_bn would switch dropout on
    for name in ("running_mean", "running_var"):
        getattr(reference.net[1], name).fill_(7.0)
    update_bn(ctx.train.epoch(0), reference)
    for name in ("running_mean", "running_var"):
        assert torch.equal(getattr(net.net[1], name), getattr(reference.net[1], name)), name


def test_renewing_disturbs_nothing_else() -> None:
    torch.manual_seed(1)
    net = Normed()
    net.net[4].eval()
    before = copy.deepcopy(net)
    state = torch.get_rng_state()
    swa.renew_statistics(
        net, ["net.1"], [(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(8))]
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in net.modules()] == [m.training for m in before.modules()]
    assert net.net[1].momentum == 0.1
    assert not torch.equal(net.net[1].running_mean, before.net[1].running_mean)
    assert equal(*(dict(n.named_parameters()) for n in (net, before)))


# ---- mixing ---------------------------------------------------------------------------------------


def mixing(net: nn.Module, step: int = 0, seed: int = 0) -> tuple[SimpleNamespace, list[Tensor]]:
    """A context with what mixing needs, and the inputs that the model was given."""
    seen: list[Tensor] = []

    def predict(x: Tensor) -> Tensor:
        seen.append(x)
        return net(x)

    ctx = SimpleNamespace(
        settings=SimpleNamespace(seed=seed), clock=SimpleNamespace(step_index=step), predict=predict,
        criterion=functional.cross_entropy, target=Classes("abc"),
    )  # fmt: skip
    return ctx, seen


def by_hand(logits: Tensor, y: Tensor, partner: Tensor, share: float) -> float:
    """λ·CE(z, y) + (1 − λ)·CE(z, y'), example by example."""
    total = 0.0
    for row, one, two in zip(logits.tolist(), y.tolist(), y[partner].tolist(), strict=True):
        normaliser = math.log(sum(math.exp(value) for value in row))
        total += share * (normaliser - row[one]) + (1 - share) * (normaliser - row[two])
    return total / len(y)


def test_mixup_is_the_formula() -> None:
    """Inputs are unit vectors, so that a blend shows who is in it, and how much."""
    n = 6
    net = nn.Linear(n, 3, dtype=torch.float64)
    x, y = torch.eye(n, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 1, 0])
    shares, shifts = [], []
    for step in range(400):
        ctx, seen = mixing(net, step)
        loss = Mixup(alpha=0.5).loss(ctx, (x, y))
        (blended,) = seen
        share = blended.diagonal()[0].item()
        others = blended - share * torch.eye(n, dtype=torch.float64)
        partner = others.argmax(1)
        assert torch.equal(partner.sort().values, torch.arange(n))  # everyone is someone's partner
        assert (partner != torch.arange(n)).all()
        torch.testing.assert_close(others, (1 - share) * torch.eye(n, dtype=torch.float64)[partner], rtol=0, atol=1e-15)
        assert loss.item() == pytest.approx(by_hand(net(blended), y, partner, share), rel=1e-13)
        shares.append(share)
        shifts.append(int(partner[0]))
    spread = 1 / (4 * (2 * 0.5 + 1))  # the variance of Beta(α, α)
    assert sum(shares) / 400 == pytest.approx(0.5, abs=4 * (spread / 400) ** 0.5)
    assert sum((s - 0.5) ** 2 for s in shares) / 400 == pytest.approx(spread, rel=0.15)
    assert set(shifts) == set(range(1, n))
    assert torch.equal(x, torch.eye(n, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(1, 6, 9), (2, 12), (1, 4, 5, 6)])
def test_cutmix_is_the_formula(shape: tuple[int, ...]) -> None:
    """Every input has one value everywhere, so that it shows what was pasted."""
    n = 5
    net = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 3)).double()
    x = torch.arange(n, dtype=torch.float64).view(n, *[1] * len(shape)).expand(n, *shape).clone()
    y = torch.tensor([0, 1, 2, 1, 0])
    areas = []
    for step in range(60):
        ctx, seen = mixing(net, step)
        loss = CutMix(probability=1).loss(ctx, (x, y))
        (blended,) = seen
        pasted = blended != x
        assert (pasted == pasted[:1, :1]).all()  # the same box of all inputs and channels
        inside = pasted[0, 0].nonzero()
        area = pasted.double().mean().item()
        if area:
            sides = inside.max(0).values - inside.min(0).values + 1
            assert sides.prod() == len(inside)  # a box without holes
            first = (slice(None), 0, *inside[0].tolist())
            partner = blended[first].long()
            torch.testing.assert_close(blended, torch.where(pasted, x[partner], x), rtol=0, atol=0)
            assert loss.item() == pytest.approx(by_hand(net(blended), y, partner, 1 - area), rel=1e-12)
        areas.append(area)
    assert min(areas) < 0.1
    assert max(areas) > 0.5
    assert torch.equal(x[:, 0].flatten(1)[:, 0], torch.arange(n, dtype=torch.float64))  # nothing was done in place


@pytest.mark.parametrize(("centre", "begin", "end"), [(0.5, 2, 6), (0.0, 0, 2), (0.999, 6, 8), (0.25, 0, 4)])
def test_a_box_ends_at_the_edges(centre: float, begin: int, end: int) -> None:
    draw = SimpleNamespace(random=lambda: centre)
    box, area = draw_box(torch.Size([8, 8]), 0.75, draw)  # a quarter of the area: half of each side
    assert box == (..., slice(begin, end), slice(begin, end))
    assert area == (end - begin) ** 2 / 64


def test_boxes_are_as_large_as_they_should_be() -> None:
    draw = random.Random(0)
    whole = [draw_box(torch.Size([40]), share, draw)[1] for share in (0.0, 1.0) for _ in range(50)]
    assert max(whole[50:]) <= 1 / 40  # share 1 leaves all, but for rounding
    assert min(whole[:50]) >= 0.5  # share 0 takes everything on the nearer side
    assert all(draw_box(torch.Size([9, 7]), 0.3, draw)[1] <= 1 for _ in range(200))


def test_cutmix_leaves_the_other_batches_alone() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    x, y = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 4, 4).clone(), torch.tensor([0, 1, 2, 1])
    mixed = 0
    for step in range(300):
        ctx, seen = mixing(net, step)
        loss = CutMix(alpha=100, probability=0.3).loss(ctx, (x, y))
        if torch.equal(seen[0], x):
            assert loss.item() == pytest.approx(functional.cross_entropy(net(x), y).item())
        mixed += not torch.equal(seen[0], x)
    assert mixed / 300 == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("method", [Mixup(), CutMix(probability=1)])
def test_a_step_draws_once(method: Mixup | CutMix) -> None:
    """Twice at the same step, as SAM does: the same blend; at the next, or with another seed: another one."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    x, y = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    found = []
    for step, seed in ((5, 0), (5, 0), (6, 0), (5, 1)):
        ctx, seen = mixing(net, step, seed)
        state = torch.get_rng_state()
        method.loss(ctx, (x, y))
        assert torch.equal(torch.get_rng_state(), state)
        found.append(seen[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[3])
    ctx, seen = mixing(net)
    method.loss(ctx, (x[:1], y[:1]))  # a micro-batch of one example is mixed with itself
    torch.testing.assert_close(seen[0], x[:1])


def test_inputs_that_cannot_be_mixed_are_refused() -> None:
    with pytest.raises(RequestError, match=r"not from shape \(4,\): use mixup"):
        fallow.fit(Net(), points(), "cutmix", **TINY)
    words = list(zip(torch.randint(9, (16, 4)), torch.arange(16) % 2, strict=True))
    loader = torch.utils.data.DataLoader(words, batch_size=8)
    net = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(RequestError, match=r"these are torch.int64: give real numbers, or use dropout"):
        fallow.fit(net, loader, "mixup", val=0.0, **TINY)


# ---- dropout --------------------------------------------------------------------------------------


class Through(nn.Module):
    """Two layers that change nothing, and notice what they are given."""

    def __init__(self, width: int = 50) -> None:
        super().__init__()
        self.first, self.head = (nn.Linear(width, width, bias=False) for _ in range(2))
        for layer in (self.first, self.head):
            nn.init.eye_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x))


def dropping(method: Dropout, net: nn.Module, x: Tensor) -> SimpleNamespace:
    """A context as it is after the method's ``begin``."""
    train = SimpleNamespace(ordered=lambda: iter([(x, None)]))
    ctx = SimpleNamespace(model=net, train=train)
    method.begin(ctx)

    def predict(x: Tensor) -> Tensor:
        with method.forward(ctx):
            return net(x)

    ctx.predict = predict
    return ctx


@pytest.mark.parametrize(("where", "kept"), [("head", 0.75), ("dense", 0.75**2)])
def test_dropout_keeps_the_expected_value_and_drops_in_training_only(where: str, kept: float) -> None:
    torch.manual_seed(0)
    net, x = Through(), torch.ones(400, 50)
    ctx = dropping(Dropout(0.25, where), net, x)
    y = ctx.predict(x)
    assert y.unique().tolist() == pytest.approx([0, 1 / kept])
    error = 4 * (kept * (1 - kept) / y.numel()) ** 0.5
    assert (y > 0).double().mean().item() == pytest.approx(kept, abs=error)
    assert y.mean().item() == pytest.approx(1, abs=error / kept)
    assert torch.equal(net(x), x)  # only what is predicted for training
    net.eval()
    assert torch.equal(ctx.predict(x), x)


def test_the_hooks_are_gone_whatever_happens() -> None:
    class Fails(Through):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                assert self.first._forward_pre_hooks
                raise KeyboardInterrupt
            return super().forward(x)

    net = Fails(4)
    with pytest.raises(KeyboardInterrupt):
        fallow.fit(net, points(), "dropout:where=dense", **TINY)
    assert not any(module._forward_pre_hooks for module in net.modules())


@pytest.mark.parametrize("spec", ["dropout", "dropout+ema", "ema+dropout:where=dense"])
def test_what_comes_back_is_plain(spec: str) -> None:
    result = fallow.fit(Net(), points(), spec, **TINY)
    assert list(result.network.state_dict()) == list(Net().state_dict())
    assert equal(weights(pickle.loads(pickle.dumps(result.network))), weights(result.network))
    assert not any(module._forward_pre_hooks for module in result.network.modules())


def test_dropout_takes_effect_and_none_is_ordinary_training() -> None:
    plain = weights(fallow.fit(Net(), points(), "long", **TINY).network)
    assert equal(weights(fallow.fit(Net(), points(), "dropout:rate=0", **TINY).network), plain)
    assert not equal(weights(fallow.fit(Net(), points(), "dropout", **TINY).network), plain)
    both = weights(fallow.fit(Net(), points(), "mixup+dropout", **TINY).network)
    assert not equal(both, weights(fallow.fit(Net(), points(), "mixup", **TINY).network))


def test_dropout_takes_a_model_of_one_layer() -> None:
    """There is no threshold to find in it, and none is needed."""
    fallow.fit(nn.Linear(4, 2), points(), Dropout(), **TINY)


def test_an_average_takes_what_pruning_leaves_in_either_order(images: Data) -> None:
    settings = {"generations": 2, "epochs": 2, "batch_size": 16, "lr": 0.05, "seed": 1}
    first, second = (
        fallow.fit("scnn:width=4,dense=16", images, spec, **settings).network for spec in ("ema+imp", "imp+ema")
    )
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any((p == 0).any() for p in first.parameters() if p.ndim > 1)


@pytest.mark.parametrize("spec", ["ema", "swa:start=0"])
def test_an_average_leaves_a_mask_of_attention_as_it_is(spec: str) -> None:
    """Its −∞ are no statistic: a step of the average from −∞ towards −∞ is NaN, and so was all that was evaluated."""

    class Masked(Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.tensor([0.0, -torch.inf, 0.0]))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.seen.softmax(0).sum()

    result = fallow.fit(Masked(), points(), spec, **TINY)
    assert result.network.seen.tolist() == [0, -torch.inf, 0]
    assert math.isfinite(result.last["val_loss"])


def test_dropout_finds_a_head_whose_weight_is_parametrised() -> None:
    net = Through()
    weight_norm(net.head)
    ctx = dropping(Dropout(0.5), net, x := torch.ones(40, 50))
    dropped = (ctx.predict(x) == 0).double().mean().item()
    assert dropped == pytest.approx(0.5, abs=0.1)
