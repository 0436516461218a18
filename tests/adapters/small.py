"""A small network on a few numbers, trained by fallow's own loop, for other loops to agree with."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import fallow

GENERATIONS, EPOCHS, BATCH, RATE = 2, 4, 8, 0.05
METHODS = ("llf", "seal:scale=0.5", "lw", "sam", "fam:strength=0.01", "ema:decay=0.9", "imp", "swa:start=0.5")


class Net(nn.Module):
    """Two blocks and a head; with labels it gives the loss, as Hugging Face's do."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU())
        self.two = nn.Sequential(nn.Linear(10, 10), nn.ReLU())
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = self.head(self.two(self.one(x)))
        return logits if labels is None else {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def network() -> Net:
    torch.manual_seed(1)
    return Net().double()


def examples() -> TensorDataset:
    drawn = torch.Generator().manual_seed(0)
    # as many 1 as −1 in every column: fallow's own loop centres and scales, and leaves these to the bit as they are
    x = torch.stack([torch.randperm(24, generator=drawn) % 2 * 2.0 - 1 for _ in range(6)], 1).double()
    return TensorDataset(x, torch.randint(3, (24,), generator=drawn))


def batches() -> DataLoader[Any]:
    return DataLoader(examples(), batch_size=BATCH)


def sgd(parameters: Any, lr: float = RATE) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=1e-3)


def own_loop(method: str, schedule: str = "constant", lr: float = RATE) -> dict[str, Tensor]:
    """The final weights of fallow's own loop."""
    net = network()
    fallow.fit(
        net, batches(), method, val=0, test=0, generations=GENERATIONS, epochs=EPOCHS, schedule=schedule,
        label_smoothing=0.0, precision="float64", optimizer=partial(sgd, lr=lr), device="cpu",
    )  # fmt: skip
    return net.state_dict()


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert [name for name, value in wanted.items() if not torch.equal(found[name], value)] == []
