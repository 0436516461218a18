from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fallow
from fallow.flatness import relative_flatness

X, Y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


class Net(nn.Module):
    """Every way in which a layer can be unfit."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.again = nn.Linear(4, 4), nn.Linear(4, 4)
        self.act, self.norm, self.idle = nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)
        self.tied, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.other = nn.Linear(4, 4)
        self.other.weight = self.tied.weight
        self.late = nn.Linear(4, 4)
        self.scaled = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.hidden(x))
        x = self.act(self.again(self.again(x)))
        x = self.norm(self.other(self.tied(x))) + self.scaled(x)
        x = x + functional.linear(torch.tanh(self.late(x)), self.late.weight)
        return self.head(x)


def refused(layer: object = "hidden", loss: object = "cross_entropy", model: nn.Module | None = None, **options) -> str:
    with pytest.raises(fallow.RequestError) as error:
        relative_flatness(model or Net(), layer, options.pop("x", X), Y, loss, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        ("hiden", "unknown layer 'hiden': did you mean 'hidden'?"),
        ("act", "layer 'act' (ReLU) has no weight: name hidden, again"),
        ("norm", "layer 'norm' (LayerNorm) is no linear layer or convolution of one or two dimensions"),
        ("attention", "layer 'attention' (MultiheadAttention) has no weight"),
        ("again", "layer 'again' is used 2 times in a forward pass: use it once"),
        ("late", "the weight of layer 'late' is used once more after the layer"),
        ("tied", "layers 'tied' and 'other' share a weight, which is so used twice"),
        ("idle", "layer 'idle' did not run in the forward pass"),
        ("scaled", "the weight of layer 'scaled' is parametrised"),
        (nn.Linear(4, 4), "the layer given (Linear) is none of the model's"),
    ],
)
def test_layers(layer: object, wanted: str) -> None:
    assert refused(layer).startswith(wanted)


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x**2).mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g: Tensor) -> Tensor:
        return g * 2 * ctx.saved_tensors[0] / ctx.saved_tensors[0].numel()


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        (lambda f, y: (f.argmax(1) == y).float().mean(), "the loss has no gradient"),
        (lambda f, y: (f - y[:, None]).abs().mean(), "the loss is not twice differentiable in the model's outputs"),
        (functional.multi_margin_loss, "the loss is not twice differentiable: derivative for aten::multi_margin_loss"),
        (
            lambda f, y: OnceDifferentiable.apply(f),
            "not twice differentiable in the model's outputs (it is made of Once",
        ),
        (lambda f, y: functional.cross_entropy(f, y, reduction="none"), "the loss has the shape (6,)"),
        (lambda f, y: 1.0, "the loss has the type float"),
        (
            lambda f, y: functional.cross_entropy(f.detach().requires_grad_() * 2, y),
            "the loss does not depend on layer",
        ),
        ("hinge", "unknown loss 'hinge'"),
    ],
)
def test_losses(loss: object, wanted: str) -> None:
    assert wanted in refused(loss=loss)


def test_forms() -> None:
    assert refused(form="close").startswith("unknown form 'close': did you mean 'closed'?")
    assert refused(form="closed").startswith("form=closed does not apply to layer 'hidden': no closed form covers")


def test_models() -> None:
    grouped = nn.Sequential(nn.Conv1d(4, 4, 1, groups=2), nn.Flatten(), nn.Linear(4, 3))
    assert "has 2 groups" in refused("0", model=grouped, x=X.unsqueeze(-1))
    cube = nn.Sequential(nn.Conv3d(1, 4, 1), nn.Flatten(), nn.Linear(16, 3))
    assert "(Conv3d) is no linear layer or convolution" in refused("0", model=cube, x=X.view(6, 1, 1, 2, 2))
    assert "has no linear layer or convolution before its head" in refused("penultimate", model=nn.Linear(4, 3))

    class Twisted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    assert "does not give W·φ + b" in refused("0", model=nn.Sequential(Twisted(4, 4), nn.Linear(4, 3)))


def test_a_hook_that_changes_the_layers_output_is_no_part_of_the_layer() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    model[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    kappa = relative_flatness(model, "0", X.double(), Y)
    torch.testing.assert_close(kappa, relative_flatness(model, "0", X.double(), Y, form="dense"))
