import copy
import math
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.weights import is_norm, kernel_mask, matrices, slim

SHAPE = (3, 8, 8)
MODELS = [
    "scnn:width=6,dense=10,norm=none",
    "scnn:width=6,dense=10,norm=batch",
    "scnn:width=6,dense=10,norm=layer",
    "resnet18:width=5,norm=batch",
    "resnet18:width=5,norm=layer",
    "mobilenet:width=3,norm=none",
    "mobilenet:width=3,norm=batch",
    "vgg16:width=3,dense=9,norm=none",
    "vgg16:width=3,dense=9,norm=batch",
    "mlp:hidden=7,9,norm=layer",
]


def trained(spec: str) -> nn.Module:
    """A model in double precision whose biases, norms and statistics are away from where they start."""
    torch.manual_seed(0)
    model = build(spec, shape=SHAPE, classes=4).double().eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and tensor.ndim == 1:
                tensor.add_(0.3 * torch.rand(tensor.shape) * (1 if "var" in name else torch.randn(())))
    return model


def inputs(n: int = 3) -> Tensor:
    return torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def zeroed(model: nn.Module, rate: float) -> nn.Module:
    """The whole network with every weight and bias of the other channels at zero."""
    whole = copy.deepcopy(model)
    masks = kernel_mask(model, rate, inputs())
    with torch.no_grad():
        for name, mask in masks.items():
            layer = whole.get_submodule(name.rpartition(".")[0])
            layer.weight.masked_fill_(mask, 0)
            if layer.bias is not None:
                layer.bias.masked_fill_(mask.flatten(1).all(1), 0)
    return whole


@pytest.mark.parametrize("rate", [0.5, 0.8])
@pytest.mark.parametrize("spec", MODELS)
def test_the_slim_network_is_the_whole_one_with_the_rest_at_zero(spec, rate):
    model = trained(spec)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = slim(model, rate, inputs())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert list(small.state_dict()) == list(before)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
    for name, parameter in small.named_parameters():  # the first of everything, bit for bit
        corner = before[name][tuple(slice(size) for size in parameter.shape)]
        assert torch.equal(parameter, corner), name
    assert small(inputs()).shape == (3, 4)
    if "norm=layer" not in spec:  # whose statistics run over all channels; a batch norm's do not
        expected = zeroed(model, rate)(inputs())
        assert expected.std() > 1e-3
        torch.testing.assert_close(small(inputs()), expected, rtol=1e-9, atol=1e-9)
    small.train()
    small(inputs()).square().sum().backward()
    assert all(p.grad is not None for p in small.parameters())


@pytest.mark.parametrize(("rate", "channels"), [(0.5, 5), (0.8, 6), (0.55, 100), (0.1, 30), (0.07, 100), (0.001, 3)])
def test_widths_are_exact_ceilings(rate, channels):
    net = nn.Sequential(nn.Linear(4, channels), nn.ReLU(), nn.Linear(channels, channels), nn.Linear(channels, 3))
    small = slim(net, rate, torch.randn(2, 4))
    width = math.ceil(Fraction(str(rate)) * channels)
    assert [tuple(small[i].weight.shape) for i in (0, 2, 3)] == [(width, 4), (width, width), (3, width)]
    assert (small[2].in_features, small[2].out_features) == (width, width)


def test_masks_are_true_outside_the_first_block():
    model = trained("scnn:width=6,dense=10,norm=none")
    masks = kernel_mask(model, 0.5, inputs())
    assert masks.keys() == matrices(model).keys()
    kept = {name: (~mask).nonzero().max(0).values[:2].add(1).tolist() for name, mask in masks.items()}
    assert kept == {
        "conv1.conv.weight": [3, 3],  # all input channels
        "conv2.conv.weight": [3, 3],
        "conv3.conv.weight": [6, 3],
        "conv4.conv.weight": [6, 6],
        "dense.linear.weight": [5, 24],  # four pixels of each channel
        "head.weight": [4, 5],  # all classes
    }
    for name, mask in masks.items():
        out, into = kept[name]
        assert not mask[:out, :into].any()
        assert mask.sum() == mask.numel() - mask[:out, :into].numel()


@pytest.mark.parametrize("rate", [0.5, 0.75])
def test_about_the_square_of_the_rate_is_kept(rate):
    masks = kernel_mask(build("scnn:width=32", shape=(1, 28, 28), classes=10), rate, torch.randn(2, 1, 28, 28))
    for name in ("conv2.conv.weight", "conv4.conv.weight", "dense.linear.weight"):
        assert (~masks[name]).double().mean() == pytest.approx(rate**2)
    kept = sum(int((~mask).sum()) for mask in masks.values()) / sum(mask.numel() for mask in masks.values())
    assert kept == pytest.approx(rate**2, rel=0.01)


def test_frozen_tensors_stay_frozen_and_modes_as_they_were():
    model = trained("scnn:width=6,dense=10,norm=batch").train()
    model.conv1.requires_grad_(False)
    model.conv2.eval()
    small = slim(model, 0.5, inputs())
    assert [p.requires_grad for p in small.parameters()] == [p.requires_grad for p in model.parameters()]
    assert [m.training for m in small.modules()] == [m.training for m in model.modules()]


