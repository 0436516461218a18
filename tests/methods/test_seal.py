from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import fallow
from fallow.base.errors import RequestError
from fallow.core import loop
from fallow.core.method import Method
from fallow.methods import build
from fallow.methods.forget.seal import PAPERS, TURNED, climb_sphere
from tests.core.small import Net, equal, points, weights

ETA, DECAY, SCALE, SMOOTH = 0.1, 0.03, 0.5, 0.1
EARLY, LATE = ("first.weight", "first.bias"), ("second.weight", "second.bias")


class Plain(torch.optim.Optimizer):
    """An optimiser that only knows how to descend."""

    def __init__(self, params, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * (p.grad + group["weight_decay"] * p))


class Watch(Method):
    """Every step: phase, batch, weights before and after."""

    name = "watch"

    def begin(self, ctx) -> None:
        self.steps: list[dict] = []

    def loss(self, ctx, batch):
        self.batch = batch
        return super().loss(ctx, batch)

    def update(self, ctx, gradients):
        before, phase = copy.deepcopy(ctx.model), "ascent" if ctx.disturbed else "descent"
        loss = super().update(ctx, gradients)
        self.steps.append({"phase": phase, "before": before, "batch": self.batch, "after": weights(ctx.model)})
        self.steps[-1]["clock"] = (ctx.clock.generation, ctx.clock.epoch, ctx.clock.step)
        return loss


def watch(spec: str, optimizer, **settings) -> list[dict]:
    spy = Watch()
    defaults: dict[str, Any] = {"generations": 2, "epochs": 4, "batch_size": 8}
    if isinstance(optimizer, str):
        defaults |= {"lr": ETA, "momentum": 0.0, "weight_decay": DECAY}
    model = Net(dtype=torch.float64)
    if isinstance(optimizer, type):
        optimizer = optimizer(model.parameters(), lr=ETA, weight_decay=DECAY)
    fallow.fit(model, points(), build(spec) + spy, optimizer=optimizer, **(defaults | settings))
    return spy.steps


def gradient(step: dict) -> dict[str, torch.Tensor]:
    """Of the smoothed cross-entropy at the weights before the step, written out."""
    model, (x, y) = step["before"], step["batch"]
    wanted = (1 - SMOOTH) * functional.one_hot(y, 2).double() + SMOOTH / 2
    loss = -(wanted * functional.log_softmax(model(x), 1)).sum(1).mean()
    parameters = dict(model.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


OPTIMIZERS = {
    "sgd": "sgd",
    "instance": torch.optim.SGD,
    "factory": lambda parameters: torch.optim.SGD(parameters, lr=ETA, weight_decay=DECAY, foreach=False),
    "without maximize": Plain,
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_ascent_step_is_equation_3(optimizer: str) -> None:
    """Θ_forget ← Θ_forget + S·η·∇J − S·η·λ·Θ and Θ_fit ← Θ_fit − η·∇J − η·λ·Θ: the decay always shrinks."""
    steps = watch(f"seal:scale={SCALE}", OPTIMIZERS[optimizer])
    ascents = [step for step in steps if step["phase"] == "ascent"]
    assert [step["clock"] for step in ascents] == [(1, 0, 0), (1, 0, 1)]  # k = 4/4 epochs of two steps
    step, g = ascents[0], gradient(ascents[0])
    for name, w in step["before"].named_parameters():
        w = w.detach()
        sign, rate = (1, SCALE * ETA) if name in EARLY else (-1, ETA)
        wanted = w + sign * rate * g[name] - rate * DECAY * w
        torch.testing.assert_close(step["after"][name], wanted, rtol=0, atol=1e-14, msg=name)
    after = next(step for step in steps if step["clock"] == (1, 1, 0))
    g, rate = gradient(after), ETA * 0.5 * (1 + torch.tensor(torch.pi / 4, dtype=torch.float64).cos())
    for name, w in after["before"].named_parameters():
        w = w.detach()
        wanted = w - rate * (g[name] + DECAY * w)
        torch.testing.assert_close(after["after"][name], wanted, rtol=0, atol=1e-14, msg=name)


def test_the_climbing_side_starts_without_momentum_and_the_other_keeps_its_own() -> None:
    steps = watch(f"seal:scale={SCALE}", "sgd", momentum=0.9)
    step = next(step for step in steps if step["phase"] == "ascent")
    g = gradient(step)
    for name, w in step["before"].named_parameters():
        w, rate = w.detach(), SCALE * ETA
        alone = w + rate * g[name] - rate * DECAY * w if name in EARLY else w - ETA * (g[name] + DECAY * w)
        close = torch.allclose(step["after"][name], alone, rtol=0, atol=1e-14)
        assert close == (name in EARLY)


def test_with_reverse_the_other_side_climbs() -> None:
    step = next(s for s in watch(f"seal:scale={SCALE},reverse=True", "sgd") if s["phase"] == "ascent")
    g = gradient(step)
    for name, w in step["before"].named_parameters():
        w = w.detach()
        sign, rate = (1, SCALE * ETA) if name in LATE else (-1, ETA)
        torch.testing.assert_close(step["after"][name], w + rate * (sign * g[name] - DECAY * w), rtol=0, atol=1e-14)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, Plain])
