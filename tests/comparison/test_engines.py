"""A comparison on clusters, started for real."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fallow.experiment import State
from fallow.training import fit as fitting
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
