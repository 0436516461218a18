from __future__ import annotations

import dataclasses
import json
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fallow
from fallow.core import loop
from fallow.data import Data, Examples
from fallow.hypergradients.implicit import Record
from fallow.hypergradients.solvers import CG, MINRES, Identity, Neumann, Nystrom
from fallow.methods import build
from fallow.methods.hyper import decay as decay_module
from fallow.methods.hyper.decay import ImplicitDecay
from fallow.training.prepare import prepare
from tests.contract import catalogue

MODEL = catalogue.MODEL + ",norm=none"  # a decay is learned for no layer that a norm follows
SETTINGS = catalogue.SETTINGS | {"label_smoothing": 0.0}  # under which too little decay is learned
SHORT = {"inner": 5, "batches": 2}
pytestmark = pytest.mark.filterwarnings("ignore:the training loss is far")


def noisy(seed: int = 0) -> Data:
    """Two classes told apart by 4 of 40 features; 40 examples to learn from, so that all the others are fitted too."""
    draw = torch.Generator().manual_seed(seed)

    def some(n: int) -> Examples:
        x = torch.randn(n, 40, generator=draw)
        y = (x[:, :4].sum(1) + 0.5 * torch.randn(n, generator=draw) > 0).long()
        return Examples(x, y)

    return Data("noisy", some(40), some(200), some(400), ["no", "yes"], (40,))


def linear() -> nn.Module:
    return nn.Linear(40, 2)


LONG = {
    "generations": 1, "epochs": 200, "batch_size": 40, "lr": 0.1, "schedule": "constant", "label_smoothing": 0.0,
    "evaluate_every": 200,
}  # fmt: skip


