"""Weights sharded over two processes train as in one, or the request is refused before the first step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_sharded_weights_train_as_whole_ones_or_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("lightning.fabric")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    subprocess.run(
        [*command, "-m", "tests.training.sharded", str(tmp_path)], check=True, cwd=ROOT, env=environment,
        capture_output=True,
    )  # fmt: skip
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["apart"]) == {"restart", "fam", "sam"}
    assert max(found["apart"].values()) < 1e-5
    for name in ("llf", "seal", "ema"):
        assert found["refused"][name].startswith(f"{name} needs whole weights, and the engine shards them: take DDP")
    assert found["refused"]["mixup+swa"].startswith("swa needs whole weights")
    assert "omit out=" in found["refused"]["normal"]
    assert not (tmp_path / "run").exists()