def test_without_decay_only_the_climbing_side_is_spared_and_only_meanwhile(optimizer: type) -> None:
    steps = watch(f"seal:scale={SCALE},decay=False", optimizer)
    step = next(step for step in steps if step["phase"] == "ascent")
    g = gradient(step)
    for name, w in step["before"].named_parameters():
        w = w.detach()
        wanted = w + SCALE * ETA * g[name] if name in EARLY else w - ETA * (g[name] + DECAY * w)
        torch.testing.assert_close(step["after"][name], wanted, rtol=0, atol=1e-14, msg=name)
    last = steps[-1]
    g, rate = gradient(last), ETA * 0.5 * (1 + torch.tensor(torch.pi * 7 / 8, dtype=torch.float64).cos())
    for name, w in last["before"].named_parameters():
        w = w.detach()
        torch.testing.assert_close(last["after"][name], w - rate * (g[name] + DECAY * w), rtol=0, atol=1e-14)


def test_an_optimiser_without_weight_decay() -> None:
    net = Net()

    class NoDecay(torch.optim.Optimizer):
        def __init__(self, params) -> None:
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(group["lr"] * p.grad)

    optimizer = NoDecay(net.parameters())
    result = fallow.fit(net, points(), "seal:decay=False,scale=1", optimizer=optimizer, generations=2, epochs=4)
    assert any(row["phase"] == "ascent" for row in result.history)


def test_a_side_that_cannot_climb() -> None:
    net = Net()
    net.first.requires_grad_(False)
    with pytest.raises(RequestError, match="all early layers are frozen, and seal cannot climb with them"):
        fallow.fit(net, points(), "seal", generations=2, epochs=4)
    fallow.fit(net, points(), "seal:reverse=True,scale=1", generations=2, epochs=4)


def test_an_ascent_that_leaves_nothing_to_relearn() -> None:
    with pytest.raises(RequestError, match="seal climbs for 1 of 1 epochs and has none left to relearn"):
        fallow.fit(Net(), points(), "seal", generations=2, epochs=1)
    fallow.fit(Net(), points(), "seal", generations=1, epochs=1)  # nothing climbs in the first generation


def sphere_by_hand(w: torch.Tensor, g: torch.Tensor, rho: float) -> torch.Tensor:
    radius = w.norm()
    if radius == 0 or g.norm() == 0:
        return w
    u = w + rho * radius * g / g.norm()
    return radius * u / u.norm()


