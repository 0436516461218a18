"""Convolutions train with their channels innermost, but for those with which torch's backward pass is not safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fallow import models
from fallow.core import loop
from fallow.training.layout import may_be_channels_last
from fallow.training.prepare import prepare
from fallow.training.result import result_of
from tests.conftest import small_images

NARROW = """
import torch
from fallow import fit
x = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8)
for width in (2, 4):
    fit(f"resnet18:width={width}", (x, torch.arange(64) % 2), generations=1, epochs=1, batch_size=32)
"""


def lies_so(weight: torch.Tensor) -> bool:
    return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def test_weights_lie_so_while_they_train_and_come_back_contiguous(tmp_path: Path) -> None:
    """Also after a resumption: the bits of a step depend on how the weights lie."""
    settings = {"epochs": 2, "generations": 1, "out": tmp_path}
    ctx = prepare("scnn:width=4", small_images(), "ema", **settings)
    assert lies_so(ctx.model.conv2.conv.weight)
    loop.run(ctx)
    assert lies_so(ctx.optimizer.state[ctx.model.conv2.conv.weight]["momentum_buffer"])
    ctx.close()
    again = prepare("scnn:width=4", small_images(), "ema", resume=True, **settings)
    assert lies_so(again.model.conv2.conv.weight)
    assert lies_so(again.optimizer.state[again.model.conv2.conv.weight]["momentum_buffer"])
    assert all(weight.is_contiguous() for weight in result_of(again).network.parameters())


def test_volumes_too() -> None:
    x = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 8)).astype(np.uint8)
    ctx = prepare("resnet3d", (x, np.arange(24) % 2), epochs=1, generations=1)
    weight = ctx.model.get_submodule("block1.steps.conv1").weight
    assert weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert not weight.is_contiguous()
    loop.run(ctx)
    assert all(weight.is_contiguous() for weight in result_of(ctx).network.parameters())


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("resnet18:width=8", False),
        ("resnet18:width=16", True),
        ("scnn:width=4", True),
        ("conv4:width=4", True),
        ("mobilenet", True),
        ("mlp", True),
    ],
)
def test_which_networks_may(name: str, safe: bool) -> None:
    assert may_be_channels_last(models.build(name, shape=(3, 32, 32), classes=4)) is safe


def test_narrow_groups_may_not() -> None:
    assert not may_be_channels_last(nn.Conv2d(8, 8, 3, groups=8))


def test_narrow_shortcuts_do_not_kill_the_process() -> None:
    """Torch writes behind its buffers there: the process, not the call, dies of it."""
    environment = os.environ | {"MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", NARROW], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
