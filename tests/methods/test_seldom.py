"""What few would ask for, and must not be silently wrong: odd optimisers, frozen layers, micro-batches, own modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fallow
from fallow.base.errors import RequestError
from fallow.core.method import Method
from fallow.data.tasks import Episodes
from fallow.methods import build
from fallow.training.prepare import prepare
from tests.core.small import Net, points


def tasks() -> Episodes:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(200, 1, 4, 4, generator=draw), torch.arange(20).repeat_interleave(10)
    return Episodes(x=x, y=y, ways=3, shots=2, queries=2, val_tasks=2, test_tasks=2, per_epoch=2)


class HeadFirst(nn.Module):
    """Defined in another order than it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


@pytest.mark.parametrize("spec", ["maml", "protonet", "baseline", "leo:steps=1,latent=4"])
def test_micro_batches_of_tasks_have_the_gradient_of_the_whole(spec: str) -> None:
    def gradient(accumulate: int) -> torch.Tensor:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)).double()
        how = {"generations": 1, "epochs": 1, "batch_size": 4, "precision": "float64", "optimizer": "sgd"}
        ctx = prepare(net, tasks(), spec, accumulate=accumulate, **how)
        ctx.method.begin_generation(ctx)
        ctx.method.begin_epoch(ctx)
        ctx.wrapped.train()
        ctx.backward(next(iter(ctx.method.stream(ctx))))
        trained = [p for group in ctx.optimizer.param_groups for p in group["params"] if p.grad is not None]
        return torch.cat([p.grad.flatten() for p in trained])

    torch.testing.assert_close(gradient(2), gradient(1), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("spec", ["anil", "boil", "baseline", "protonet"])
def test_a_head_that_is_defined_first_is_refused(spec: str) -> None:
    with pytest.raises(RequestError, match=r"defines 'body.1' last, and runs 'head' last"):
        fallow.fewshot(HeadFirst(), tasks(), spec, iterations=1)


class Decays(Method):
    """Steps by the weight decay alone; how much of the first layer is left."""

    name = "decays"

    def begin(self, ctx) -> None:
        self.start = ctx.model[0].weight.detach().clone()

    def before_step(self, ctx) -> None:
        for p in ctx.model.parameters():
            p.grad = torch.zeros_like(p)

    def end(self, ctx) -> None:
        self.left = (ctx.model[0].weight.detach() / self.start).flatten()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_layer_that_implicit_decay_leaves_out_keeps_the_optimisers_decay(optimizer: str) -> None:
    left = []
    for spec in ("", "implicit-decay:inner=1000"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2))
        spy = Decays()
        method = spy + build(spec) if spec else spy
        settings = {"optimizer": optimizer, "weight_decay": 0.1, "lr": 0.01, "batch_size": 16, "momentum": 0.0}
        fallow.fit(net, points(64), method, generations=1, epochs=2, **settings)
        left.append(spy.left)
    torch.testing.assert_close(left[0], left[1])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_implicit_decay_takes_an_optimiser_without_decay() -> None:
    def adam(parameters):
        return torch.optim.Adam(parameters, lr=0.01)  # its decay is the integer 0

    net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    how = {"generations": 1, "epochs": 2, "batch_size": 8, "optimizer": adam}
    assert fallow.fit(net, points(64), "implicit-decay:inner=4,warmup=4", **how).steps == 16


def test_sagd_and_implicit_decay_are_refused() -> None:
    with pytest.raises(RequestError, match="both decide what weight decay does"):
        build("implicit-decay+sagd")


def test_dsd_over_all_layers_leaves_frozen_ones_out() -> None:
    """The smallest weights are frozen: others are re-drawn."""
    net = Net()
    with torch.no_grad():
        net.first.weight.mul_(1e-3)
    net.first.requires_grad_(False)
    before = net.second.weight.detach().clone()
    fallow.fit(net, points(), "dsd:scope=global,fraction=0.5", generations=2, epochs=1, lr=1e-30, weight_decay=0.0)
    assert int((net.second.weight.detach() != before).sum()) >= 4


def test_averages_of_a_fine_tuned_network_keep_its_statistics() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    net[1].running_mean.fill_(0.7)
    result = fallow.fit(net, points(64), "finetune+swa", batch_size=8)
    kept = [module for module in result.model.modules() if isinstance(module, nn.BatchNorm1d)]
    assert torch.equal(kept[0].running_mean, torch.full((6,), 0.7))