@pytest.mark.parametrize("rho", [1e-3, 0.1, 0.99])
def test_climbing_on_the_sphere(rho: float) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (7,), (2, 3, 2), (1,), (4,), (5,)]
    tensors = [nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64)) for shape in shapes]
    for p in tensors:
        p.grad = 10 ** torch.randn((), generator=draw).item() * torch.randn(
            p.shape, generator=draw, dtype=torch.float64
        )
    tensors[4].data.zero_()  # a bias that starts at zero
    tensors[5].grad.zero_()  # a unit that is dead
    asleep = nn.Parameter(torch.ones(3, dtype=torch.float64))  # no gradient at all
    wanted = [sphere_by_hand(p.detach().clone(), p.grad, rho) for p in tensors]
    norms = [p.norm().item() for p in tensors]
    before = tensors[5].detach().clone()
    climb_sphere([*tensors, asleep], rho)
    for p, value, norm in zip(tensors, wanted, norms, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=1e-13, atol=1e-14)
        assert p.norm().item() == pytest.approx(norm, rel=1e-13)
    assert torch.equal(tensors[4], torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(tensors[5].detach(), before, rtol=1e-15, atol=0)
    assert torch.equal(asleep, torch.ones(3, dtype=torch.float64))


def test_climbing_on_the_sphere_raises_the_loss() -> None:
    net, data = Net(), points(64)
    for _ in range(5):
        net.zero_grad()
        loss = functional.cross_entropy(net(data.train.x), data.train.y)
        loss.backward()
        climb_sphere(list(net.parameters()), 0.05)
        with torch.no_grad():
            assert functional.cross_entropy(net(data.train.x), data.train.y) > loss


def test_an_adaptive_ascent_ends_at_its_target() -> None:
    settings = {"generations": 2, "epochs": 12, "batch_size": 16, "lr": 0.1}
    result = fallow.fit(Net(), points(64), "seal:ascent=adaptive,share=0.5,target=0.6", **settings)
    record = result.generations[1]
    assert record["forgot_to"] <= 0.6
    row = next(row for row in result.history if "ascent_steps" in row)
    assert row["generation"] == 2
    assert row["ascent_steps"] <= 6 * 4
    assert result.last["train_loss"] < 0.5


def ascent(spec: str, model: nn.Module | None = None, **settings):
    """The rows of the epochs in which an ascent ended, and the run."""
    defaults: dict[str, Any] = {"generations": 2, "epochs": 8, "batch_size": 8}
    if isinstance(settings.get("optimizer", ""), str):
        defaults |= {"lr": 0.05, "momentum": 0.9}
    result = fallow.fit(model or Net(), points(64), spec, **(defaults | settings))
    return [row for row in result.history if "ascent_cosine" in row], result


def test_the_automatic_scale_has_the_papers_product() -> None:
    """S·η·steps/(1 − μ) = 125: 0.01 for 125,000 steps at 0.01, and at most 4."""
    rows, _ = ascent("seal:scale=auto", epochs=400, lr=0.9)  # 100 epochs of 8 steps
    assert rows[0]["ascent_scale"] == pytest.approx(125 * 0.1 / (0.9 * 100 * 8))
    rows, _ = ascent("seal:scale=auto")
    assert rows[0]["ascent_scale"] == 4.0
    assert pytest.approx(0.01) == PAPERS * (1 - 0.9) / (0.01 * 125_000)
    assert fallow.SEAL().scale == "auto"
    with pytest.raises(RequestError, match="scale is often: it must be above 0, or auto"):
        fallow.SEAL(scale="often")


def test_an_automatic_ascent_of_steps_that_are_normalised_climbs_as_fast_as_it_descends() -> None:
    for optimizer in ("adamw", lambda parameters: torch.optim.RMSprop(parameters, lr=0.01)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # by SGD's lengths it would go nowhere
            rate = {"lr": 0.01} if isinstance(optimizer, str) else {}
            rows, result = ascent("seal", optimizer=optimizer, epochs=24, **rate)
        assert rows[0]["ascent_scale"] == 1.0
        assert rows[0]["ascent_cosine"] < 0.999
        assert result.last["train_loss"] < result.history[12]["train_loss"] + 0.02


def test_an_ascent_that_goes_nowhere_is_announced_alike_by_every_seed() -> None:
    said = set()
    for seed in range(3):
        with pytest.warns(UserWarning, match="will move its layers by less than 1 % .* and forget nothing") as caught:
            rows, _ = ascent("seal:scale=1e-6", weight_decay=0.0, seed=seed)
        assert rows[0]["ascent_cosine"] > 1 - 0.01**2  # it was indeed a bound
        said |= {str(w.message) for w in caught if "forget nothing" in str(w.message)}
    assert len(said) == 1  # so a comparison says it once
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ascent("seal:scale=auto")


def test_the_automatic_scale_moves_the_early_layers_and_relearns() -> None:
    rows, result = ascent("seal:scale=auto", epochs=24)
    assert rows[0]["ascent_cosine"] < 0.99
    assert result.last["train_loss"] < result.history[12]["train_loss"] + 0.02  # as at the first generation's end


def test_an_automatic_ascent_ends_where_its_weights_have_turned_and_norms_wait() -> None:
    class Keep(Method):
        name = "keep"

        def begin(self, ctx) -> None:
            self.flat, self.turned = [], []

        def end_step(self, ctx) -> None:
            climbing = ctx.disturbed
            early = list(ctx.partition.early.parameters)
            self.flat.append((climbing, [p.detach().clone() for p in early if p.ndim == 1]))

    spy = Keep()
    settings = {"generations": 2, "epochs": 16, "lr": 0.05, "augment": "none", "seed": 1}
    result = fallow.fit("scnn:width=4,dense=16", "digits", spy + build("seal:scale=auto"), train=100, **settings)
    (row,) = [row for row in result.history if "ascent_cosine" in row]
    assert row["ascent_cosine"] <= TURNED
    assert row["ascent_steps"] < 4 * 4
    climbs = [flat for climbing, flat in spy.flat if climbing]
    assert all(torch.equal(a, b) for a, b in zip(climbs[0], climbs[-1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(climbs[-1], spy.flat[-1][1], strict=True))


SLOW = {"generations": 2, "epochs": 16, "batch_size": 16, "lr": 1e-4}  # S = 4 gets nowhere at this rate


class Strides(Method):
    """How far each step of an ascent moves the climbing matrices, of their length."""

    name = "strides"

    def begin(self, ctx) -> None:
        self.moved, self.last = [], None

    def end_step(self, ctx) -> None:
        now = torch.cat([p.detach().flatten().clone() for p in ctx.partition.early.parameters if p.ndim > 1])
        if ctx.disturbed and self.last is not None:
            self.moved.append(float((now - self.last).norm() / self.last.norm()))
        self.last = now


def test_an_automatic_ascent_that_forgets_nothing_is_hastened_from_its_half_on() -> None:
    """The other half's steps are as long as would turn the weights in time."""
    spy = Strides()
    result = fallow.fit(Net(dtype=torch.float64), points(64), spy + build("seal:share=0.5"), **SLOW)
    (row,) = [row for row in result.history if "ascent_cosine" in row]
    half = 8 * 4 // 2
    slow, fast = spy.moved[: half - 1], spy.moved[half:]
    assert max(slow) < 0.005
    assert min(fast[:8]) > 5 * max(slow)
    assert row["ascent_scale"] == 4.0
    assert row["ascent_cosine"] < 0.985


def test_what_a_redraw_forgets_is_not_asked_of_the_ascent_too() -> None:
    """The late layers are drawn afresh, the training accuracy is at chance, and longer steps are not needed."""
    data, spy = points(64, 4), Strides()
    before = fallow.fit(Net(4, dtype=torch.float64), data, "normal", epochs=40, batch_size=16, lr=0.3)
    assert before.last["train_accuracy"] > 0.8
    result = fallow.fit(before.model, data, spy + build("seal:share=0.5,late=redraw"), **SLOW)
    (row,) = [row for row in result.history if "ascent_cosine" in row]
    assert row["forgot_to"] < 0.5
    assert len(spy.moved) == 8 * 4  # to its end
    assert max(spy.moved) < 0.005


def test_a_hastened_ascent_resumes_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(BaseException):
        pass

    def train(out: Path, resume: bool = False):
        kept = {"out": out, "resume": resume, "checkpoint_every": 0}
        return fallow.fit(Net(dtype=torch.float64), points(64), "seal:share=0.5", **SLOW, **kept)

    whole = weights(train(tmp_path / "whole").model)
    monkeypatch.setattr(loop, "LIVE", 0.0)  # look, and so save, after every step
    look, seen = loop.look, 0

    def stopping(ctx):
        nonlocal seen
        seen += 1
        wake = look(ctx)
        if seen == 16 * 4 + 22:  # after 6 of the 16 long steps
            assert ctx.disturbed
            raise Stop
        return wake

    monkeypatch.setattr(loop, "look", stopping)
    with pytest.raises(Stop):
        train(tmp_path / "stopped")
    monkeypatch.setattr(loop, "look", look)
    assert equal(whole, weights(train(tmp_path / "stopped", resume=True).model))


@pytest.mark.parametrize("steps", [63, 250, 279])  # total // 128 and total // 32 share few factors
def test_an_ascent_of_any_length_is_looked_at(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(fallow.SEAL, "hasten", lambda *words: looks.append(words[3]))
    fallow.fit(Net(), points(steps), "seal:share=0.5", **SLOW | {"batch_size": 1, "epochs": 8, "lr": 1e-7})
    assert len(looks) >= 12
    assert looks[0] <= 0.6 * 4 * steps


def test_the_cosine_is_of_what_climbs() -> None:
    """Frozen layers, norms and biases stay where they are, and would make it look small."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    spy = Strides()
    result = fallow.fit(
        model, points(64), spy + build("seal"), generations=2, epochs=16, batch_size=8, lr=0.05, split=2
    )
    (row,) = [row for row in result.history if "ascent_cosine" in row]
    assert row["ascent_cosine"] <= 0.99


def test_a_loader_whose_workers_persist(recwarn: pytest.WarningsRecorder) -> None:
    data = points(32).train
    loader = DataLoader(TensorDataset(data.x, data.y), 8, shuffle=True, num_workers=1, persistent_workers=True)
    result = fallow.fit(Net(), loader, "seal:share=0.5", generations=2, epochs=4, lr=1e-6, target="classes")
    assert result.steps == 2 * 4 * 4
