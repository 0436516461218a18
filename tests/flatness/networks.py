"""Small networks, each with the layer whose flatness is asked for and the form that should be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

N, CLASSES = 5, 3


class Mean(nn.Module):
    """The mean over space."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


class Residual(nn.Module):
    """A shortcut around the layer, and one more use of its result."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        z = self.layer(x)
        return self.head(torch.relu(x + z) + 0.5 * z)


class Attentive(nn.Module):
    """A product of two branches that both depend on the layer, over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(3, 4), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(x)
        return self.head((torch.softmax(z @ z.mT, -1) @ z).mean(1))


class Case(NamedTuple):
    """A network, the layer, the form that "auto" should take, and the shape of an example."""

    build: Callable[[], nn.Module]
    layer: str
    form: str
    shape: tuple[int, ...] = (4,)


def dense(*middle: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(4, 5), *(make() for make in middle), nn.Linear(5, CLASSES))


def deep(activation: type[nn.Module], *after: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The layer in the middle is "2"."""
    return lambda: nn.Sequential(
        nn.Linear(4, 5), activation(), nn.Linear(5, 4), *(make() for make in after), activation(), nn.Linear(4, 5),
        activation(), nn.Linear(5, CLASSES),
    )  # fmt: skip


def image(layer: Callable[[], nn.Module], *middle: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(layer(), *(make() for make in middle), Mean(), nn.Linear(3, CLASSES))


def conv2(**options) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(2, 3, options.pop("kernel", 2), **options)


def norm1() -> nn.Module:
    return nn.BatchNorm1d(5)


def norm2() -> nn.Module:
    return nn.BatchNorm2d(3)


def frozen() -> nn.Module:
    """BatchNorm in evaluation mode."""
    norm = nn.BatchNorm1d(5).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm


CASES = {
    "head": Case(dense(nn.ReLU), "2", "head"),
    "head without a bias": Case(
        lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES, bias=False)), "2", "head"
    ),
    "batch norm, head": Case(dense(norm1, nn.ReLU), "3", "head"),
    "layer norm, head": Case(dense(lambda: nn.LayerNorm(5), nn.GELU), "3", "head"),
    "linear": Case(dense(), "0", "closed"),
    "relu": Case(dense(nn.ReLU), "0", "closed"),
    "relu in place": Case(dense(lambda: nn.ReLU(inplace=True)), "0", "closed"),
    "leaky": Case(dense(lambda: nn.LeakyReLU(0.2)), "0", "closed"),
    "prelu": Case(dense(nn.PReLU), "0", "closed"),
    "tanh": Case(dense(nn.Tanh), "0", "closed"),
    "gelu": Case(dense(nn.GELU), "0", "closed"),
    "silu": Case(dense(nn.SiLU), "0", "closed"),
    "dropout": Case(dense(nn.ReLU, nn.Dropout), "0", "closed"),
    "layer norm, relu": Case(dense(lambda: nn.LayerNorm(5), nn.ReLU), "0", "closed"),
    "layer norm, gelu": Case(dense(lambda: nn.LayerNorm(5), nn.GELU), "0", "tail"),
    "relu, layer norm": Case(dense(nn.ReLU, lambda: nn.LayerNorm(5)), "0", "tail"),
    "group norm, relu": Case(dense(lambda: nn.GroupNorm(1, 5), nn.ReLU), "0", "closed"),
    "rms norm, relu": Case(dense(lambda: nn.RMSNorm(5), nn.ReLU), "0", "closed"),
    "batch norm, relu": Case(dense(norm1, nn.ReLU), "0", "closed"),
    "batch norm, gelu": Case(dense(norm1, nn.GELU), "0", "closed"),
    "batch norm in evaluation": Case(dense(frozen, nn.ReLU), "0", "closed"),
    "batch norm in evaluation, silu": Case(dense(frozen, nn.SiLU), "0", "closed"),
    "relu, batch norm": Case(dense(nn.ReLU, norm1), "0", "tail"),
    "batch norm before": Case(lambda: nn.Sequential(nn.Linear(4, 5), norm1(), nn.ReLU(), *dense_end()), "3", "closed"),
    "layer norm before": Case(
        lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), *dense_end()), "3", "closed"
    ),
    "middle, relu": Case(deep(nn.ReLU), "2", "gauss-newton"),
    "middle, tanh": Case(deep(nn.Tanh), "2", "tail"),
    "middle, silu": Case(deep(nn.SiLU), "2", "tail"),
    "middle, layer norm": Case(deep(nn.ReLU, lambda: nn.LayerNorm(4)), "2", "closed"),
    "middle, batch norm": Case(deep(nn.ReLU, lambda: nn.BatchNorm1d(4)), "2", "closed"),
    "middle, batch norm, gelu": Case(deep(nn.GELU, lambda: nn.BatchNorm1d(4)), "2", "tail"),
    "before a batch norm": Case(deep(nn.ReLU, lambda: nn.BatchNorm1d(4)), "0", "tail"),
    "first": Case(deep(nn.ReLU), "0", "gauss-newton"),
    "residual": Case(Residual, "layer", "closed"),
    "positions": Case(Attentive, "layer", "tail", (4, 3)),
    "conv": Case(image(conv2(stride=2, padding=1), nn.ReLU), "0", "gauss-newton", (2, 4, 4)),
    "conv, reflected": Case(
        image(conv2(kernel=3, padding="same", padding_mode="reflect"), nn.ReLU), "0", "gauss-newton", (2, 3, 3)
    ),
    "conv, max": Case(
        lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, CLASSES)),
        "0", "gauss-newton", (2, 4, 4),
    ),
    "conv, gelu": Case(image(conv2(stride=2), nn.GELU), "0", "tail", (2, 4, 4)),
    "conv, batch norm": Case(image(conv2(stride=2, bias=False), norm2, nn.ReLU), "0", "closed", (2, 4, 4)),
    "conv, batch norm, silu": Case(image(conv2(stride=2), norm2, nn.SiLU), "0", "tail", (2, 4, 4)),
    "conv, group norm": Case(image(conv2(stride=2), lambda: nn.GroupNorm(3, 3), nn.ReLU), "0", "closed", (2, 4, 4)),
    "conv, instance norm": Case(
        image(conv2(stride=2), lambda: nn.InstanceNorm2d(3, affine=True), nn.ReLU), "0", "closed", (2, 4, 4)
    ),
    "conv, layer norm": Case(
        image(conv2(stride=2), lambda: nn.LayerNorm((3, 2, 2)), nn.ReLU), "0", "closed", (2, 4, 4)
    ),
    "conv, more positions than inputs": Case(
        image(lambda: nn.Conv2d(1, 3, 1), nn.Tanh), "0", "tail", (1, 2, 2)
    ),
    "conv before batch norm": Case(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), *image(conv2(), norm2, nn.ReLU)()), "0", "tail", (1, 3, 3)
    ),
    "signal": Case(
        image(lambda: nn.Conv1d(2, 3, 2, stride=2, dilation=2, padding=1, padding_mode="circular"), nn.ReLU),
        "0", "gauss-newton", (2, 6),
    ),
    "signal, batch norm": Case(
        image(lambda: nn.Conv1d(2, 3, 2), lambda: nn.BatchNorm1d(3), nn.ReLU), "0", "closed", (2, 4)
    ),
}  # fmt: skip


def dense_end() -> tuple[nn.Module, ...]:
    return nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, CLASSES)


def make(name: str, seed: int = 0) -> tuple[nn.Module, str, Tensor, Tensor]:
    """The network in float64, every parameter off its initial value, the layer, and a batch."""
    case = CASES[name]
    torch.manual_seed(seed)
    model = case.build().double()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model, case.layer, torch.randn(N, *case.shape, dtype=torch.float64), torch.randint(CLASSES, (N,))
