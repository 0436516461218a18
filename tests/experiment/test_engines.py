"""Workers of their own: killed, deaf, orphaned; and clusters, started for real."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fallow.base.errors import RequestError, WorkError
from fallow.experiment import ENGINES, Outcomes, Run, engines, grid, run, runner, worker
from fallow.experiment.engines import check, deaf
from tests.experiment.errands import attempts, double

HERE = "tests.experiment.errands:"


def ran(folder: Path, *asked: Run, **options: Any) -> Outcomes:
    return run(grid(asked), folder, **{"workers": 2} | options)


def deadly(*kinds: bool | None) -> list[Run]:
    """Work that kills its process: always, once or never."""
    return [
        Run(f"r{i}", f"{HERE}double", {"number": i}) if kind is None else Run(f"r{i}", f"{HERE}die", {"always": kind})
        for i, kind in enumerate(kinds)
    ]


def test_processes_of_their_own_that_hear_no_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    found = ran(tmp_path / "out", *(Run(f"r{i}", f"{HERE}report") for i in range(4)), device="cpu")
    values = [outcome.value for outcome in found.values()]
    assert len(values) == 4
    assert os.getpid() not in {value["pid"] for value in values}
    assert {(value["deaf"], value["OMP"], value["torch"], value["on"]) for value in values} == {(True, "1", 1, "cpu")}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with deaf():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_worker_that_is_killed_once_costs_no_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = ran(out, *deadly(None, False, None, None))
    assert [outcome.reason for outcome in found.values()] == [None] * 4
    assert found["r1"].value == attempts(out / "runs" / "r1") == 2


def test_a_run_that_always_kills_its_worker_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ATTEMPTS", 1)
    out = tmp_path / "out"
    found = ran(out, *deadly(True, None, None, True))
    reasons = {name: found[name].reason for name in sorted(found)}
    assert reasons == {"r0": runner.KILLED, "r1": None, "r2": None, "r3": runner.KILLED}
    tried = [attempts(out / "runs" / name) for name in ("r0", "r3")]  # each alone, and before that unless it waited
    assert set(tried) <= {1, 2}
    assert 2 in tried


def test_a_machine_that_does_not_see_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_token", lambda home: "")
    with pytest.raises(WorkError, match=r"out is not there on this machine: put --out where all machines see it"):
        ran(tmp_path / "out", *deadly(None), workers=1)


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_an_engine_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    gone = {"ray": "ray", "dask": "distributed"}[name]

    def absent(module: str, *rest: Any, **more: Any) -> Any:
        if module.partition(".")[0] == gone:
            raise ImportError(f"No module named {module!r}")
        return real(module, *rest, **more)

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # or a Ray that is there already would miss a token later
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
    with pytest.raises(RequestError, match="workers is 0: it must be a whole number from 1"):
        check("local", None, 0)


# ---- the parent is killed ------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from fallow.experiment import Run, grid, run, runs
runs.HOME = "tests.experiment."
found = run(
    grid(Run(f"p{i}", "tests.experiment.errands:patient", {"rounds": 60}) for i in range(4)),
    Path(sys.argv[1]), workers=2,
)
print(sorted((name, outcome.value) for name, outcome in found.items()))
"""


