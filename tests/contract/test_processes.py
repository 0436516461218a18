from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fallow
from fallow import models
from fallow.base.lock import locked
from fallow.data import Data
from fallow.data.stream import stream
from fallow.evaluate.score import score
from tests.conftest import small_images, small_tasks
from tests.contract.catalogue import (
    ADVICE,
    CONTROL_SETTINGS,
    CONTROL_SPECS,
    EXACT,
    MODEL,
    PLAIN,
    SETTINGS,
    SPECS,
    TASK_MODEL,
    TASK_SPECS,
    WEIGHTS,
    draws_locally,
    extras,
    needs,
    task_needs,
    weights,
)
from tests.control.small import navigation, seen

pytestmark = ADVICE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two gloo processes train by every method, once for all of pytest's workers."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "two"
    folder.mkdir(exist_ok=True)
    with locked(folder / "lock", wait=True):
        if not (folder / "done").exists():
            train(folder)
            (folder / "done").touch()
    return folder


def train(folder: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), WEIGHTS: weights()}
    subprocess.run(
        [*command, "-m", "tests.contract.two_processes", str(folder)], check=True, cwd=ROOT, env=environment,
        capture_output=True,
    )  # fmt: skip


@pytest.mark.xdist_group("two processes")
@pytest.mark.parametrize("number", range(len(SPECS)), ids=SPECS)
def test_two_processes_train_like_one(number: int, trained: Path) -> None:
    images = small_images(n=95)
    first, second = (torch.load(trained / f"{number}-{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name  # the processes agree to the bit
    if draws_locally(SPECS[number]):
        assert accuracy(first, images) > 0.6  # as well as one, if not alike; chance is a third
        return
    spec = SPECS[number]
    alone = fallow.fit(MODEL, images, spec, **SETTINGS, **EXACT, **extras(number), **needs(spec)).network.state_dict()
    for name, value in alone.items():
        torch.testing.assert_close(first[name], value, rtol=0, atol=1e-10, msg=name)


@pytest.mark.xdist_group("two processes")
@pytest.mark.parametrize("number", range(len(TASK_SPECS)), ids=TASK_SPECS)
def test_two_processes_meta_train_like_one(number: int, trained: Path) -> None:
    first, second = (torch.load(trained / f"tasks-{number}-{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    spec = TASK_SPECS[number]
    alone = fallow.fewshot(TASK_MODEL, small_tasks(), spec, **PLAIN, **EXACT, **task_needs(spec), meta_batch=5)
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(first[name], value, rtol=0, atol=1e-9, msg=name)
    torch.testing.assert_close(first["test"], torch.tensor(alone.loss), rtol=0, atol=1e-7)


@pytest.mark.xdist_group("two processes")
@pytest.mark.parametrize("number", range(len(CONTROL_SPECS)), ids=CONTROL_SPECS)
def test_two_processes_learn_to_act_like_one(number: int, trained: Path) -> None:
    first, second = (torch.load(trained / f"control-{number}-{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    alone = fallow.reinforce("mlp:hidden=6", navigation(), CONTROL_SPECS[number], **CONTROL_SETTINGS, **EXACT)
    expected = alone.network.state_dict() | {"test": torch.tensor(alone.returns()), "seen": seen(alone)}
    for name, value in expected.items():
        torch.testing.assert_close(first[name], value, rtol=0, atol=1e-6, msg=name)


def accuracy(weights: dict[str, torch.Tensor], images: Data) -> float:
    """Of the model with these weights, on the test part."""
    model = models.build(MODEL, shape=images.shape, classes=3)
    model.load_state_dict(weights)
    found = score(model, stream(images.test, images, batch_size=16, seed=0).ordered())
    assert found.accuracy is not None
    return found.accuracy
