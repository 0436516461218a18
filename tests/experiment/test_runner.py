"""Experiments in this process: policies, what is kept, what is done again, and how they stop."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fallow.base.errors import RequestError, WorkError
from fallow.base.lock import locked
from fallow.experiment import Outcomes, Policy, Run, State, each, epochs_done, grid, opened, run, runner
from tests.experiment.errands import attempts, double, fail, patient, read, unspeakable

HERE = "tests.experiment.errands:"


def ran(policy: Policy, folder: Path | None, **options: Any) -> Outcomes:
    return run(policy, folder, **{"workers": 1} | options)


def runs(*numbers: int) -> list[Run]:
    return [Run(f"n{number}", f"{HERE}double", {"number": number}) for number in numbers]


def counts(folder: Path) -> dict[str, int]:
    return {path.parent.name: attempts(path.parent) for path in sorted(folder.glob("runs/*/attempts"))}


# ---- what is done, and what is not done again ------------------------------------------------------------


def test_values_by_name_and_nothing_twice(tmp_path: Path) -> None:
    jobs = {name: {"number": number} for number, name in enumerate("cab")}
    found = each(double, jobs, tmp_path / "out", workers=1)
    assert found == {name: {"twice": 2 * i, "pair": [i, i]} for i, name in enumerate("cab")}  # a tuple is a list then
    assert list(found) == list("cab")
    assert each(double, jobs, tmp_path / "out", workers=1) == found
    assert set(counts(tmp_path / "out").values()) == {1}
    assert each(double, jobs, workers=1) == found  # in a folder for the moment
    more = each(double, {"d": {"number": 5}} | jobs, tmp_path / "out", workers=1)
    assert more == found | {"d": {"twice": 10, "pair": [5, 5]}}
    assert set(counts(tmp_path / "out").values()) == {1}
    assert each(double, {}, tmp_path / "none", workers=1) == {}


def test_paths_do_not_make_another_run(tmp_path: Path) -> None:
    out, files = tmp_path / "out", [tmp_path / name for name in ("here", "there")]
    for file in files:
        file.write_text("7")
    for file in files:
        assert each(read, {"a": {"times": 2}}, out, paths={"file": str(file)}, workers=1) == {"a": 14}
    assert counts(out) == {"a": 1}


def test_a_lost_database_is_made_again_from_the_folders(tmp_path: Path) -> None:
    ran(grid(runs(1, 2)), tmp_path / "out")
    (tmp_path / "out" / "experiment.db").unlink()
    found = ran(grid(runs(1, 2)), tmp_path / "out")
    assert {name: outcome.value["twice"] for name, outcome in found.items()} == {"n1": 2, "n2": 4}
    assert counts(tmp_path / "out") == {"n1": 1, "n2": 1}


@pytest.mark.parametrize("lost", [False, True], ids=["", "and the database is lost"])
def test_a_run_that_changed_under_its_name_is_done_again(lost: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = ran(grid([Run("a", f"{HERE}double", {"number": 1}), *runs(2)]), out)
    if lost:
        (out / "experiment.db").unlink()
    (out / "runs" / "a" / "checkpoint").write_text("of the other one")
    after = ran(grid([Run("a", f"{HERE}double", {"number": 10}), *runs(2)]), out)
    assert after["a"].value["twice"] == 20
    assert after["n2"] == before["n2"]
    assert not (out / "runs" / "a" / "checkpoint").exists()
    assert counts(out) == {"a": 1, "n2": 1}


def test_other_versions_are_said(tmp_path: Path) -> None:
    ran(grid(runs(1)), tmp_path / "out")
    with opened(tmp_path / "out") as experiment:
        experiment.store.write("versions", experiment.store.read("versions") | {"torch": "1.13.0"})
    with pytest.warns(UserWarning, match=r"out began with torch 1\.13\.0 \(now .*\): runs that come now may differ"):
        ran(grid(runs(1, 2)), tmp_path / "out")


def test_an_outcome_tells_of_its_run(tmp_path: Path) -> None:
    found = ran(grid(runs(4)), tmp_path / "out")["n4"]
    kept = json.loads((tmp_path / "out" / "runs" / "n4" / "outcome.json").read_text())
    assert (found.run, found.value, found.reason) == (runs(4)[0], kept["value"], kept["reason"])
    assert found.seconds == kept["seconds"] > 0
    assert ran(grid(runs(4)), tmp_path / "out")["n4"] == found


# ---- failures --------------------------------------------------------------------------------------------


def test_failures_have_reasons_and_are_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = grid([Run(how, f"{HERE}fail", {"how": how}) for how in ("own", "other", "none")])
    found = ran(asked, out)
    reasons = {name: outcome.reason for name, outcome in found.items()}
    assert reasons == {"own": "the loss became nan", "other": "KeyError: 'a bug\\nof someone'", "none": None}
    assert ran(asked, out).keys() == found.keys()
    assert counts(out) == {"own": 2, "other": 2, "none": 1}
    (out / "repaired").touch()
    (out / "experiment.db").unlink()  # a failure that is in the folder alone
    assert all(outcome.reason is None for outcome in ran(asked, out).values())
    assert counts(out) == {"own": 3, "other": 3, "none": 1}


def test_what_was_left_damaged_is_done_again(tmp_path: Path) -> None:
    asked = grid([Run(name, f"{HERE}resume") for name in ("kept", "torn")])
    assert [outcome.reason for outcome in ran(asked, tmp_path).values()] == ["interrupted"] * 2
    (tmp_path / "repaired").touch()
    (tmp_path / "runs" / "torn" / "state").write_text("who")
    assert {name: outcome.value for name, outcome in ran(asked, tmp_path).items()} == {"kept": 2, "torn": 1}


def test_failures_of_a_list_are_raised(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="1 of 2 runs failed, first b: the loss became nan"):
        each(fail, {"a": {"how": "none"}, "b": {"how": "own"}}, workers=1)
    with pytest.raises(WorkError, match="TypeError: Object of type object is not JSON serializable"):
        each(unspeakable, {"a": {}}, workers=1)
    with pytest.raises(WorkError, match=r"a: TypeError: .*unexpected keyword argument 'nonsense'"):
        each(double, {"a": {"nonsense": 1}}, workers=1)


def test_runs_after_others(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def chain(number: int, how: str = "none") -> Policy:
        a, b = Run("a", f"{HERE}double", {"number": number}), Run("b", f"{HERE}fail", {"how": how})
        sums = Run("sum", f"{HERE}total", {"of": ["a", "b"]}, cost=9, after=("a", "b"))
        return grid([Run("last", f"{HERE}total", {"of": ["sum"]}, cost=99, after=("sum",)), sums, a, b])

    found = ran(chain(1), out)
    assert [found["sum"].value, found["last"].value] == [2, 1]
    assert list(found)[2:] == ["sum", "last"]
    ran(chain(2), out)  # another a: what comes after it is done again, and b is not
    assert counts(out) == {"a": 1, "b": 1, "sum": 1, "last": 1}
    failed = ran(chain(2, "own"), out)
    assert failed["a"].reason is None
    assert failed["sum"].reason == "it comes after b, which failed"
    assert failed["last"].reason == "it comes after sum, which failed"
    (out / "repaired").touch()
    assert ran(chain(2, "own"), out)["last"].value == 1


# ---- policies --------------------------------------------------------------------------------------------


def climbing(seen: list[list[str]]) -> Policy:
    """Wants the next number as long as the last one's double is below 10."""

    def policy(outcomes: Outcomes) -> list[Run]:
        seen.append(list(outcomes))
        last = max((outcome.value["twice"] // 2 for outcome in outcomes.values()), default=0)
        return runs(*range(1, last + 2)) if 2 * last < 10 else []

    return policy


def test_a_policy_is_asked_whenever_a_run_ends(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    found = ran(climbing(seen), tmp_path / "out")
    names = [f"n{i}" for i in range(1, 6)]
    assert list(found) == names
    assert seen == [names[:i] for i in range(6)]
    replayed: list[list[str]] = []
    assert ran(climbing(replayed), tmp_path / "out") == found
    assert replayed == seen  # told of each in its turn, as the first time
    assert set(counts(tmp_path / "out").values()) == {1}


def test_a_policy_hears_only_of_what_it_asked_for(tmp_path: Path) -> None:
    ran(grid(runs(1, 2, 3)), tmp_path / "out")
    assert list(ran(grid(runs(2)), tmp_path / "out")) == ["n2"]


def test_a_policy_that_contradicts_itself(tmp_path: Path) -> None:
    a, other = Run("a", f"{HERE}double", {"number": 1}), Run("a", f"{HERE}double", {"number": 2})
    with pytest.raises(ValueError, match="two different runs named 'a'"):
        ran(grid([a, other]), tmp_path / "one")
    with pytest.raises(ValueError, match="two different runs named 'a'"):
        ran(lambda outcomes: [other if outcomes else a], tmp_path / "two")
    with pytest.raises(ValueError, match="b comes after c, which the policy does not want"):
        ran(grid([a, Run("b", f"{HERE}double", after=("c",))]), tmp_path / "three")


def test_long_runs_start_first(tmp_path: Path) -> None:
    costs = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 5.0}
    asked = [Run(name, f"{HERE}double", {"number": 1}, cost=cost) for name, cost in costs.items()]
    assert list(ran(grid(asked), tmp_path / "out")) == ["b", "d", "c", "a"]


# ---- folders ---------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(RequestError, match="file is a file: --out needs a folder"):
        ran(grid(runs(1)), tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("do not touch")
    with pytest.raises(RequestError, match="full holds other files and no table: choose an empty or a new folder"):
        ran(grid(runs(1)), tmp_path / "full", what="table")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    with pytest.raises(RequestError, match="unknown engine"):
        ran(grid(runs(1)), tmp_path / "new", engine="dusk")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_a_killed_process_had_just_made(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lock").touch()
    (tmp_path / "out" / ".token.txt.17.fallow").write_text("half")
    ran(grid(runs(1)), tmp_path / "out")
    assert not (tmp_path / "out" / ".token.txt.17.fallow").exists()


def test_a_lost_token_is_written_anew(tmp_path: Path) -> None:
    ran(grid(runs(1)), tmp_path)
    (tmp_path / "token.txt").unlink()
    ran(grid(runs(1)), tmp_path)
    assert len((tmp_path / "token.txt").read_text()) == 32


def test_another_experiment_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran(grid(runs(1)), out, identity={"epochs": 2, "shape": (1, 8)})
    ran(grid(runs(1, 2)), out, identity={"epochs": 2, "shape": [1, 8]})
    for identity, words in (({"epochs": 3, "shape": [1, 8]}, "epochs is 2, not 3"), ({"epochs": 2}, "not None")):
        with pytest.raises(RequestError, match=f"out holds another table: its .*{words}; choose another --out"):
            ran(grid(runs(1)), out, identity=identity, what="table")


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran(grid(runs(1)), out)
    busy = r"another process is at work in .*out: wait for it, or choose another --out"
    with locked(out / "lock", wait=False), pytest.raises(RequestError, match=busy):
        ran(grid(runs(1)), out)
    ran(grid(runs(1)), out)


def test_a_run_that_another_worker_is_still_at_is_waited_for(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran(grid(runs(1)), out)
    inside = threading.Event()

    def hold() -> None:
        with locked(out / "locks" / "n2", wait=False):
            inside.set()
            time.sleep(0.3)
            assert not (out / "runs" / "n2").exists()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    assert ran(grid(runs(2)), out)["n2"].reason is None
    thread.join()


def test_what_a_plan_keeps_beside_the_outcomes(tmp_path: Path) -> None:
    with opened(tmp_path / "out", "table") as experiment:
        assert experiment.store.read("plan") is None
        experiment.store.write("plan", {"seeds": 1})
        experiment.run(grid(runs(1)), workers=1)
    with opened(tmp_path / "out", "table") as experiment:
        assert experiment.store.read("plan") == {"seeds": 1}
        assert list(experiment.run(grid(runs(1, 2)), workers=1)) == ["n1", "n2"]


# ---- watching and stopping -------------------------------------------------------------------------------


def test_who_watches_sees_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WATCH", 0.01)
    ran(grid(runs(7)), tmp_path / "out")
    asked = [*runs(7), Run("p", f"{HERE}patient", {"rounds": 10}, cost=3.0)]
    seen: list[tuple[float, float, float | None]] = []

    def watch(state: State) -> None:
        seen.append((*state.cost(), state.seconds_left()))

    progress = {"p": 10}
    ran(grid(asked), tmp_path / "out", watch=watch, progress=lambda run, at: epochs_done(at, progress[run.name]))
    assert seen[0] == (1.0, 4.0, None)  # what was done before, and no pace yet
    assert seen[-1] == (4.0, 4.0, 0.0)
    done = [cost for cost, _, _ in seen]
    assert done == sorted(done)
    assert any(1.0 < cost < 4.0 for cost in done)
    assert all(left is None or left >= 0 for _, _, left in seen)


def test_the_time_left_follows_from_the_pace() -> None:
    a, b = Run("a", f"{HERE}double", cost=1), Run("b", f"{HERE}double", cost=3)
    state = State({"a": a, "b": b}, progress={"b": 0.5}, started=time.monotonic() - 3)
    assert state.cost() == (1.5, 4.0)
    assert state.seconds_left() == pytest.approx(5.0, rel=0.01)
    state.before = 1.5
    assert state.seconds_left() is None


def test_a_display_that_breaks_is_not_hidden(tmp_path: Path) -> None:
    def broken(state: State) -> None:
        if state.outcomes:
            raise WorkError("no room on the screen")

    with pytest.raises(WorkError, match="no room on the screen"):
        ran(grid(runs(1, 2)), tmp_path / "out", watch=broken)
    assert not (tmp_path / "out" / "stop").exists()
    assert len(ran(grid(runs(1, 2)), tmp_path / "out")) == 2


def interrupting(times: int, when: Any) -> Any:
    """Presses Ctrl-C, some times, as soon as something is so."""
    left = [times]

    def watch(state: State) -> None:
        if left[0] and when(state):
            left[0] -= 1
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def test_ctrl_c_stops_and_the_same_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WATCH", 0.01)
    asked = grid([*runs(1), *(Run(f"p{i}", f"{HERE}patient", {"rounds": 20}) for i in range(3))])
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ran(
            asked, tmp_path / "out", progress=lambda run, at: epochs_done(at, 20),
            watch=interrupting(1, lambda state: state.progress.get("p0")),
        )  # fmt: skip
    assert signal.getsignal(signal.SIGINT) == handler
    assert not (tmp_path / "out" / "stop").exists()
    assert [path.parent.name for path in (tmp_path / "out").glob("runs/*/outcome.json")] == ["n1"]  # to stop is no end
    half = (tmp_path / "out" / "runs" / "p0" / "metrics.jsonl").read_text()
    found = ran(asked, tmp_path / "out")
    assert [found[f"p{i}"].value for i in range(3)] == [20] * 3
    assert (tmp_path / "out" / "runs" / "p0" / "metrics.jsonl").read_text().startswith(half)
    assert counts(tmp_path / "out") == {"n1": 1}


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C interrupts, also where a shell started this in the background, which makes processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WATCH", 0.01)
    asked = grid([Run("deafened", f"{HERE}stubborn", {"seconds": 60.0})])
    with pytest.raises(KeyboardInterrupt):
        # some more, as anyone would: Python drops one that arrives in a destructor or a weak reference's callback
        ran(asked, tmp_path / "out", watch=interrupting(9, lambda state: state.progress))
    assert not (tmp_path / "out" / "runs" / "deafened" / "outcome.json").exists()  # it was not waited for
    assert ran(grid(runs(1)), tmp_path / "out")["n1"].reason is None  # its thread is gone, and so is its lock


def test_work_outside_of_an_experiment_is_not_stopped(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert patient(tmp_path / "run", 1) == 1


def test_another_thread_may_run_experiments(tmp_path: Path) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(ran(grid(runs(1)), tmp_path / "out")))
    thread.start()
    thread.join()
    assert found[0]["n1"].value["twice"] == 2


def test_threads_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    try:
        asked = grid([Run(f"r{i}", f"{HERE}report") for i in range(3)])
        for device, wanted in (("cpu", ["cpu"] * 3), ("auto", ["cuda:0", "cuda:1", "cuda:0"])):
            monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
            found = ran(asked, tmp_path / device, device=device)
            assert [outcome.value["on"] for outcome in found.values()] == wanted
            assert {outcome.value["torch"] for outcome in found.values()} == {1}
            assert {outcome.value["pid"] for outcome in found.values()} == {os.getpid()}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
