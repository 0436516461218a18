from __future__ import annotations

import builtins
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fallow.base.errors import RequestError, WorkError
from fallow.comparison import engines
from fallow.comparison.engines import ENGINES, check, deaf, engine
from fallow.comparison.run import Comparison
from fallow.comparison.work import outcome
from fallow.training import fit as fitting
from tests.comparison.light import Errand, attempts, do, do_once
from tests.comparison.small import arrays, plan, ran, results


def errands(folder: Path, *deadly: str) -> list[Errand]:
    return [Errand(folder / str(i), kind) for i, kind in enumerate(deadly)]


def run(tasks: list[Errand], work: Any = do, workers: int = 2) -> None:
    with engine("local", None, workers) as run_all:
        run_all(tasks, work)


def test_processes_of_their_own_that_hear_no_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    tasks = errands(tmp_path, *[""] * 4)
    run(tasks)
    found = [outcome(task.folder) or {} for task in tasks]
    assert os.getpid() not in {each["pid"] for each in found}
    assert {each["deaf"] for each in found} == {True}  # the parent decides
    assert {each["threads"] for each in found} == {"1"}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with deaf():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_one_worker_is_this_process(tmp_path: Path) -> None:
    tasks = errands(tmp_path, "", "")
    run(tasks, workers=1)
    assert {(outcome(task.folder) or {})["pid"] for task in tasks} == {os.getpid()}


def test_a_worker_that_is_killed_once_costs_no_run(tmp_path: Path) -> None:
    tasks = errands(tmp_path, "", "once", "", "")
    run(tasks)
    assert all(outcome(task.folder) is not None for task in tasks)
    assert attempts(tasks[1].folder) == 2


def test_a_run_that_always_kills_its_worker_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ATTEMPTS", 1)
    tasks = errands(tmp_path, "always", "", "", "always")
    run(tasks)
    assert [outcome(task.folder) is not None for task in tasks] == [False, True, True, False]


def test_what_has_an_outcome_is_not_run_again(tmp_path: Path) -> None:
    tasks = errands(tmp_path, "", "", "once")
    run(tasks[:2], workers=1)
    before = [attempts(task.folder) for task in tasks[:2]]
    run([tasks[2], *tasks[:2]], do_once)
    assert [attempts(task.folder) for task in tasks[:2]] == before
    assert attempts(tasks[2].folder) == 2


def test_an_error_of_the_work_itself_is_raised(tmp_path: Path) -> None:
    def refuse(_: Errand) -> None:
        raise WorkError("out is not there on this machine")

    with pytest.raises(WorkError, match="not there on this machine"):
        run(errands(tmp_path, ""), refuse, workers=1)


def test_a_run_that_kills_its_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that comes back without an outcome."""
    from fallow.comparison import run as running

    class Engine:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Any:
            return lambda tasks, work: [work(task) for task in tasks if task.cell.method != "long"]

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(running, "engine", Engine)
    done = ran(plan(arrays(tmp_path / "few.npz"), seeds=1), tmp_path / "out")
    reasons = {o.method: o.reason for o in done.outcomes.values()}
    assert reasons == {"normal": None, "long": "its process was killed again and again: perhaps for want of memory"}


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_an_engine_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    gone = {"ray": "ray", "dask": "distributed"}[name]

    def absent(module: str, *rest: Any, **more: Any) -> Any:
        if module.partition(".")[0] == gone:
            raise ImportError(f"No module named {module!r}")
        return real(module, *rest, **more)

    for module in [key for key in sys.modules if key.partition(".")[0] == gone]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.setattr(engines.importlib, "import_module", absent)
    with pytest.raises(RequestError, match=rf"--engine {name} needs {name.title()}: pip install 'fallow\[{name}\]'"):
        check(name, None, None)


def test_unknown_engines_and_addresses() -> None:
    assert set(ENGINES) == {"local", "ray", "dask"}
    with pytest.raises(RequestError, match="unknown engine 'dusk': did you mean 'dask'"):
        check("dusk", None, None)
    with pytest.raises(RequestError, match="an address is for --engine ray or dask"):
        check("local", "tcp://127.0.0.1:1", None)
    with pytest.raises(RequestError, match="workers is 0: one or more are needed"):
        check("local", None, 0)


# ---- clusters, started for real ---------------------------------------------------------------------------

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

    def watch(comparison: Comparison) -> None:
        shown.append(len(comparison.outcomes))

    def elsewhere(*_: object, **__: object) -> None:
        raise AssertionError("this process was not asked to train")

    monkeypatch.setattr(fitting, "fit", elsewhere)
    done = ran(plan("digits", "ema", **CLUSTER), out, engine=name, workers=2, watch=watch)
    assert [o.reason for o in done.outcomes.values()] == [None] * 3
    assert shown[-1] == len(done.cells) == 3
    assert results(out) == whole


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize(
    ("name", "module", "address", "answer"),
    [
        ("dask", "distributed", "tcp://127.0.0.1:9", "there is no Dask scheduler at tcp://127.0.0.1:9"),
        ("dask", "distributed", "nonsense://x", "there is no Dask scheduler at nonsense://x"),
        ("ray", "ray", "127.0.0.1:9", "there is no Ray cluster at 127.0.0.1:9"),
        ("ray", "ray", "ray://127.0.0.1:x", "there is no Ray cluster at ray://127.0.0.1:x"),
    ],
)
def test_an_address_without_a_cluster(name: str, module: str, address: str, answer: str, tmp_path: Path) -> None:
    pytest.importorskip(module)
    with pytest.raises(RequestError, match=answer) as refused:
        ran(plan(arrays(tmp_path / "few.npz"), seeds=1), tmp_path / "out", engine=name, address=address)
    assert "\n" not in str(refused.value)
