"""Implicit decay beside batch norms: hypergradients against trainings that begin where the last one ended."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

import fallow
from fallow.data import Data, Examples
from fallow.hypergradients.statistics import BatchStatistics
from fallow.methods.hyper.decay import ImplicitDecay
from fallow.training.prepare import prepare

TRAIN, VAL = 40, 60


def data() -> Data:
    draw = torch.Generator().manual_seed(0)

    def some(n: int) -> Examples:
        x = torch.randn(n, 5, generator=draw)
        return Examples(x, (x[:, 0] * x[:, 1] + 0.7 * torch.randn(n, generator=draw) > 0).long())

    return Data("points", some(TRAIN), some(VAL), None, ["no", "yes"], (5,))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=1.0), nn.Tanh(), nn.Linear(4, 2)).double()


SETTINGS = {
    "generations": 1, "epochs": 2, "batch_size": TRAIN, "lr": 0.01, "weight_decay": 0.02, "label_smoothing": 0.0,
    "augment": "none", "precision": "float64",
}  # fmt: skip


def minimise(model: nn.Module, rates: dict[str, float], x: Tensor, y: Tensor) -> None:
    """Newton's steps to the minimum of the loss of the whole batch and ½·rate·‖w‖²; the running statistics follow.

    The layer before the norm has no decay, and its scale no effect: along such directions nothing moves.
    """
    model.train()
    shapes = {name: p.shape for name, p in model.named_parameters()}
    rate = {name: 0.0 if name.startswith("0.") else rates[name.rpartition(".")[0]] for name in shapes}
    decay = torch.cat([torch.full(shape, rate[name]).flatten() for name, shape in shapes.items()]).double()

    def loss(flat: Tensor) -> Tensor:
        parts = zip(shapes, flat.split([shape.numel() for shape in shapes.values()]), strict=True)
        weights = {name: part.view(shapes[name]) for name, part in parts}
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        output = functional_call(model, weights | buffers, (x,))
        return functional.cross_entropy(output, y) + 0.5 * (decay * flat.square()).sum()

    w = nn.utils.parameters_to_vector(model.parameters()).detach()
    for _ in range(100):
        slope = torch.func.grad(loss)(w)
        if slope.norm() < 1e-7:
            break
        curvature, along = torch.linalg.eigh(torch.autograd.functional.hessian(loss, w))
        seen = curvature.abs() > 1e-7 * curvature.abs().max()
        step, size = along[:, seen] @ (along[:, seen].T @ slope / curvature[seen].abs()), 1.0
        while loss(w - size * step) > loss(w):
            size /= 2
        w = w - size * step
    nn.utils.vector_to_parameters(w, model.parameters())
    with torch.no_grad():
        model(x)


def validation(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float(functional.cross_entropy(model(x), y))


@pytest.mark.filterwarnings("ignore:implicit-decay leaves", "ignore:implicit-decay learns nothing in 2 steps")
def test_is_the_slope_of_trainings_that_go_on() -> None:
    """A step of λ up and down, each trained on to its own minimum, and looked at as any evaluation does."""
    everything = data()
    method = ImplicitDecay(solver="minres", products=60, damping=1e-9, batches=1)
    ctx = prepare(network(), everything, method, **SETTINGS)
    method.begin_generation(ctx)
    (x, y), (x_val, y_val) = (next(iter(stream.ordered())) for stream in (ctx.train, ctx.val))
    minimise(ctx.model, method.found(), x, y)
    assert set(method.raw) == {"1", "3"}
    for p in ctx.model.parameters():
        p.grad = torch.zeros_like(p)
    found, record = method.hypergradient(ctx)
    assert record.val_loss == pytest.approx(validation(ctx.model, x_val, y_val), rel=1e-9)
    assert record.gradient_norm < 1e-5
    for name, raw in method.raw.items():
        ends = []
        for h in (-0.02, 0.02):
            model = copy.deepcopy(ctx.model)
            raw.data += h
            method.set_rates()
            minimise(model, method.found(), x, y)
            raw.data -= h
            ends.append(validation(model, x_val, y_val))
        slope = (ends[1] - ends[0]) / 0.04
        assert found[name].item() == pytest.approx(slope, rel=0.002), name


def test_layers_that_feed_a_norm_keep_the_optimisers_decay() -> None:
    method = ImplicitDecay(inner=1, warmup=1, batches=1)
    with pytest.warns(RuntimeWarning, match="leaves 1 layers to the optimiser's own decay"):
        ctx = prepare(network(), data(), method, **SETTINGS)
    method.begin_generation(ctx)
    first = ctx.model[0].weight
    assert method.rates[first].item() == pytest.approx(0.02)
    before = first.detach().clone()
    for p in ctx.model.parameters():
        p.grad = torch.zeros_like(p)
    ctx.step()
    torch.testing.assert_close(first.detach(), before * (1 - 0.01 * 0.02))
    assert "0" not in method.raw
    assert method.found()["0"] == pytest.approx(0.02)


@pytest.mark.parametrize("model", [
    nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)),
    nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 3, 2), nn.BatchNorm1d(3, affine=False), nn.Flatten()),
])  # fmt: skip
def test_batch_norms_are_those_of_training_and_then_of_evaluation(model: nn.Module) -> None:
    model = model.double()
    x, other = torch.randn(8, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    norm = next(m for m in model if isinstance(m, nn.BatchNorm1d))
    norm.momentum = 1.0  # the running statistics are those of the last batch
    trained = copy.deepcopy(model)
    wanted = trained(x), trained.eval()(other)
    before = copy.deepcopy(norm.state_dict())
    model.eval()
    with BatchStatistics(model) as statistics:
        torch.testing.assert_close(model(x), wanted[0])
        with statistics.of(x):
            found = model(other)
            torch.testing.assert_close(found, wanted[1])
        assert torch.autograd.grad(found.sum(), model.parameters(), allow_unused=True)[0] is not None
    assert all(torch.equal(before[key], value) for key, value in norm.state_dict().items())
    torch.testing.assert_close(model(x), copy.deepcopy(model)(x))
    assert "forward" not in norm.__dict__


@pytest.mark.filterwarnings("ignore:the training loss is far from its minimum")
def test_it_trains_where_norms_are() -> None:
    with pytest.warns(RuntimeWarning, match="normalisation follows them"):
        result = fallow.fit(
            "mlp:hidden=8,norm=batch", data(), ImplicitDecay(inner=2, warmup=2, batches=1),
            **(SETTINGS | {"precision": "float32", "batch_size": 10}),
        )  # fmt: skip
    decay = result.history[-1]["decay"]
    assert decay.pop("hidden1.linear") == pytest.approx(0.02)
    assert set(decay) == {"hidden1.norm", "head"}
    assert all(abs(value - 0.02) > 1e-4 for value in decay.values())