@pytest.mark.parametrize(
    "norm",
    [
        nn.GroupNorm(2, 8), nn.GroupNorm(2, 8, affine=False), nn.InstanceNorm1d(8), nn.BatchNorm1d(8, affine=False),
        nn.BatchNorm1d(8, track_running_stats=False),
    ],
    ids=str,
)  # fmt: skip
def test_other_norms_follow_their_channels(norm):
    net = nn.Sequential(nn.Conv1d(2, 8, 3), norm, nn.ReLU(), nn.Conv1d(8, 8, 3), nn.Flatten(), nn.Linear(16, 3))
    assert slim(net, 0.5, torch.randn(2, 2, 6))(torch.randn(4, 2, 6)).shape == (4, 3)


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.LayerNorm(8, elementwise_affine=False), nn.RMSNorm(8)], ids=str)
def test_norms_over_features(norm):
    net = nn.Sequential(nn.Linear(3, 8), norm, nn.ReLU(), nn.Linear(8, 2))
    small = slim(net, 0.5, torch.randn(2, 3))
    assert small(torch.randn(4, 3)).shape == (4, 2)
    assert small[1].normalized_shape == (4,)
    assert net[1].normalized_shape == (8,)


def test_tied_weights_have_one_mask():
    net = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
    net[3].weight = net[1].weight
    assert list(kernel_mask(net, 0.5, torch.randn(2, 3))) == ["0.weight", "1.weight", "4.weight"]


def test_a_layer_that_never_runs_is_not_the_head():
    masks = kernel_mask(Idle(), 0.5, torch.randn(2, 3))
    assert not masks["head.weight"][:, :4].any()
    assert slim(Idle(), 0.5, torch.randn(2, 3))(torch.randn(2, 3)).shape == (2, 5)


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.unused = nn.Linear(3, 8), nn.Linear(8, 5), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


class Conv(nn.Module):
    """A convolution, something in between, a convolution, a head."""

    def __init__(self, middle, into: int = 8, **options) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = middle
        self.second = nn.Conv2d(into, 8, 3, padding=1, **options)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = self.middle(x) if callable(self.middle) else x
        return self.head(F.relu(self.second(x)).mean((2, 3)))


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, F.relu(self.branch(x))], 1)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.token


class InputNorm(nn.Module):
    """Fixed statistics of the three colours: a norm by name, on what is not cut."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.mean.view(3, 1, 1)


def flattened_norm() -> nn.Module:
    """⌈r·5⌉·4 = 12 features reach the norm, ⌈r·20⌉ = 10 are its own."""
    return nn.Sequential(nn.Conv2d(3, 5, 7), nn.Flatten(), nn.BatchNorm1d(20), nn.Linear(20, 4))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Conv(Concatenated(), into=16), "concatenated, shuffled"),
        (Conv(lambda x: x.flip(1)), "concatenated, shuffled"),
        (Conv(lambda x: x.view(-1, 2, 4, 8, 8).transpose(1, 2).reshape(-1, 8, 8, 8)), "concatenated, shuffled"),
        (Conv(None, groups=2, into=8), "second: it has 2 groups of channels"),
        (Conv(nn.LayerNorm((8, 8, 8))), "middle: a norm over several dimensions"),
        (Conv(nn.LayerNorm((8, 8, 8), elementwise_affine=False)), "middle: a norm over several dimensions"),
        (Conv(nn.GroupNorm(8, 8)), "middle: 8 groups do not divide"),
        (Conv(nn.ConvTranspose2d(8, 8, 3, padding=1)), r"middle \(ConvTranspose2d\)"),
        (Conv(Tokens()), r"middle \(Tokens\)"),
        (Conv(nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 1))), r"\(ParametrizationList\)"),
        (Conv(nn.PReLU(8)), "reused somewhere"),
        (nn.Sequential(InputNorm(), Conv(None)), "reused somewhere"),
        (flattened_norm(), "reused somewhere"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("values", ["drawn", "zero"])
def test_what_does_not_split_is_refused_in_one_line(model, message, values):
    """Also when all weights are zero, so that any two cuts of the model would agree."""
    model = copy.deepcopy(model)
    if values == "zero":
        with torch.no_grad():
            for layer in model.modules():
                for parameter in layer._parameters.values():
                    if parameter is not None and not is_norm(layer):
                        parameter.zero_()
    for function in (slim, kernel_mask):
        with pytest.raises(RequestError, match=message) as caught:
            function(model, 0.5, torch.randn(2, 3, 8, 8))
        assert str(caught.value).startswith("kels cannot split")
        assert "\n" not in str(caught.value)


def test_embeddings_and_recurrent_layers_are_refused():
    text = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(24, 2))
    with pytest.raises(RequestError, match=r"kels cannot split 0 \(Embedding\): it takes convolutions and linear"):
        slim(text, 0.5, torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(RequestError, match=r"kels cannot split the model \(GRU\)"):
        slim(nn.GRU(3, 4), 0.5, torch.randn(2, 3))


@pytest.mark.parametrize("rate", [0, 1, 1.5, -0.1])
def test_a_rate_is_above_0_and_below_1(rate):
    with pytest.raises(RequestError, match="it must be above 0 and below 1"):
        slim(nn.Linear(2, 2), rate, torch.randn(1, 2))


class Described(nn.Module):
    """Takes its input by name, and gives the logits among other things, as Hugging Face's do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, *, values: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.net(values), attentions=None)


def test_inputs_by_name_and_logits_among_other_things():
    model, batch = Described(), {"values": torch.randn(2, 4)}
    small = slim(model, 0.5, batch)
    assert small.net[0].out_features == 4
    assert small(**batch).logits.shape == (2, 3)
    assert set(kernel_mask(model, 0.5, batch)) == {"net.0.weight", "net.2.weight"}


def test_two_inputs_that_are_joined_are_refused_in_a_line():
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(6, 8), nn.Linear(4, 8), nn.Linear(16, 3)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.head(torch.cat([self.a(a), self.b(b)], 1).relu())

    with pytest.raises(RequestError, match="its channels are concatenated"):
        kernel_mask(Joined(), 0.5, {"a": torch.randn(2, 6), "b": torch.randn(2, 4)})
