from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

import fallow
from fallow.core import loop
from fallow.core.method import Method
from fallow.flatness import relative_flatness
from fallow.flatness.choose import choose
from fallow.methods import FAM, build
from fallow.training.prepare import prepare
from tests.core.small import TINY, Net, points
from tests.flatness.reference import dense, gradients


def context(method: Method | str, model: nn.Module | None = None, **changes):
    torch.manual_seed(0)
    return prepare(model or Net(dtype=torch.float64), points(), method, **(TINY | changes))


def backward(ctx, batch) -> dict[str, torch.Tensor]:
    ctx.wrapped.train()
    ctx.backward(batch)
    return {name: p.grad.clone() for name, p in ctx.model.named_parameters()}


def robust(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss that no closed form knows."""
    return torch.log1p((output - functional.one_hot(y, 2)).square().sum(1)).mean()


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("loss", [None, robust])
@pytest.mark.parametrize("layer", ["head", "penultimate"])
def test_adds_the_gradient_of_the_penalty(loss, accumulate: int, layer: str) -> None:
    """With the settings' label smoothing or the user's own loss, over all micro-batches."""
    ctx = context(FAM(0.3, layer), loss=loss, accumulate=accumulate)
    batch = next(iter(ctx.batches()))
    found = backward(ctx, batch)
    plain = backward(context("long", loss=loss), batch)
    criterion = loss or partial(functional.cross_entropy, label_smoothing=0.1)
    kappa = dense(ctx.model, {"head": "second", "penultimate": "first"}[layer], *batch, criterion)
    slopes = gradients(kappa, ctx.model)
    for name, slope in zip(plain, slopes, strict=True):
        torch.testing.assert_close(found[name], plain[name] + 0.3 * slope, rtol=1e-9, atol=1e-12, msg=name)


def test_the_head_is_the_default() -> None:
    assert FAM().layer == "head"
    (watch,) = context("fam").method.watches
    assert watch.path == "second"


def test_with_mixup() -> None:
    """κ is of the blended inputs; their two labels do not matter to the curvature of softmax."""
    seen: list[torch.Tensor] = []
    ctx = context("mixup:alpha=1+fam:strength=0.3")
    ctx.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    batch = next(iter(ctx.batches()))
    found, plain = backward(ctx, batch), backward(context("mixup:alpha=1"), batch)
    (watch,) = ctx.method.methods[1].watches
    with watch:
        output = ctx.model(seen[0])
    loss = 0.25 * functional.cross_entropy(output, batch[1]) + 0.75 * functional.cross_entropy(output, 1 - batch[1])
    assert choose(watch.observe(loss)).form == "head"
    slopes = gradients(dense(ctx.model, "second", seen[0], batch[1], functional.cross_entropy), ctx.model)
    for name, slope in zip(plain, slopes, strict=True):
        torch.testing.assert_close(found[name], plain[name] + 0.3 * slope, rtol=1e-9, atol=1e-12, msg=name)


def test_one_forward_pass_a_step() -> None:
    ctx = context("fam")
    calls: list[int] = []
    ctx.model.register_forward_hook(lambda *_: calls.append(1))
    backward(ctx, next(iter(ctx.batches())))
    assert len(calls) == 1
    assert not ctx.model.first._forward_hooks


def test_several_layers_add_up() -> None:
    batch = next(iter(context("long").batches()))
    grads = {spec: backward(context(f"fam:strength=1,layer={spec}"), batch) for spec in ("first", "head", "first,head")}
    plain = backward(context("long"), batch)
    for name in plain:
        sum_of_both = grads["first"][name] + grads["head"][name] - plain[name]
        torch.testing.assert_close(grads["first,head"][name], sum_of_both)
    assert FAM(layer="penultimate + head").layer == "penultimate,head"
    assert str(FAM(layer="penultimate+head")) == "fam:layer=penultimate,head"
    assert str(FAM(layer="head")) == "fam"
    assert build("fam:layer=penultimate,head").layer == "penultimate,head"


def test_logs_the_mean_of_the_epoch() -> None:
    net = Net()
    result = fallow.fit(net, points(), "fam:layer=first", **(TINY | {"lr": 1e-12, "batch_size": 16, "generations": 1}))
    x, y = points().train.x, points().train.y
    wanted = relative_flatness(net, "first", x, y, partial(functional.cross_entropy, label_smoothing=0.1)).item()
    assert [row["flatness"] for row in result.history] == pytest.approx([wanted] * 2, rel=1e-5)


@pytest.mark.filterwarnings("ignore:the relative flatness is negative")  # it may pass below 0 on the way
def test_makes_the_network_flatter() -> None:
    found = [
        fallow.fit(Net(), points(), spec, **(TINY | {"epochs": 20}))
        for spec in ("long", "fam:strength=0.03,layer=first")
    ]
    x, y = points().train.x, points().train.y
    plain, flat = (relative_flatness(result.network, "first", x, y).item() for result in found)
    assert flat < 0.8 * plain


def negative() -> nn.Module:
    """Sure of the wrong class, so that softmax is flat, where tanh bends."""
    net = Net()
    with torch.no_grad():
        net.first.bias.fill_(1)
        net.second.weight.copy_(torch.tensor([[3.0], [-3.0]]))
    return net


def test_warns_once_when_negative() -> None:
    with pytest.warns(UserWarning, match="relative flatness is negative") as caught:
        fallow.fit(negative(), points(), "fam:strength=0.0001,layer=first", **(TINY | {"lr": 1e-6, "epochs": 3}))
    assert len([w for w in caught if "relative flatness" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fallow.fit(negative(), points(), "fam:strength=0.0001,layer=first,form=gauss-newton", **(TINY | {"lr": 1e-6}))


def test_half_precision() -> None:
    result = fallow.fit("mlp:hidden=16", points(), "fam", precision="bf16", **TINY)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert all(row["flatness"] > 0 for row in result.history)


def test_normalisations_after_the_layer_are_written_out_from_the_start() -> None:
    class Normed(Net):
        def __init__(self) -> None:
            super().__init__(dtype=torch.float64)
            self.norm = nn.LayerNorm(5, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.norm(torch.tanh(self.first(x.double()))))

    ctx = context(FAM(0.3, "penultimate"), Normed())
    batch = next(iter(ctx.batches()))
    found = backward(ctx, batch)
    plain = backward(context("long", Normed()), batch)
    kappa = relative_flatness(
        ctx.model, "first", *batch, partial(functional.cross_entropy, label_smoothing=0.1), form="tail"
    )
    slopes = torch.autograd.grad(kappa, list(ctx.model.parameters()))
    for name, slope in zip(plain, slopes, strict=True):
        torch.testing.assert_close(found[name], plain[name] + 0.3 * slope, rtol=1e-9, atol=1e-12, msg=name)


def test_what_begins_to_interact_later_is_noticed() -> None:
    """A scale that starts at 0 hides that samples interact; an epoch later it is seen."""

    class Late(Net):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            return self.second(x + self.scale * x.mean(0))

    ctx = context("fam:layer=first", Late())
    (watch,) = ctx.method.watches
    assert not any(watch.known.values())
    loop.run(ctx)
    assert any(watch.known.values())


def test_requests() -> None:
    for spec, wanted in {
        "fam:strength=0": "strength is 0: it must be above 0",
        "fam:form=exact": "unknown form 'exact'",
        "fam:probes=0": "probes is 0",
        "fam:layer=hedd": "unknown layer 'hedd': did you mean 'head'?",
    }.items():
        with pytest.raises(fallow.RequestError, match=wanted):
            fallow.fit("mlp", points(), spec, **TINY)