def until(condition: Any, child: subprocess.Popen) -> None:
    """Wait for a moment, not for a time."""
    while not condition():
        assert child.poll() is None, "it ended too early"
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc to see processes")
def test_sigkill_of_the_parent(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", SCRIPT, str(out)]
    child = subprocess.Popen(command, cwd=ROOT)

    def rounds() -> int:
        return sum(len(path.read_text().splitlines()) for path in out.glob("runs/*/metrics.jsonl"))

    try:
        until(lambda: rounds() > 30, child)
        with pytest.raises(RequestError, match="another process is at work"):
            ran(out, *deadly(None), workers=1)
    finally:
        child.kill()
        child.wait()
    time.sleep(2 * worker.FOLLOW)
    before = rounds()
    time.sleep(2 * worker.FOLLOW)
    assert rounds() == before, "a worker lives on without its parent"
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert again.stdout.strip() == str([(f"p{i}", 60) for i in range(4)]), again.stderr
    assert again.stderr == ""
    for path in out.glob("runs/*/metrics.jsonl"):  # none was begun anew, and no two workers were at one
        assert path.read_text().split() == [str(i) for i in range(60)]


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_on_a_terminal_reaches_the_whole_group(presses: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(out)], cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    until(lambda: any(path.stat().st_size for path in out.glob("runs/*/metrics.jsonl")), child)
    for _ in range(presses):
        os.killpg(child.pid, signal.SIGINT)
        time.sleep(0.01)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors.splitlines()  # joblib's own tracker may complain after it
    assert not list(out.glob("runs/*/outcome.json"))


# ---- clusters, started for real ------------------------------------------------------------------------------


@pytest.mark.xdist_group("clusters")
@pytest.mark.parametrize(("name", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_clusters(name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(module)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("RAY_DEDUP_LOGS", "0")
    monkeypatch.setattr(runner, "ATTEMPTS", 1)
    asked = (*deadly(None, None, True), Run("bad", f"{HERE}fail", {"how": "own"}), Run("report", f"{HERE}report"))
    found = ran(tmp_path / "out", *asked, engine=name)
    assert found["r1"].value == double(tmp_path, 1) | {"pair": [1, 1]}
    assert found["r2"].reason == runner.KILLED
    assert found["bad"].reason == "the loss became nan"
    assert found["report"].value["pid"] != os.getpid()
    assert found["report"].value["torch"] == 1


@pytest.mark.xdist_group("clusters")
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc to see sockets")
def test_a_ray_of_our_own_listens_to_us_alone() -> None:
    pytest.importorskip("ray")
    before = listening()
    with engines.engine("ray", None, 1):
        addresses = {address.rpartition(":")[0] for address in listening() - before}
    assert addresses
    assert all(address.endswith("0100007F") for address in addresses)


OURS = """
import os, subprocess, sys
from fallow.experiment.engines import engine
with engine("ray", None, 1) as ours:
    import ray
    assert ours.submit(lambda number: number + 1, 3).result() == 4
    foreign = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    address = ray.get_runtime_context().gcs_address
    for environment in (foreign, dict(os.environ)):
        print(subprocess.run([sys.executable, "-c", sys.argv[1], address], env=environment).returncode)
"""
STRANGER = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1])
except AuthenticationError:
    sys.exit(77)
"""


@pytest.mark.xdist_group("clusters")
def test_who_speaks_to_a_ray_of_our_own_must_know_its_token() -> None:
    pytest.importorskip("ray")
    known = {key: value for key, value in os.environ.items() if not key.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-c", OURS, STRANGER],
        env=known | {"PYTHONPATH": f"{ROOT}/src"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["77", "0"], done


@pytest.mark.xdist_group("clusters")
def test_who_speaks_to_a_dask_of_our_own_must_have_its_certificate() -> None:
    distributed = pytest.importorskip("distributed")
    with engines.engine("dask", None, 1) as ours:
        assert ours.submit(abs, -4).result() == 4
        address = distributed.default_client().scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        with pytest.raises((TypeError, OSError)):
            distributed.Client(address, timeout=5, set_as_default=False)


def listening() -> set[str]:
    """The sockets at which Ray's processes listen, as the kernel writes them."""
    rays: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            words = (process / "cmdline").read_bytes()
            if b"ray::" in words or b"/ray/" in words:
                rays.update(os.readlink(link) for link in (process / "fd").iterdir())
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path("/proc/net", kind).read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in rays}


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
        ran(tmp_path / "out", *deadly(None), engine=name, address=address)
    assert "\n" not in str(refused.value)