# ---- the penalty ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per", ["layer", "weight"])
def test_without_meta_updates_it_is_the_optimisers_own_decay(per: str, images: Data) -> None:
    settings = SETTINGS | {"weight_decay": 0.05, "generations": 1}
    with pytest.warns(RuntimeWarning, match="learns nothing in 24 steps: its first meta-update comes after 1000"):
        mine = fallow.fit(MODEL, images, ImplicitDecay(per=per, warmup=1000), **settings).network
    ordinary = fallow.fit(MODEL, images, "long", **settings).network
    other = fallow.fit(MODEL, images, "long", **(settings | {"weight_decay": 0.0})).network
    for a, b, c in zip(mine.parameters(), ordinary.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        assert not torch.allclose(a, c, rtol=1e-2)


@pytest.mark.filterwarnings("ignore:implicit-decay learns nothing in 72 steps")  # nor should it
def test_who_climbs_still_shrinks(images: Data) -> None:
    ctx = prepare(MODEL, images, ImplicitDecay(), **(SETTINGS | {"weight_decay": 0.1, "momentum": 0.0}))
    ctx.method.begin_generation(ctx)
    before = [p.detach().clone() for p in ctx.model.parameters()]
    for group in ctx.optimizer.param_groups:
        assert group["weight_decay"] == 0  # it would decay twice
        group["maximize"] = True
    for p in ctx.model.parameters():
        p.grad = torch.zeros_like(p)
    ctx.step()
    for p, old in zip(ctx.model.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old * (1 - 0.05 * 0.1))


# ---- what is learned -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid() -> dict[float, fallow.Result]:
    """The same training with one decay for all weights, over all that is worth a try."""
    return {wd: fallow.fit(linear(), noisy(), "long", weight_decay=wd, **LONG) for wd in (0.0, 0.01, 0.03, 0.1, 0.3, 1)}


@pytest.mark.parametrize(("settings", "start"), [
    ("inner=10", 1e-4), ("inner=10", 1e-2), ("inner=10,solver=neumann,products=3", 1e-4),
    ("inner=10,solver=identity", 1e-4), ("inner=10,outer=adam", 1e-2),
])  # fmt: skip
def test_it_finds_the_best_decay_from_any_start(settings: str, start: float, grid: dict[float, fallow.Result]) -> None:
    learned = fallow.fit(linear(), noisy(), f"implicit-decay:{settings}", weight_decay=start, **LONG)
    lowest = min(result.last["val_loss"] for result in grid.values())
    assert learned.last["val_loss"] < lowest + 0.01 < 0.6 * grid[0.0].last["val_loss"]
    (found,) = [row for row in learned.history if "decay" in row][-1]["decay"].values()
    assert 0.05 < found < 0.5


def test_t1t2_updates_after_every_step(grid: dict[float, fallow.Result]) -> None:
    learned = fallow.fit(
        linear(), noisy(), "implicit-decay:solver=t1t2,batches=1,patience=1000", weight_decay=1e-2, **LONG
    )
    assert all("meta" in row for row in learned.history)
    assert learned.last["val_loss"] < 0.8 * grid[0.0].last["val_loss"]


def test_per_weight_it_finds_the_features_that_mean_nothing(grid: dict[float, fallow.Result]) -> None:
    method = ImplicitDecay(per="weight", inner=10)
    learned = fallow.fit(linear(), noisy(), method, weight_decay=1e-2, **LONG)
    rates = method.rates[learned.network.weight].mean(0)
    assert rates[4:].median() > 3 * rates[:4].median()
    assert learned.last["test_loss"] < 0.7 * min(result.last["test_loss"] for result in grid.values())


# ---- a meta-update -------------------------------------------------------------------------------------------------


def test_the_record_of_a_meta_update(images: Data, tmp_path) -> None:
    """At the end of an epoch, the loss it looks at is the one that is reported for the epoch."""
    result = fallow.fit(MODEL, images, ImplicitDecay(inner=6, warmup=6), out=tmp_path / "run", **SETTINGS)
    assert len(result.history) == 12
    for row in result.history:  # an epoch has six steps
        assert row["meta"]["val_loss"] == pytest.approx(row["val_loss"], rel=1e-5)
        assert row["meta"]["products"] == 5
        assert all(value > 0 for value in row["decay"].values())
    layers = {name.rpartition(".")[0] for name, _ in result.network.named_parameters()}
    assert set(result.history[0]["decay"]) == layers
    assert len({json.dumps(row["decay"]) for row in result.history}) == 12
    # 12 meta-updates: 4 batches of 16 differentiated once and five times twice, and 30 validation examples once
    assert result.passes == pytest.approx(72 + 12 * (4 * 11 + 30 / 16))
    assert build("implicit-decay:inner=6").passes == 1 + 4 * 12 / 6


def test_a_meta_update_at_most_doubles_a_decay(images: Data) -> None:
    """RMSprop's first step, of ten times its rate, would multiply it by e²."""
    settings = SETTINGS | {"generations": 1, "epochs": 2, "weight_decay": 1e-3}
    found = {
        jump: fallow.fit(MODEL, images, ImplicitDecay(warmup=12, jump=jump), **settings).history[-1]["decay"]
        for jump in (2.0, 5.0, 0)
    }
    for jump, times in ((2.0, 2.0), (5.0, 5.0), (0, math.e**2)):
        changes = [max(value / 1e-3, 1e-3 / value) for value in found[jump].values()]
        assert max(changes) == pytest.approx(times, rel=0.05)


@pytest.mark.filterwarnings("ignore:implicit-decay leaves 5 layers")
def test_it_leaves_the_training_as_it_was(images: Data) -> None:
    """Modes, running statistics, random numbers, gradients: nothing but the decay changes."""
    model = MODEL.replace("norm=none", "norm=batch,dropout=0.2")
    ctx = prepare(model, images, ImplicitDecay(**SHORT), **SETTINGS)
    method = ctx.method
    method.begin_generation(ctx)
    ctx.model.train()
    method.update(ctx, lambda: ctx.backward(next(iter(ctx.batches()))))
    state = {k: v.clone() for k, v in ctx.model.state_dict().items()}
    slopes = [p.grad.clone() for p in ctx.model.parameters()]
    random, before = torch.get_rng_state(), method.found()
    method.meta_update(ctx)
    assert method.found() != before
    assert all(torch.equal(v, state[k]) for k, v in ctx.model.state_dict().items())
    assert all(torch.equal(p.grad, s) for p, s in zip(ctx.model.parameters(), slopes, strict=True))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in ctx.model.modules())
    assert ctx.wrapped is ctx.model


def test_parameters_that_are_not_trained_are_left_out(images: Data) -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(64, 16), nn.Linear(16, 3)
            self.unused = nn.Linear(3, 3)
            self.body.weight.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x.flatten(1)).relu())

    model = Partly()
    frozen, unused = model.body.weight.detach().clone(), model.unused.weight.detach().clone()
    result = fallow.fit(model, images, ImplicitDecay(**SHORT), **SETTINGS)
    assert torch.equal(model.body.weight, frozen)
    assert torch.equal(model.unused.weight, unused)
    assert result.history[-1]["decay"]["head"] != result.history[-1]["decay"]["unused"]


