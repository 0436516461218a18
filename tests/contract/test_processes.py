from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fallow
from tests.conftest import small_images
from tests.contract.catalogue import MODEL, SETTINGS, SPECS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two gloo processes train by every method."""
    folder = tmp_path_factory.mktemp("two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*command, "-m", "tests.contract.two_processes", str(folder)], check=True, cwd=ROOT, env=environment,
        capture_output=True,
    )  # fmt: skip
    return folder


@pytest.mark.xdist_group("two processes")
@pytest.mark.parametrize("number", range(len(SPECS)), ids=SPECS)
def test_two_processes_train_like_one(number: int, trained: Path) -> None:
    extra = {"augment": "crop", "accumulate": 2} if number % 2 else {}
    alone = fallow.fit(MODEL, small_images(n=95), SPECS[number], **SETTINGS, **extra).model.state_dict()
    first, second = (torch.load(trained / f"{number}-{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, value in alone.items():
        assert torch.equal(first[name], second[name]), name  # the processes agree to the bit
        torch.testing.assert_close(first[name], value, rtol=0, atol=1e-5, msg=name)
