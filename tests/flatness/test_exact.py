"""Every form that claims to be exact against the dense Hessian: κ, and its gradient by every parameter."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import fallow
from fallow.flatness import explain, relative_flatness
from fallow.flatness.head import Kappa
from tests.flatness.networks import CASES, CLASSES, N, make
from tests.flatness.reference import by_hand, dense, distance, finite_difference, gradients, smoothed

BOUND = 1e-10


@pytest.mark.parametrize("name", CASES)
def test_is_the_dense_hessian(name: str) -> None:
    model, layer, x, y = make(name)
    wanted = dense(model, layer, x, y, smoothed)
    assert explain(model, layer, x, y, smoothed).form == CASES[name].form
    for form in dict.fromkeys(("auto", "closed", "gauss-newton", "tail")):
        try:
            choice = explain(model, layer, x, y, smoothed, form)
        except fallow.RequestError:
            continue
        if choice.exact:
            found = relative_flatness(model, layer, x, y, smoothed, form)
            assert distance(found, wanted, model) < BOUND, str(choice)


@pytest.mark.parametrize("name", ["head", "gelu", "layer norm, relu", "batch norm, relu", "middle, tanh", "conv, max"])
def test_simplified(name: str) -> None:
    model, layer, x, y = make(name)
    wanted = dense(model, layer, x, y, smoothed, simplified=True)
    for form in ("auto", "tail"):
        found = relative_flatness(model, layer, x, y, smoothed, form, simplified=True)
        assert distance(found, wanted, model) < BOUND


def test_the_dense_form_is_the_definition() -> None:
    for name in ("relu", "layer norm, gelu"):
        model, layer, x, y = make(name)
        found = relative_flatness(model, layer, x, y, smoothed, "dense")
        assert distance(found, dense(model, layer, x, y, smoothed), model) < BOUND


@pytest.mark.parametrize(
    "name",
    ["tanh", "layer norm, relu", "layer norm, gelu", "relu, layer norm", "batch norm, relu", "batch norm, gelu",
     "batch norm, head", "layer norm, head", "relu, batch norm", "layer norm before",
     "conv, batch norm", "conv, instance norm", "conv, group norm"],
)  # fmt: skip
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """Autograd is no witness here: torch's own third derivatives of LayerNorm and BatchNorm are wrong."""
    model, layer, x, y = make(name)

    def kappa() -> torch.Tensor:
        return relative_flatness(model, layer, x, y, smoothed)

    found = gradients(kappa(), model)
    whole = torch.cat([g.flatten() for g in found]).norm()
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        direction = torch.randn_like(parameter)
        slope = finite_difference(kappa, parameter, direction / direction.norm())
        assert slope == pytest.approx(float((gradient * direction).sum() / direction.norm()), abs=1e-6 * float(whole))


