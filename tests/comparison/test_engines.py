"""A comparison on clusters, started for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fallow.experiment import State
from fallow.training import fit as fitting
from tests.comparison import two_nodes
from tests.comparison.small import plan, ran, results

CLUSTER = {"train": 60, "models": ["scnn:width=4,dense=16"], "seeds": 1}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of the controls alone: what is left to do for a cluster is one run, since processes are slow."""
    out = tmp_path_factory.mktemp("local") / "begun"
    ran(plan("digits", **CLUSTER), out)
    return out


@pytest.fixture(scope="module")
def whole(begun: Path) -> list[dict[str, str]]:
    """The numbers of this machine alone."""
    ran(plan("digits", "ema", **CLUSTER), begun.parent / "whole")
    return results(begun.parent / "whole")


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize(("name", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_clusters_give_the_same_numbers(
    name: str, module: str, begun: Path, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module)
    out = tmp_path / "out"
    shutil.copytree(begun, out)
    shown: list[int] = []

    def watch(state: State) -> None:
        shown.append(len(state.outcomes))

    def elsewhere(*_: object, **__: object) -> None:
        raise AssertionError("this process was not asked to train")

    monkeypatch.setattr(fitting, "fit", elsewhere)
    done = ran(plan("digits", "ema", **CLUSTER), out, engine=name, workers=2, watch=watch)
    assert [o.reason for o in done.entries.values()] == [None] * 3
    assert shown[-1] == len(done.runs) == 3
    assert results(out) == whole


ROOT = Path(__file__).parents[2]


@pytest.mark.xdist_group("clusters")
def test_a_machine_that_is_killed_costs_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is that of this machine alone, and no epoch was trained twice."""
    pytest.importorskip("ray")
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'src'}")
    words = [sys.executable, "-m", "tests.comparison.two_nodes", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gate").exists(), "it ended before both were at work"
    ran(two_nodes.asked(), tmp_path / "whole")
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    for metrics in tmp_path.glob("whole/runs/*/metrics.jsonl"):
        there = tmp_path / "out" / metrics.relative_to(tmp_path / "whole")
        assert len(there.read_text().splitlines()) == len(metrics.read_text().splitlines())