def test_patience_returns_to_the_best(images: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([1.0, 0.5, 0.7, 0.6, 0.8, *[0.1] * 100])

    def told(train, val, weights, knobs, solver, **rest):
        record = Record("told", 0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, next(losses))
        return [torch.full_like(k, -1.0) for k in knobs], record

    monkeypatch.setattr(decay_module, "hypergradient", told)
    method = ImplicitDecay(warmup=0, inner=5, patience=3, outer="adam")
    result = fallow.fit(MODEL, images, method, weight_decay=1e-3, **SETTINGS)
    assert method.over
    assert next(losses) == 0.1  # five were asked for, no more
    # every step of Adam raised λ by 0.1, and the loss was lowest after one of them
    wanted = 2 * math.log1p(math.expm1(math.sqrt(1e-3 / 2)) * math.exp(0.1)) ** 2
    learned = {name: method.found()[name] for name in method.raw}
    assert learned == pytest.approx(dict.fromkeys(learned, wanted), rel=1e-4)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


@pytest.mark.parametrize("other", ["llf", "seal:scale=0.5", "seal:scale=0.5,late=freeze", "lw", "imp", "born-again",
                                   "sam", "fam", "mixup", "dropout", "ema"])  # fmt: skip
def test_composes_while_it_learns(other: str, images: Data) -> None:
    first, second = build(other), ImplicitDecay(inner=5, warmup=10, batches=1, products=3)
    result = fallow.fit(MODEL, images, first + second, **(SETTINGS | {"generations": 2, "epochs": 4}))
    updated = [row for row in result.history if "meta" in row]
    assert updated
    assert not any(row.get("phase") == "ascent" and "meta" in row for row in result.history)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert all(math.isfinite(value) for row in updated for value in row["decay"].values())
    if first.generational:  # forgetting starts the warm-up again, and the decay goes on
        assert {row["generation"] for row in updated} == {1, 2}


# ---- settings and requests -----------------------------------------------------------------------------------------


def test_settings_name_the_solver() -> None:
    assert build("implicit-decay:per=weight,solver=cg,products=10").solve == CG(10, "auto")
    assert build("implicit-decay:solver=cg,damping=0.1").solve == CG(5, 0.1)
    assert build("implicit-decay:solver=neumann,products=3,alpha=0.1,damping=0").solve == Neumann(3, 0.1, 0)
    assert build("implicit-decay:solver=neumann").solve == Neumann(5, "auto", "auto")
    assert build("implicit-decay:solver=minres").solve == MINRES(5)
    assert build("implicit-decay:solver=nystrom,products=7").solve == Nystrom(7)
    method = build("implicit-decay:solver=t1t2")
    assert method.solve == Identity()
    assert (method.schedule.warmup, method.schedule.inner) == (0, 1)
    assert build("implicit-decay:inner=20").schedule.warmup == 40
    spec = "implicit-decay:per=weight,solver=neumann,products=3,warmup=7"
    assert str(build(spec)) == spec


@pytest.mark.parametrize("spec", [
    "per=tensor", "solver=newton", "outer=sgd", "rate=0", "inner=0", "warmup=-1", "products=0", "batches=0",
    "patience=1.5", "jump=0.5", "damping=-1", "alpha=0,solver=neumann",
])  # fmt: skip
def test_settings_that_make_no_sense(spec: str) -> None:
    with pytest.raises(fallow.RequestError) as caught:
        build(f"implicit-decay:{spec}")
    assert "\n" not in str(caught.value)


def test_it_needs_validation_examples(images: Data) -> None:
    with pytest.raises(fallow.RequestError, match="give val above 0"):
        fallow.fit(MODEL, dataclasses.replace(images, val=None), "implicit-decay", **SETTINGS)


def test_a_loader_with_persistent_workers_cannot_serve_two() -> None:
    x, y = torch.randn(64, 40), torch.arange(64) % 2
    val = TensorDataset(x, y)
    loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True, num_workers=1, persistent_workers=True)
    data = Data("mine", loader, val, None, ["no", "yes"], (40,))
    with pytest.raises(fallow.RequestError, match="persistent_workers=False"):
        fallow.fit(linear(), data, "implicit-decay", **LONG)
    loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True)
    data = dataclasses.replace(data, train=loader)
    result = fallow.fit(linear(), data, ImplicitDecay(**SHORT), **(LONG | {"epochs": 10}))
    assert "meta" in result.history[-1]


def test_what_goes_wrong_inside_is_said_once(images: Data) -> None:
    ctx = prepare(
        MODEL, images, ImplicitDecay(warmup=1, inner=1, batches=1), **(SETTINGS | {"generations": 1, "epochs": 2})
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run(ctx)
    said = [str(w.message) for w in caught if "far from its minimum" in str(w.message)]
    assert len(said) == 1
