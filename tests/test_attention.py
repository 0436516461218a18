"""Whatever takes second derivatives takes them of torch's own attention, whose fused kernels have none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import fallow
from fallow.adaptation.execution import Execution, flat
from fallow.adaptation.learner import Learner
from fallow.diagnose import Hessian
from fallow.hypergradients.solvers import Exact


class Encoder(nn.Module):
    """Three words of two numbers each, and what a layer of attention makes of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(2, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.words(x.unflatten(-1, (3, 2))))[:, 0])


def made() -> tuple[Encoder, Tensor, Tensor]:
    torch.manual_seed(0)
    return Encoder().double(), torch.randn(6, 6).double(), torch.tensor([0, 1, 2, 0, 1, 2])


def hessian(model: nn.Module, name: str, x: Tensor, y: Tensor) -> Tensor:
    """Of the loss by one parameter, by torch.func."""

    def loss(weight: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, {name: weight}, (x,)), y)

    with sdpa_kernel(SDPBackend.MATH):
        return torch.func.hessian(loss)(model.get_parameter(name).detach())


def test_relative_flatness() -> None:
    model, x, y = made()
    weight, second = model.words.weight.detach(), hessian(model, "words.weight", x, y)
    wanted = torch.einsum("si,ti,sjtj->", weight, weight, second)
    torch.testing.assert_close(fallow.relative_flatness(model, "words", x, y).detach(), wanted, rtol=1e-10, atol=0)


def test_products_with_the_hessian() -> None:
    model, x, y = made()
    second = hessian(model, "words.weight", x, y).flatten(2).flatten(0, 1)
    product = Hessian(model, "cross_entropy", x, y, parameters=["words.weight"])
    v = torch.arange(8.0).double()
    torch.testing.assert_close(product(v), second @ v, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:the training loss is far from its minimum")
def test_a_hypergradient() -> None:
    model, x, y = made()
    weight, decay = model.words.weight, torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    model.requires_grad_(False)
    weight.requires_grad_()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(model(x), y)

    found, _ = fallow.hypergradient(
        lambda: loss(x[:3], y[:3]) + decay / 2 * weight.square().sum(), lambda: loss(x[3:], y[3:]), [weight], [decay],
        Exact(damping=0.0),
    )  # fmt: skip
    (slope,) = torch.autograd.grad(loss(x[3:], y[3:]), weight)
    matrix = hessian(model, "words.weight", x[:3], y[:3]).flatten(2).flatten(0, 1) + decay.detach() * torch.eye(8)
    wanted = -(weight.detach().flatten() @ torch.linalg.solve(matrix, slope.flatten()))
    torch.testing.assert_close(found[0], wanted, rtol=1e-9, atol=0)
    with pytest.raises(fallow.RequestError, match="has no second derivatives that torch can take"):
        fallow.hypergradient(loss(x, y) + decay * weight.square().sum(), loss(x, y), [weight], [decay])


@pytest.mark.parametrize("training", [True, False])
def test_a_meta_gradient(training: bool) -> None:
    """Of all tasks at once and one by one; in evaluation, under vmap, torch's layer would take its fast path."""
    model, x, y = made()
    batch = tuple(torch.stack([part, part.flip(0)]) for part in (x, y, x + 0.1, y))
    found = []
    for kind in ("loop", "vmap"):
        learner = Learner(model, functional.cross_entropy, steps=2, rate=0.1).train(training)
        loss, _ = Execution(learner, kind)(batch)
        found.append(torch.autograd.grad(loss, flat(learner.meta())))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)
