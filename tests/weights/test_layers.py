"""Copies of models, and models that are left as they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fallow
from fallow.weights.layers import copied, modes_kept, normalised_layers


class Keeping(nn.Module):
    """Keeps what it gave, as a weight norm keeps its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.features = self.two(self.one(x).relu()).relu()
        return self.head(self.features)


def test_a_copy_of_a_model_that_keeps_an_activation() -> None:
    model, x = Keeping(), torch.randn(3, 4)
    wanted = model(x).detach()
    other = copied(model)
    assert torch.equal(other.features, model.features)
    assert model.features.requires_grad
    with torch.no_grad():
        model.one.weight.zero_()
    assert torch.equal(other(x), wanted)


@pytest.mark.parametrize("spec", ["fam+swa", "fam+ema", "fam+born-again"])
def test_a_second_model_of_one_that_has_run(spec: str) -> None:
    data = torch.randn(12, 4), torch.arange(12) % 2
    assert fallow.fit(Keeping(), data, spec, generations=2, epochs=1).steps > 0


class Held(nn.Module):
    """Frozen: quantised weights, and a mask of −∞."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Parameter(torch.arange(20, dtype=torch.uint8).view(5, 4), requires_grad=False)
        self.mask = nn.Parameter(torch.tensor([[0.0, -torch.inf]]), requires_grad=False)
        self.one, self.two, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x @ (self.bytes.to(x.dtype).T / 20)
        return self.head(self.two(self.one(x).relu()).relu()) + self.mask.exp().sum() - 1


@pytest.mark.parametrize("spec", ["normal", "lw", "rescale", "ema", "swa:start=0", "imp", "wels", "born-again"])
def test_what_holds_no_numbers_to_train_is_left_alone(spec: str) -> None:
    model, before = Held(), Held()
    result = fallow.fit(model, (torch.randn(12, 4), torch.arange(12) % 2), spec, generations=2, epochs=2)
    assert torch.equal(model.bytes, before.bytes)
    assert torch.equal(model.mask, before.mask)
    assert result.model(torch.randn(3, 4)).isfinite().all()


def test_every_module_is_in_the_mode_that_it_was_in() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()))
    model[1][0].eval()
    before = [module.training for module in model.modules()]
    with modes_kept(model):
        model.eval()
    assert [module.training for module in model.modules()] == before


def test_a_compiled_model_is_looked_at_as_it_is_written() -> None:
    """It would not call hooks: layers that are not registered as they run would be taken in the wrong order."""

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.norm, self.first = nn.Linear(5, 2), nn.LayerNorm(5), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.first(x)).relu())

    x, model = torch.randn(3, 4), Backwards()
    compiled: Any = torch.compile(model, backend="eager")
    compiled(x)
    parts = fallow.Partition(compiled, 1, inputs=x)
    assert list(parts.early.modules) == ["_orig_mod.first", "_orig_mod.norm"]
    assert list(parts.head.modules) == ["_orig_mod.head"]
    assert normalised_layers(compiled, x) == ["_orig_mod.first"]
