from __future__ import annotations

import pytest
import torch

import fallow
from fallow.base.errors import RequestError
from fallow.core.engine import Engine, find_device, make_engine
from fallow.core.method import Method
from tests.core.small import TINY, Net, points


def test_devices_by_name() -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda", "mps", "xpu")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:99", "cpu:x", "meta", "cuda;1"])
def test_devices_that_cannot_be_used(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        find_device(name)
    assert f"device {name!r} cannot be used here" in str(caught.value)
    assert "try 'auto' or 'cpu'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_precision_and_number() -> None:
    with pytest.raises(RequestError, match=r"unknown precision 'bf61': did you mean 'bf16'\?"):
        Engine(precision="bf61")
    with pytest.raises(RequestError, match="devices is 0"):
        make_engine(devices=0)


class Dtypes(Method):
    """Notes the precision of outputs, weights and gradients."""

    name = "dtypes"

    def begin(self, ctx) -> None:
        self.seen: set[tuple] = set()

    def before_step(self, ctx) -> None:
        weight = ctx.model.first.weight
        self.seen.add((ctx.output.dtype, weight.dtype, weight.grad.dtype))


@pytest.mark.parametrize("method", ["normal", "born-again", "seal:ascent=adaptive"])
def test_bf16_computes_in_bf16_and_trains(method: str) -> None:
    spy = Dtypes()
    total = spy + fallow.methods.build(method)  # first: an adaptive ascent takes the gradients away
    result = fallow.fit(Net(), points(64), total, **(TINY | {"precision": "bf16", "epochs": 12}))
    assert spy.seen == {(torch.bfloat16, torch.float32, torch.float32)}
    assert result.last["train_loss"] < result.history[0]["train_loss"]
    assert result.last["test_accuracy"] > 0.8


def test_alone_there_is_nobody_to_talk_to() -> None:
    engine, one = Engine("cpu"), torch.ones(1)
    assert engine.broadcast("x") == "x"
    assert engine.all_reduce(one, reduce_op="sum") is one
