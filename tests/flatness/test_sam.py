from __future__ import annotations

import copy
import os
import traceback
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

import fallow
from fallow.methods import SAM
from fallow.methods.flat.sam import perturbed, statistics_kept
from fallow.training.prepare import prepare
from tests.core.small import TINY, Net, points, weights

LR, MOMENTUM, DECAY = 0.1, 0.9, 0.01


def by_hand(model: nn.Module, batches: list, rho: float, adaptive: bool, clip: float | None = None) -> None:
    """Foret et al., algorithm 1, and Kwon et al., algorithm 1, one number at a time; SGD with momentum and decay."""
    speed = {name: torch.zeros_like(p) for name, p in model.named_parameters()}

    def slopes(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        loss = functional.cross_entropy(model(x), y, label_smoothing=0.1)
        return dict(zip(speed, torch.autograd.grad(loss, list(model.parameters())), strict=True))

    for x, y in batches:
        here = {name: p.detach().clone() for name, p in model.named_parameters()}
        size = {
            name: w.abs() if adaptive and not name.endswith("bias") else torch.ones_like(w) for name, w in here.items()
        }
        first = slopes(x, y)
        norm = sum((size[name] * first[name]).square().sum() for name in here) ** 0.5
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(here[name] + rho * size[name] ** 2 * first[name] / norm)
        second = slopes(x, y)
        if clip is not None:
            whole = sum(g.square().sum() for g in second.values()) ** 0.5
            second = {name: g * min(1.0, clip / (whole + 1e-6)) for name, g in second.items()}
        with torch.no_grad():
            for name, p in model.named_parameters():
                speed[name] = MOMENTUM * speed[name] + second[name] + DECAY * here[name]
                p.copy_(here[name] - LR * speed[name])


SETTINGS = TINY | {"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY, "schedule": "constant", "generations": 1}


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("extra", [{}, {"accumulate": 2}, {"clip": 0.05}], ids=str)
def test_is_the_algorithm(adaptive: bool, extra: dict) -> None:
    mine, theirs = Net(dtype=torch.float64), Net(dtype=torch.float64)
    ctx = prepare(copy.deepcopy(mine), points(), "long", **SETTINGS)
    batches = [batch for epoch in range(2) for batch in ctx.train.epoch(epoch)]
    by_hand(theirs, batches, 0.3, adaptive, extra.get("clip"))
    result = fallow.fit(mine, points(), SAM(0.3, adaptive), **SETTINGS, **extra)
    for name, value in weights(theirs).items():
        torch.testing.assert_close(weights(mine)[name], value, rtol=1e-10, atol=1e-12, msg=name)
    assert result.passes == 2 * len(batches)


def test_an_adaptive_step_sees_weights_behind_a_weight_norm() -> None:
    """Called original0 and original1 there, and no biases for that."""
    mine, theirs = Net(dtype=torch.float64), Net(dtype=torch.float64)
    for net in (mine, theirs):
        for layer in [each for each in net.modules() if isinstance(each, nn.Linear)]:
            weight_norm(layer)
    ctx = prepare(copy.deepcopy(mine), points(), "long", **SETTINGS)
    by_hand(theirs, [batch for epoch in range(2) for batch in ctx.train.epoch(epoch)], 0.3, adaptive=True)
    fallow.fit(mine, points(), SAM(0.3, adaptive=True), **SETTINGS)
    for name, value in weights(theirs).items():
        torch.testing.assert_close(weights(mine)[name], value, rtol=1e-10, atol=1e-12, msg=name)


def test_the_learning_rate_follows_its_schedule() -> None:
    rates = [[row["lr"] for row in fallow.fit(Net(), points(), spec, **TINY).history] for spec in ("long", "sam")]
    assert rates[0] == rates[1]


@pytest.mark.parametrize("adaptive", [False, True])
def test_weights_come_back_to_the_bit(adaptive: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2, bias=False))
    model[0].weight.data[0, 0] = -0.0
    before = weights(model)
    model(torch.randn(3, 4)).square().sum().backward()
    model[1].weight.grad = None
    trained = model.parameters() if adaptive else list(model.parameters())
    with perturbed(trained, 0.1, adaptive):
        assert not torch.equal(model[0].weight, before["0.weight"])
        assert torch.equal(model[1].weight, before["1.weight"])
    for name, value in weights(model).items():
        assert torch.equal(value.view(torch.int32), before[name].view(torch.int32)), name
    with pytest.raises(KeyboardInterrupt), perturbed(model.parameters(), 0.1, adaptive):
        raise KeyboardInterrupt
    assert torch.equal(model[0].weight, before["0.weight"])


def test_biases_at_zero_climb_too() -> None:
    ctx = prepare(Net(), points(), SAM(0.3, adaptive=True), **TINY)
    torch.nn.init.zeros_(ctx.model.first.bias)
    assert ctx.method.unscaled == {id(ctx.model.first.bias), id(ctx.model.second.bias)}
    seen: list[torch.Tensor] = []
    ctx.model.first.register_forward_pre_hook(lambda module, _: seen.append(module.bias.detach().clone()))
    batch = next(iter(ctx.batches()))
    ctx.method.update(ctx, lambda: ctx.backward(batch))
    assert seen[0].eq(0).all()
    assert seen[1].ne(0).any()


def test_without_a_slope_nothing_moves() -> None:
    model = nn.Linear(3, 2)
    model.weight.grad = torch.zeros_like(model.weight)
    before = model.weight.detach().clone()
    with perturbed([model.weight], 0.1):
        assert torch.equal(model.weight, before)


class Counting(nn.Module):
    """BatchNorm, dropout, a layer that nobody trains, and a count of the forward passes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)
        self.idle = nn.Linear(1, 1)
        self.drop = nn.Dropout()
        self.masks: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(torch.ones_like(x)) * x
        if self.training:
            self.masks.append((x != 0).detach())
        return self.last(torch.relu(self.norm(self.first(x))))


def test_statistics_move_once_a_step_and_both_points_see_one_loss() -> None:
    model = Counting()
    ctx = prepare(model, points(), "sam", **SETTINGS)
    twin = copy.deepcopy(model)
    model.train()
    batch = next(iter(ctx.batches()))
    state = torch.get_rng_state()
    ctx.method.update(ctx, lambda: ctx.backward(batch))
    torch.set_rng_state(state)
    twin.train()(batch[0])
    assert len(model.masks) == 2
    assert torch.equal(*model.masks)  # dropout drops the same units at both points
    assert model.norm.num_batches_tracked == 1
    assert torch.equal(model.norm.running_mean, twin.norm.running_mean)
    assert torch.equal(model.norm.running_var, twin.norm.running_var)
    assert model.idle.weight.grad is None


def test_an_interruption_leaves_the_statistics_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))

    def interrupted() -> None:
        with statistics_kept(model):
            model(torch.randn(4, 2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert model[1].num_batches_tracked == 0
    assert not model[1].running_mean.any()


def test_without_gradients_there_is_nowhere_to_climb() -> None:
    with pytest.raises(fallow.RequestError, match="call backward before"), perturbed(Net().parameters(), 0.05):
        pass


def test_half_precision() -> None:
    result = fallow.fit("mlp:hidden=16", points(), "sam", precision="bf16", **(TINY | {"epochs": 8}))
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_requests() -> None:
    for spec, wanted in {
        "sam:rho=0": "rho is 0: it must be above 0",
        "sam:perturb=global": "unknown value for perturb 'global'",
    }.items():
        with pytest.raises(fallow.RequestError, match=wanted):
            fallow.fit(Net(), points(), spec, **TINY)
    with pytest.raises(fallow.RequestError, match="do not go together"):
        fallow.fit(Net(), points(), "sam+sam", **TINY)


def climb_in_shards(rank: int, meeting: str) -> None:
    """Half of the batch and half of every weight in each of two processes, beside the whole."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    sharded = fully_shard(copy.deepcopy(whole), mesh=init_device_mesh("cpu", (2,)))
    x, y = torch.randn(8, 5, dtype=torch.float64), torch.randint(3, (8,))
    for adaptive in (False, True):
        found = []
        for model, part in ((whole, slice(None)), (sharded, slice(rank, None, 2))):
            model.zero_grad()
            functional.cross_entropy(model(x[part]), y[part]).backward()
            with perturbed(list(model.parameters()), 0.3, adaptive):
                shown = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
                found.append([p.detach().clone() for p in shown])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_shards_climb_like_the_whole(tmp_path: Path) -> None:
    """Under FSDP every process holds a part, and the norm is of all parts."""
    children = []
    for rank in (0, 1):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                climb_in_shards(rank, str(tmp_path / "meeting"))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
