from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.diagnose import Hessian
from fallow.diagnose.products import GROWTH
from tests.diagnose.networks import NAMES, dense, digits, hessian_of, network


def vector(size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_is_the_dense_hessian_whatever_the_chunks(name: str) -> None:
    x, y = digits()
    exact = hessian_of(name, True)
    v = vector(len(exact))
    one = Hessian(network(name, True), "cross_entropy", x, y)._saved_bytes((0, x[:4], y[:4])) * GROWTH // 4
    for options in ({}, {"chunk": 37}, {"chunk": 16, "memory": 0}, {"chunk": 16, "memory": 16 * one * 3}):
        product = Hessian(network(name, True), "cross_entropy", x, y, **options)
        assert torch.allclose(product(v), exact @ v, rtol=1e-10, atol=1e-12)
        assert product.loss == pytest.approx(
            float(functional.cross_entropy(network(name, True)(x), y).detach()), rel=1e-12
        )
    assert (len(product._kept), len(product._rest)) == (3, 3)


def test_automatic_chunks_fit_the_memory() -> None:
    x, y = digits()
    one = Hessian(network("relu", True), "cross_entropy", x, y)
    some = Hessian(network("relu", True), "cross_entropy", x, y, memory=50_000)
    v = vector(one.size)
    assert one.chunk == 90
    assert some.chunk < 90
    assert torch.allclose(one(v), some(v), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_mode_is_as_asked_and_nothing_is_touched(mode: str) -> None:
    x, y = digits()
    net = network("convolution", True)
    net.train(mode == "eval")  # the other one
    net[0].eval()
    modes = [module.training for module in net.modules()]
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random = torch.get_rng_state()
    product = Hessian(net, "cross_entropy", x, y, mode=mode)
    v = vector(product.size)
    found = product(v)
    assert [module.training for module in net.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.allclose(found, dense(net, x, y, mode) @ v, rtol=1e-9, atol=1e-11)
    net.eval()


def test_chunks_in_training_mode_are_batches() -> None:
    x, y = digits()
    net = network("convolution", True)
    product = Hessian(net, "cross_entropy", x, y, mode="train", chunk=45)
    halves = [dense(net, some, labels, "train") for some, labels in zip(x.split(45), y.split(45), strict=True)]
    v = vector(product.size)
    assert torch.allclose(product(v), (halves[0] + halves[1]) @ v / 2, rtol=1e-9, atol=1e-11)
    with pytest.raises(RequestError, match="chunk="):
        Hessian(net, "cross_entropy", x, y, mode="train", memory=1000)


def test_dropout_keeps_its_masks() -> None:
    x, y = digits()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 4)).double()
    v = torch.ones(len(torch.nn.utils.parameters_to_vector(net.parameters())), dtype=torch.float64)
    kept = Hessian(net, "cross_entropy", x, y, mode="train", chunk=30)(v)
    anew = Hessian(net, "cross_entropy", x, y, mode="train", chunk=30, memory=0)
    assert torch.equal(anew(v), anew(v))
    assert torch.allclose(anew(v), kept, rtol=1e-12)
    assert not torch.allclose(Hessian(net, "cross_entropy", x, y, mode="train", chunk=30, seed=1)(v), kept)


def test_some_parameters_only() -> None:
    x, y = digits()
    net = copy.deepcopy(network("smooth", True))
    exact = hessian_of("smooth", True)
    last = Hessian(net, "cross_entropy", x, y, parameters=["5", "1.bias"])
    net[3].requires_grad_(False)
    trainable = Hessian(net, "cross_entropy", x, y)
    sizes = [parameter.numel() for parameter in net.parameters()]
    place = torch.arange(len(exact)).split(sizes)
    chosen = torch.cat([place[1], place[4], place[5]])
    v = vector(last.size)
    assert torch.allclose(last(v), exact[chosen][:, chosen] @ v, rtol=1e-10, atol=1e-12)
    assert list(trainable.parameters) == ["1.weight", "1.bias", "5.weight", "5.bias"]


def test_float32_is_float64_but_for_rounding() -> None:
    x, y = digits()
    net = copy.deepcopy(network("layernorm", True)).float()
    exact = hessian_of("layernorm", True)
    v = vector(len(exact))
    found = Hessian(net, "cross_entropy", x, y)(v.float())
    assert found.dtype == torch.float32
    assert (found - (exact @ v)).norm() < 1e-4 * (exact @ v).norm()


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return 2 * ctx.saved_tensors[0] * gradient


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda output, y: (output.argmax(1) != y).double().mean(), "no derivatives"),
        (lambda output, y: functional.cross_entropy(Once.apply(output), y), "no second derivatives"),
        (lambda output, y: functional.cross_entropy(output, y, reduction="none"), "one number"),
        (lambda output, y: 1.0, "a float"),
        (lambda output, y: functional.cross_entropy(output, y) * float("inf"), "loss of these examples is inf"),
        ("cross_entrpy", "did you mean 'cross_entropy'"),
    ],
)
def test_refuses_losses_without_second_derivatives(loss: str | Callable, words: str) -> None:
    x, y = digits()
    with pytest.raises(RequestError, match=words) as raised:
        Hessian(network("relu", True), loss, x, y)(vector(214))
    assert "\n" not in str(raised.value)


def test_refuses_a_loss_that_is_linear_in_the_weights() -> None:
    with pytest.raises(RequestError, match="no second derivatives"):
        Hessian(nn.Linear(3, 2), lambda output, y: output.mean(), torch.randn(5, 3), torch.zeros(5))


def test_refuses_what_cannot_be_differentiated() -> None:
    x, y = digits()
    diverged = copy.deepcopy(network("relu", True))
    with torch.no_grad():
        diverged[1].weight[0, :2] = torch.tensor([float("nan"), float("inf")])
    for net, options, words in (
        (diverged, {}, "1.weight is not finite in 2 of 160 places"),
        (network("relu", True), {"mode": "training"}, "unknown mode 'training'"),
        (network("relu", True), {"parameters": ["4"]}, "unknown parameter or module '4'"),
        (network("relu", True), {"chunk": 0}, "chunk=0"),
        (copy.deepcopy(network("relu", True)).requires_grad_(False), {}, "no parameter that requires a gradient"),
        (copy.deepcopy(network("relu", True)).bfloat16(), {}, "float32 or float64"),
    ):
        with pytest.raises(RequestError, match=words):
            Hessian(net, "cross_entropy", x, y, **options)
    with pytest.raises(RequestError, match="90 inputs and 89 targets"):
        Hessian(network("relu", True), "cross_entropy", x, y[1:])
