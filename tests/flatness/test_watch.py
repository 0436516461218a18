"""Sharing the forward pass, and leaving the model as it was."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow import models
from fallow.flatness import Watch, explain, relative_flatness
from fallow.flatness.choose import choose, evaluate
from tests.flatness.networks import CASES, make
from tests.flatness.reference import dense, distance, smoothed


@pytest.mark.parametrize("name", CASES)
def test_one_forward_pass_serves_both(name: str) -> None:
    model, layer, x, y = make(name)
    torch.manual_seed(1)  # for dropout
    wanted = relative_flatness(model, layer, x, y, smoothed)
    watch, calls = Watch(model, layer), []
    watch.look(lambda: smoothed(model(x), y))  # decides whether normalisations are written out
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    torch.manual_seed(1)
    with watch:
        output = model(x)
    found = watch.flatness(smoothed(output, y))
    handle.remove()
    assert len(calls) == 1
    assert distance(found, wanted, model) < 1e-12
    assert not any(module._forward_hooks for module in model.modules())


def test_what_is_not_written_out_is_refused() -> None:
    """Rather no number than one whose gradient is wrong."""
    model, layer, x, y = make("relu, layer norm")
    watch = Watch(model, layer)
    with watch:
        loss = smoothed(model(x), y)
    with pytest.raises(fallow.RequestError, match="third derivatives"):
        watch.flatness(loss)


def test_a_kernel_called_by_its_own_name_is_refused() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.layer_norm(x, (5,))

    model, _, x, y = make("relu")
    model[1] = nn.Sequential(nn.Tanh(), Own())
    with pytest.raises(fallow.RequestError, match="cannot be written out"):
        relative_flatness(model, "0", x, y)
    assert relative_flatness(model, "0", x, y, form="gauss-newton") > 0


def test_leaves_the_model_as_it_was() -> None:
    model = models.build("scnn:width=2,dense=4,norm=batch,dropout=0.5", shape=(1, 4, 4), classes=3)
    x, y = torch.randn(6, 1, 4, 4), torch.randint(3, (6,))
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    for form in ("auto", "probe", "tail"):
        kappa = relative_flatness(model, "penultimate", x, y, form=form, generator=torch.Generator())
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items()), form
        kappa.backward()  # its graph is whole although the buffers are back
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is not None for p in model.parameters())
    assert model.training


def test_running_statistics_still_run_while_norms_are_written_out() -> None:
    a, layer, x, _ = make("relu, batch norm")
    b = copy.deepcopy(a)
    b(x)
    watch = Watch(a, layer, form="tail")
    watch.rewriting = True
    with watch:
        a(x)
    for name, buffer in a.named_buffers():
        torch.testing.assert_close(buffer, b.get_buffer(name))


@pytest.mark.parametrize("name", ["relu", "tanh", "layer norm, relu", "middle, silu"])
def test_frozen_layers(name: str) -> None:
    """κ is of the weight, whether it is trained or not; only the trained ones get a gradient."""
    model, layer, x, y = make(name)
    wanted = dense(model, layer, x, y, smoothed).item()
    last = list(model.children())[-1]
    for module in model.children():
        module.requires_grad_(module is last)
    found = relative_flatness(model, layer, x, y, smoothed)
    assert found.item() == pytest.approx(wanted, rel=1e-12)
    found.backward()
    assert last.weight.grad.abs().sum() > 0
    model.requires_grad_(False)
    assert relative_flatness(model, layer, x, y, smoothed).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["head", "relu", "gelu", "layer norm, relu", "batch norm, relu", "middle, silu", "conv"]
)
def test_half_precision(name: str) -> None:
    """Under autocast the products are in single precision, and κ is as near as the forward pass allows."""
    model, layer, x, y = make(name)
    wanted = relative_flatness(model, layer, x, y, smoothed).item()
    model, x = model.float(), x.float()
    watch = Watch(model, layer)
    watch.look(lambda: smoothed(model(x), y))
    with torch.autocast("cpu", torch.bfloat16):
        with watch:
            output = model(x)
        found = watch.flatness(smoothed(output, y))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(wanted, rel=0.15)
    found.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_the_head_in_half_precision_is_right_for_what_the_forward_pass_gave() -> None:
    """The same formula in float64 on the very φ and logits that autocast made; all gradients finite, all parts met."""
    model, layer, x, y = make("batch norm, head")
    model, x = model.float(), x.float()
    watch = Watch(model, layer)
    with torch.autocast("cpu", torch.bfloat16), watch:
        output = model(x)
        phi, loss = watch.seen.x.double(), smoothed(output, y)
    w, p = model[3].weight.double(), torch.softmax(output.double(), 1)
    centred = torch.eye(3) - p[:, None]  # e_c − p
    wanted = (phi.square().sum(1) * (p * (centred @ w).square().sum(2)).sum(1)).mean()
    observed = watch.observe(loss)
    assert choose(observed).form == "head"
    found = evaluate(observed, choose(observed))
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    mine = torch.autograd.grad(found, model[3].weight, retain_graph=True)[0]
    theirs = torch.autograd.grad(wanted, model[3].weight, retain_graph=True)[0]
    assert torch.allclose(mine, theirs, rtol=0.03, atol=0.01 * float(theirs.abs().max()))
    found.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model[:3].parameters())


def test_a_sure_network_has_no_negative_curvature() -> None:
    """In single precision, where the difference of two large numbers would have either sign."""
    torch.manual_seed(0)
    model, x, y = nn.Linear(6, 3), torch.randn(50, 6), torch.randint(3, (50,))
    with torch.no_grad():
        model.weight.mul_(10).add_(100)
        model.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    wanted = dense(copy.deepcopy(model).double(), "", x.double(), y, functional.cross_entropy)
    found = relative_flatness(nn.Sequential(model), "0", x, y)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-2)


def test_several_ways_through_one_model() -> None:
    """A model that drops a block at random has two tails, and both are right."""

    class Sometimes(nn.Module):
        skip = False

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.block, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.layer(x))
            return self.head(x if self.skip else torch.tanh(self.block(x)))

    torch.manual_seed(0)
    model, x, y = Sometimes().double(), torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,))
    watch = Watch(model, "layer")
    for model.skip in (False, True, False, True):
        with watch:
            output = model(x)
        found = watch.flatness(functional.cross_entropy(output, y))
        assert distance(found, dense(model, "layer", x, y, functional.cross_entropy), model) < 1e-10


def test_says_which_form_and_why() -> None:
    x, y = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
    resnet = models.build("resnet18:width=2", shape=(3, 8, 8), classes=10)
    assert str(explain(resnet, "penultimate", x, y)) == (
        "closed (exact): BatchNorm2d, then a tail that is linear but for kinks; 10 passes back through it"
    )
    assert str(explain(resnet, "head", x, y)) == (
        "head (exact): the layer gives the logits of a softmax, a few small products"
    )
    dense = models.build("resnet18:width=2,dense=16,8", shape=(3, 8, 8), classes=10)
    assert str(explain(dense, "penultimate", x, y)) == (
        "closed (exact): Relu, then a linear head; 5 times the layer's products"
    )
    assert dense.get_submodule("dense.1.linear").weight.shape == (8, 16)
    scnn = models.build("scnn:width=2,dense=8", shape=(3, 8, 8), classes=10)
    assert str(explain(scnn, "penultimate", x, y)) == (
        "closed (exact): GroupNorm, then Relu, then a linear head; 5 times the layer's products"
    )
    assert explain(scnn, "conv4.conv", x, y).form == "tail"
    assert not explain(scnn, "penultimate", x, y, form="gauss-newton").exact


def test_asks_before_it_takes_minutes() -> None:
    resnet = models.build("resnet18:width=32", shape=(3, 8, 8), classes=10)
    x, y = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
    with pytest.raises(fallow.RequestError, match="form='probe' estimates it from one"):
        relative_flatness(resnet, "layer1.0.conv1", x, y)
    assert relative_flatness(resnet, "layer1.0.conv1", x, y, form="probe").isfinite()