WEIGHTS = torch.rand(CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.5
LABELS = torch.tensor([0, 2, 1, 1, 0])
SOFT = torch.softmax(torch.randn(N, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(4)), 1)
LOSSES = {
    "plain": ("cross_entropy", LABELS),
    "smoothed": (smoothed, LABELS),
    "weighted": (lambda f, y: functional.cross_entropy(f, y, weight=WEIGHTS), LABELS),
    "weighted and smoothed": (lambda f, y: functional.cross_entropy(f, y, weight=WEIGHTS, label_smoothing=0.2), LABELS),
    "ignored": (lambda f, y: functional.cross_entropy(f, y, ignore_index=0, label_smoothing=0.1), LABELS),
    "soft": ("cross_entropy", SOFT),
    "by hand": (lambda f, y: -(y * torch.log_softmax(f, -1)).sum(-1).mean(), SOFT),
    "with a temperature": (lambda f, y: functional.cross_entropy(f / 0.7, y), LABELS),
    "mixed": (lambda f, y: 0.3 * smoothed(f, y) + 0.7 * functional.cross_entropy(f, y.roll(1), weight=WEIGHTS), LABELS),
    "sum": (lambda f, y: functional.cross_entropy(f, y, reduction="sum"), LABELS),
    "squared": ("squared_error", SOFT),
    "binary": (functional.binary_cross_entropy_with_logits, SOFT),
    "general": (lambda f, y: torch.log1p((f - y).square().sum(1)).mean(), SOFT),
    "between samples": (lambda f, y: ((f @ f.mT - y @ y.mT) ** 2).mean(), SOFT),
}


@pytest.mark.parametrize("name", ["head", "batch norm, head", "relu", "gelu", "group norm, relu", "conv"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss: str, name: str) -> None:
    model, layer, x, _ = make(name)
    criterion, y = LOSSES[loss]
    named = {"cross_entropy": functional.cross_entropy, "squared_error": functional.mse_loss}
    wanted = dense(model, layer, x, y, named.get(criterion, criterion))
    if loss != "with a temperature":  # there the outputs are one operation after the head
        form = "tail" if loss == "between samples" else CASES[name].form
        if form == "head" and loss in ("squared", "binary", "general"):
            form = "closed"  # no softmax
        assert explain(model, layer, x, y, criterion).form == form
    assert distance(relative_flatness(model, layer, x, y, criterion), wanted, model) < BOUND


@pytest.mark.parametrize("name", ["relu", "conv, max", "middle, relu"])
def test_does_not_change_where_the_function_does_not(name: str) -> None:
    """Neurons scaled up and what follows them scaled down: the same function of the inputs, and the same κ."""
    model, layer, x, y = make(name)
    before, outputs = relative_flatness(model, layer, x, y), model(x)
    this = model.get_submodule(layer)
    after = next(m for m in list(model.modules())[::-1] if getattr(m, "in_features", None) == this.weight.shape[0])
    if name == "middle, relu":
        after = model[4]
    factors = torch.rand(len(this.weight), dtype=torch.float64) + 0.5
    with torch.no_grad():
        this.weight.mul_(factors.view(-1, *[1] * (this.weight.ndim - 1)))
        this.bias.mul_(factors)
        after.weight.div_(factors)
    torch.testing.assert_close(model(x), outputs)
    torch.testing.assert_close(relative_flatness(model, layer, x, y), before)


def test_outputs_that_are_logarithms_already() -> None:
    model, layer, x, y = make("relu")
    model.append(torch.nn.LogSoftmax(1))
    assert explain(model, layer, x, y, functional.nll_loss).form == "closed"
    found = relative_flatness(model, layer, x, y, functional.nll_loss)
    assert distance(found, dense(model, layer, x, y, functional.nll_loss), model) < BOUND


def test_a_loss_with_a_parameter_of_its_own() -> None:
    model, layer, x, y = make("relu")
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return scale * functional.cross_entropy(output, target)

    kappa = relative_flatness(model, layer, x, y, loss)
    assert explain(model, layer, x, y, loss).form == "closed"
    assert torch.autograd.grad(kappa, scale)[0].item() == pytest.approx(kappa.item() / 0.7)


def test_the_heads_gradients_can_be_differentiated_again() -> None:
    """They are written out; twice differentiated, they are those of the formula."""
    draw = torch.Generator().manual_seed(0)
    phi, logits, weight = (
        torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True)
        for shape in ((6, 5), (6, 3), (3, 5))
    )
    s = torch.rand(6, generator=draw, dtype=torch.float64)

    def kappa(phi: torch.Tensor, logits: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return Kappa.apply(phi, torch.log_softmax(logits, 1), weight, s)

    assert torch.autograd.gradcheck(kappa, (phi, logits, weight))
    assert torch.autograd.gradgradcheck(kappa, (phi, logits, weight))
    whole = kappa(phi, logits, weight)
    whole.backward(retain_graph=True)
    once = phi.grad.clone()
    whole.backward()
    torch.testing.assert_close(phi.grad, 2 * once)


def test_a_norm_that_does_more_is_no_plain_norm() -> None:
    class Active(torch.nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps))

    class ByHand(torch.nn.Module):
        def __init__(self, norm: torch.nn.Module) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(by_hand(self.norm, x))

    model, layer, x, y = make("relu")
    model[1] = Active(5, dtype=torch.float64)
    found = relative_flatness(model, layer, x, y, smoothed)
    model[1] = ByHand(model[1])
    assert distance(found, dense(model, layer, x, y, smoothed), model) < BOUND


def test_samples_that_interact_out_of_sight() -> None:
    """Nothing in the graph says that this product mixes the batch; it is found by trying."""

    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = torch.nn.Linear(4, 3), torch.nn.Linear(3, CLASSES)
            self.mix = torch.rand(N, N, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.mix @ torch.relu(self.layer(x)))

    torch.manual_seed(0)  # with this seed only one sample gets through, and still moves the outputs of all
    model, x, y = Mixing().double(), torch.randn(N, 4, dtype=torch.float64), LABELS
    assert "interact" in explain(model, "layer", x, y).why
    found = relative_flatness(model, "layer", x, y)
    assert distance(found, dense(model, "layer", x, y, functional.cross_entropy), model) < BOUND
    with pytest.raises(fallow.RequestError, match="samples interact"):
        relative_flatness(model, "layer", x, y, form="gauss-newton")
