"""Comparisons that really run: in this process where that is enough, in killed ones where it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import fallow
from fallow import Predictor, methods, models
from fallow.base.errors import RequestError, WorkError
from fallow.base.lock import locked
from fallow.comparison.best import keep
from fallow.comparison.plan import METHODS, Plan
from fallow.comparison.policy import epochs
from fallow.comparison.run import Comparison, begun, describe
from fallow.comparison.work import read
from fallow.core import checkpoint, loop
from fallow.core.context import Batch, Context
from fallow.core.method import Method
from fallow.data import load
from fallow.data.examples import digest
from fallow.experiment import State, runner
from fallow.experiment.folder import home
from fallow.experiment.store import Store
from fallow.training import fit as fitting
from tests.comparison.small import MODEL, arrays, plan, ran, results, state


@pytest.fixture
def data(tmp_path: Path) -> str:
    return arrays(tmp_path / "few.npz")


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The method and seed of every training that is begun."""
    begun: list[tuple[str, int]] = []
    fit = fitting.fit

    def counted(model: Any, data: Any, method: Any, **options: Any) -> Any:
        begun.append((str(method), options["seed"]))
        return fit(model, data, method, **options)

    monkeypatch.setattr(fitting, "fit", counted)
    return begun


# ---- what the methods of a seed share ---------------------------------------------------------------


def text(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], dict[str, Any]]:
    """What every training began with, as the loop saw it."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    train = loop.run

    def spied(ctx: Context) -> None:
        found[str(ctx.method), ctx.settings.seed] = {
            "weights": {name: text(value) for name, value in ctx.model.state_dict().items()},
            "split": [digest(part) for part in (ctx.data.train, ctx.data.val, ctx.data.test) if part is not None],
            "batches": [text(x) + text(y) for epoch in range(2) for x, y in ctx.train.epoch(epoch)],
        }
        train(ctx)

    monkeypatch.setattr(loop, "run", spied)
    return found


def test_all_methods_of_a_seed_share_split_weights_and_batches(seen: Any, data: str, tmp_path: Path) -> None:
    ran(plan(data, "llf", "ema", "mixup", "dropout"), tmp_path / "out")
    assert len(seen) == 2 * 7
    for what in ("weights", "split", "batches"):
        for seed in (0, 1):
            own = [each[what] for (_, other), each in seen.items() if other == seed]
            assert all(value == own[0] for value in own), what
        assert seen["normal", 0][what] != seen["normal", 1][what]
    records = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("runs/*-seed*/run.json")]
    digests = {(record["settings"]["seed"], record["data"]["digest"]) for record in records}
    assert len(records) == 14
    assert len(digests) == len(dict(digests)) == 2


def test_every_method_starts_from_the_same_pretrained_weights(seen: Any, data: str, tmp_path: Path) -> None:
    model = models.build(MODEL, shape=(6,), classes=2)
    file = tmp_path / "pretrained.safetensors"
    save_file({name: torch.full_like(value, 0.125) for name, value in model.state_dict().items()}, file)
    asked = plan(data, "llf", "ema", weights=str(file), seeds=1)
    ran(asked, tmp_path / "out")
    assert len(seen) == 5
    for each in seen.values():
        assert set(b"".join(each["weights"].values())) == set(np.float32(0.125).tobytes())
    save_file({name: torch.zeros_like(value) for name, value in model.state_dict().items()}, file)
    with pytest.raises(RequestError, match="holds a comparison that began from other weights"):
        ran(asked, tmp_path / "out")


def reasons(out: Path) -> list[str | None]:
    """How the runs ended, by what their workers left."""
    return [json.loads(path.read_text())["reason"] for path in out.glob("runs/*/outcome.json")]


# ---- failures -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Explode(Method):
    """Diverges, as with a learning rate that is far too high."""

    name = "explode"
    summary = "diverges"

    def loss(self, ctx: Context, batch: Batch) -> Tensor:
        return super().loss(ctx, batch) * 1e30


@dataclass(eq=False)
class Stumble(Method):
    """Raises in one seed, unless it was repaired."""

    name = "stumble"
    summary = "raises"
    repaired = False

    def begin_epoch(self, ctx: Context) -> None:
        if ctx.settings.seed == 1 and not Stumble.repaired:
            raise KeyError("a bug\nof someone")


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Explode, Stumble):
        monkeypatch.setitem(methods.REGISTRY, kind.name, kind)
    monkeypatch.setattr(Stumble, "repaired", False)


@pytest.mark.usefixtures("bad")
def test_a_run_that_fails_is_reported_and_the_others_go_on(
    fits: list[tuple[str, int]], data: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = plan(data, "explode", "stumble", "ema", seeds=3, looks=[2, 3])
    done = ran(asked, out)
    failed = {(o.method, o.seed): o.reason for o in done.entries.values() if o.reason is not None}
    assert set(failed) == {("explode", 0), ("explode", 1), ("stumble", 1)}  # who failed up to a look runs no more
    assert failed["stumble", 1] == "KeyError: 'a bug\\nof someone'"
    assert "loss became" in str(failed["explode", 0])
    setting = done.findings().settings[0]
    assert setting.row("explode").verdict == "failed"
    assert sorted(setting.row("stumble").scores) == [0, 2]
    assert setting.row("stumble").to_control is not None
    assert sorted(setting.row("ema").scores)[:2] == [0, 1]  # what is decided at the first look runs no more
    assert "explode failed" in done.findings().sentence
    assert (out / "report.html").exists()
    assert {row["status"] for row in results(out)} == {"done", "failed"}

    before = state(out)
    fits.clear()
    Stumble.repaired = True
    again = ran(asked, out)
    assert sorted(fits) == [("explode", 0), ("explode", 1), ("stumble", 1)]  # failures alone are tried
    assert {o.method for o in again.entries.values() if o.reason is not None} == {"explode"}
    untouched = {name: value for name, value in before.items() if "explode" not in name and "stumble" not in name}
    assert untouched.items() <= state(out).items()


@pytest.mark.usefixtures("bad")
def test_a_failure_that_a_killed_parent_did_not_see_is_tried_again(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = plan(data, "stumble")
    ran(asked, out)
    Store(out / "experiment.db").forget_failures()  # it is in the run's folder alone
    assert list(filter(None, reasons(out)))
    Stumble.repaired = True
    assert all(o.reason is None for o in ran(asked, out).entries.values())


def test_every_run_may_fail(data: str, tmp_path: Path) -> None:
    done = ran(plan(data, "llf", seeds=1, settings={"lr": 1e20}), tmp_path / "out")
    assert all(o.reason is not None for o in done.entries.values())
    findings = done.findings()
    assert findings.winner is None
    assert findings.sentence.endswith("there is no verdict: all runs of long and restart failed.")
    assert (tmp_path / "out" / "report.html").exists()
    assert json.loads(json.dumps(describe(done, findings)))["winner"] is None


# ---- the same command again, and more of it -----------------------------------------------------------


def test_the_same_command_runs_nothing(fits: list[tuple[str, int]], data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = plan(data, "ema")
    first = ran(asked, out)
    before, table = state(out), results(out)
    fits.clear()
    shown: list[int] = []
    again = ran(asked, out, watch=lambda state: shown.append(len(state.outcomes)))
    assert fits == []
    assert shown[0] == 6
    assert state(out) == before
    assert results(out) == table
    assert again.findings().sentence == first.findings().sentence
    saved = Plan.of(**Plan.read(out / "plan.toml"))
    assert replace(saved, recipes={}) == asked
    assert saved.recipes == {data: {MODEL: again.plan.recipes[data][MODEL]}}
    ran(saved, tmp_path / "other")  # the saved plan gives the same numbers elsewhere
    assert results(tmp_path / "other") == table


def test_more_methods_seeds_data_and_models_run_what_is_missing(
    fits: list[tuple[str, int]], data: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran(plan(data, "ema", seeds=1), out)
    before = {path: seen for path, seen in state(out).items() if not path.startswith("runs/winner/")}
    fits.clear()
    ran(plan(data, "llf"), out)
    added = {("normal", 1), ("long", 1), ("ema", 1), *((name, seed) for name in ("llf", "restart") for seed in (0, 1))}
    assert sorted(fits) == sorted(added)
    assert before.items() <= state(out).items()
    fits.clear()
    more = arrays(tmp_path / "more.npz", seed=1)
    done = ran(plan([data, more], "ema", models=[MODEL, "mlp:hidden=4"], seeds=1), out)
    assert len(fits) == 5 * 2 * 3  # methods × seeds × three of the four pairs
    assert before.items() <= state(out).items()
    findings = done.findings()
    assert [(s.data, s.model) for s in findings.settings] == [
        (name, model) for name in ("few", "more") for model in (MODEL, "mlp:hidden=4")
    ]
    assert findings.across is not None
    assert findings.across.settings == 4
    assert describe(done, findings)["across"]["settings"] == 4


def test_data_sets_of_the_same_name_are_told_apart(data: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = arrays(tmp_path / "b" / "few.npz", seed=1)
    done = ran(plan([data, other], seeds=1), tmp_path / "out")
    assert done.labels == {data: data, other: other}
    assert [setting.data for setting in done.findings().settings] == [data, other]


def test_changed_data_is_refused(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran(plan(data, seeds=1), out)
    before, table = state(out), results(out)
    content = dict(np.load(data))
    for row in (0, 17, 42):  # whichever part they are in
        changed = content["x"].copy()
        changed[row] += 1
        np.savez(data, x=changed, y=content["y"])
        with pytest.raises(
            RequestError, match=r"few\.npz has changed since the comparison in .*: choose another --out"
        ):
            ran(plan(data, seeds=2), out)
    assert state(out) == before
    np.savez(data, **content)
    ran(plan(data, seeds=1), out)
    assert results(out) == table


def test_a_worker_does_not_keep_data_that_has_changed(data: str, tmp_path: Path) -> None:
    ran(plan(data, seeds=1), tmp_path / "one")
    arrays(Path(data), seed=5)
    ran(plan(data, seeds=1), tmp_path / "two")
    wanted = load(data, seed=0).describe()["digest"]
    for path in (tmp_path / "two").glob("runs/*-seed*/run.json"):
        assert json.loads(path.read_text())["data"]["digest"] == wanted


# ---- folders --------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_used(data: str, tmp_path: Path) -> None:
    asked = plan(data, seeds=1)
    (tmp_path / "file").write_text("hello")
    with pytest.raises(RequestError, match="file is a file: --out needs a folder"):
        ran(asked, tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("do not touch")
    with pytest.raises(RequestError, match="full holds other files and no comparison"):
        ran(asked, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    with pytest.raises(RequestError, match="examples of 1 class, '0': give two or more"):
        ran(plan(arrays(tmp_path / "one.npz", classes=1)), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_a_killed_process_had_just_made(data: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lock").touch()
    (tmp_path / "out" / ".token.txt.17.fallow").write_text("half")
    ran(plan(data, seeds=1), tmp_path / "out")
    assert not (tmp_path / "out" / ".token.txt.17.fallow").exists()


def test_two_processes_do_not_share_a_folder(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran(plan(data, seeds=1), out)
    busy = r"another process is at work in .*out: wait for it, or choose another --out"
    with locked(out / "lock", wait=False), pytest.raises(RequestError, match=busy):
        ran(plan(data, seeds=1), out)
    ran(plan(data, seeds=1), out)


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    path, order, inside = tmp_path / "lock", [], threading.Event()

    def hold() -> None:
        with locked(path, wait=False):
            inside.set()
            time.sleep(0.2)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    with locked(path, wait=True):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


# ---- what would fail in every run -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"models": ["mpl"]}, "unknown model 'mpl': did you mean 'mlp'?"),
        ({"models": ["scnn"]}, "scnn"),
        ({"weights": "gone.safetensors"}, "no file gone.safetensors"),
        ({"settings": {"augment": "flop"}}, "did you mean 'flip'?"),
        ({"settings": {"split": "hiden2"}}, "unknown module 'hiden2': did you mean 'hidden2'?"),
        ({"train": 1000}, "train=1000"),
        ({"size": 8}, "size=8 is for folders of images"),
    ],
)
def test_is_refused_before_the_first(changes: dict[str, Any], answer: str, data: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as refused:
        ran(plan(data, "llf", **changes), tmp_path / "out")
    assert answer in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_method_that_does_not_fit_fails_alone(data: str, tmp_path: Path) -> None:
    done = ran(plan(data, "cutmix", "ema", seeds=1), tmp_path / "out")
    reasons = {o.method: o.reason for o in done.entries.values()}
    assert "cutmix cuts boxes from images" in str(reasons.pop("cutmix"))
    assert set(reasons.values()) == {None}


def test_of_the_usual_methods_those_that_do_not_fit_are_left_out(data: str, tmp_path: Path) -> None:
    for _again in range(2):
        with begun(plan(data, *METHODS, seeds=1, settings={"epochs": 8}), tmp_path / "out") as (comparison, _):
            assert set(METHODS) - set(comparison.plan.methods) == {"cutmix"}
            (loaded,) = comparison.loaded.values()
            assert loaded.notes[-1].startswith("cutmix is left out: cutmix cuts boxes from images")


def test_where_classes_are_uneven_what_evens_them_out_is_entered(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32), (np.arange(120) % 12 == 0).astype(int)
    np.savez(tmp_path / "rare.npz", x=x, y=y)

    def entered(name: str, *asked: str, **settings: Any) -> set[str]:
        wanted = plan(str(tmp_path / "rare.npz"), *asked, seeds=1, settings={"epochs": 8, **settings})
        with begun(wanted, tmp_path / name) as (comparison, _):
            return set(comparison.plan.methods)

    for _again in range(2):
        assert "balanced" in entered("usual", *METHODS)
    assert "balanced" not in entered("named", "llf", "ema")
    assert "balanced" not in entered("judged", *METHODS, metric="accuracy")


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"engine": "spark"}, "unknown engine 'spark'"),
        ({"workers": 0}, "workers is 0"),
        ({"address": "somewhere:1"}, "an address is for --engine ray or dask"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
    ],
)
def test_engines_and_devices_that_are_not_there(
    options: dict[str, Any], answer: str, data: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=answer):
        ran(plan(data), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# ---- the process itself -----------------------------------------------------------------------------------


def test_the_users_threads_stay_as_they_were(data: str, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    try:
        ran(plan(data, seeds=1), tmp_path / "out")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    records = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("runs/*/run.json")]
    assert {record["versions"]["threads"] for record in records} == {1}


def test_progress_counts_the_epochs_of_each_method(data: str, tmp_path: Path) -> None:
    done = ran(plan(data, "llf", "sam", seeds=1, settings={"epochs": 4}), tmp_path / "out")
    assert [epochs(run) for run in done.runs] == [4, 8, 8, 8, 4]  # normal, long, restart, llf, sam
    for run in done.runs:
        rows = (tmp_path / "out" / "runs" / run.name / "metrics.jsonl").read_text().splitlines()
        assert len(rows) == epochs(run)
    assert done.state.cost() == (done.state.cost()[1],) * 2


def test_a_display_that_breaks_is_not_hidden(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WATCH", 0.01)

    def broken(_: State) -> None:
        raise WorkError("no room on the screen")

    with pytest.raises(WorkError, match="no room on the screen"):
        ran(plan(data), tmp_path / "out", watch=broken)


def test_ctrl_c_stops_and_the_same_call_goes_on(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WATCH", 0.01)
    asked = plan(data, "llf", seeds=1, settings={"epochs": 20})
    before: dict[str, tuple[int, str]] = {}

    def interrupt(now: State) -> None:
        if now.outcomes and not before:
            folders = tuple(f"runs/{name}/" for name in now.outcomes)
            before.update({k: v for k, v in state(tmp_path / "out").items() if k.startswith(folders)})
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ran(asked, tmp_path / "out", watch=interrupt)
    assert signal.getsignal(signal.SIGINT) == handler
    done = len(list((tmp_path / "out").glob("runs/*/outcome.json")))
    assert 0 < done < 4
    assert not any(reasons(tmp_path / "out"))  # to stop is no failure
    assert not (tmp_path / "out" / "stop").exists()
    ran(asked, tmp_path / "out")
    assert before.items() <= state(tmp_path / "out").items()
    ran(asked, tmp_path / "whole")
    assert results(tmp_path / "out") == results(tmp_path / "whole")


ROOT = Path(__file__).parents[2]
KILLED = {
    "train": 200,
    "models": ["scnn:width=4,dense=16"],
    "settings": {"epochs": 8, "batch_size": 32, "augment": "none"},
}
FLAGS = (
    "--train", 200, "--models", "scnn:width=4,dense=16", "--generations", 2, "--epochs", 8, "--batch-size", 32,
    "--augment", "none", "--methods", "llf", "--seeds", 2, "--workers", 2,
)  # fmt: skip


def children(parent: int) -> list[int]:
    """Processes that a process has started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(path.parent.name))
    return found


def workers(parent: int) -> list[int]:
    def command(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return ""

    return [pid for pid in children(parent) if "LokyProcess" in command(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Any, child: subprocess.Popen) -> None:
    """Wait for a moment, not for a time."""
    while not condition():
        assert child.poll() is None, "it ended too early"
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc to see processes")
def test_sigkill_of_a_worker_then_of_the_parent(tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = plan("digits", "llf", **KILLED)
    with open(tmp_path / "errors", "w") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "fallow", "compare", "digits", *map(str, FLAGS), "--out", str(out)],
            cwd=ROOT, stdout=errors, stderr=errors, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def done() -> int:
        return len(list(out.glob("runs/*/outcome.json")))

    try:
        until(lambda: any(path.stat().st_size for path in out.glob("runs/*/metrics.jsonl")), child)
        with pytest.raises(RequestError, match="another process is at work"), home(out, "comparison"):
            pass
        first, so_far = workers(child.pid), done()
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)  # the comparison goes on with other workers
        until(lambda: done() > so_far and set(workers(child.pid)) - set(first), child)
        second = workers(child.pid)
    finally:
        child.kill()
        child.wait()
    assert "Traceback" not in (tmp_path / "errors").read_text()
    deadline = time.monotonic() + 60
    while any(map(alive, second)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, second)), "a worker lives on without its parent"

    finished = tuple(f"runs/{path.parent.name}/" for path in out.glob("runs/*/outcome.json"))
    assert 0 < len(finished) < 8
    before = {name: value for name, value in state(out).items() if name.startswith(finished)}
    ran(asked, out)
    ran(asked, tmp_path / "whole")
    assert results(out) == results(tmp_path / "whole")
    assert before.items() <= state(out).items()  # no finished run was touched
    for path in (tmp_path / "whole").glob("runs/*/last.safetensors"):
        one, two = load_file(path), load_file(out / path.relative_to(tmp_path / "whole"))
        assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_checkpoint_that_did_not_count_passes_is_still_read(data: str, tmp_path: Path) -> None:
    folder, options = tmp_path / "run", {"generations": 2, "epochs": 2, "batch_size": 16, "seed": 0}
    whole = fitting.fit(MODEL, data, "llf", out=folder, **options)
    (folder / "result.json").unlink()
    old = checkpoint.load(folder / "checkpoint.previous")  # of the generation before
    assert old.pop("passes") == 2 * 3
    checkpoint.save(folder / "checkpoint", old)
    again = fitting.fit(MODEL, data, "llf", out=folder, resume=True, **options)
    assert again.last == whole.last
    assert again.passes == whole.passes == 4 * 3


# ---- the best model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["last", "best"])
def test_the_best_model_is_the_winners(score: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.comparison.yardsticks.measured", lambda *_, **__: [])  # a network, whatever they reach
    how: dict[str, Any] = {"models": ["mlp:hidden=32"], "settings": {"epochs": 4}, "refit": False}
    asked = plan("digits", "ema", train=120, score=score, **how)
    done = ran(asked, tmp_path / "out")
    winner = done.findings().winner
    assert winner is not None
    assert winner.val == max(o.val or 0 for o in done.entries.values() if o.method == winner.method)
    kept = load_file(tmp_path / "out" / "best" / "best.safetensors")
    own = load_file(tmp_path / "out" / winner.folder / f"{score}.safetensors")
    assert kept.keys() == own.keys()
    assert all(torch.equal(kept[name], own[name]) for name in own)

    assert done.taken is not None
    best = keep(done, done.taken)
    confusion = torch.tensor(best.confusion)
    assert int(confusion.sum()) == 359
    assert confusion.diagonal().sum() / 359 == pytest.approx(winner.test)
    assert confusion.sum(1).tolist() == torch.bincount(part(winner.seed, done).y).tolist()
    assert len(best.mistakes) == min(24, 359 - int(confusion.diagonal().sum()))
    sure = [mistake.confidence for mistake in best.mistakes]
    assert sure == sorted(sure, reverse=True)
    assert all(mistake.true != mistake.predicted for mistake in best.mistakes)
    assert best.mistakes[0].image is not None
    assert best.mistakes[0].image.shape == (1, 8, 8)
    assert len(best.snippet.splitlines()) == 3
    assert '["image.png"]' in best.snippet


def part(seed: int, done: Comparison) -> Any:
    return read("digits", seed, done.plan.load_options()).test


def test_the_snippet_of_a_model_that_takes_no_images(data: str, tmp_path: Path) -> None:
    done = ran(plan(data, seeds=1), tmp_path / "out")
    assert done.taken is not None
    best = keep(done, done.taken)
    assert all(mistake.image is None for mistake in best.mistakes)
    shown: list[Any] = []
    exec(best.snippet, {"x": load(data).test.x.numpy().astype(np.float64), "print": shown.append})
    assert [prediction.label for prediction in shown[0]] == [
        prediction.label for prediction in Predictor(tmp_path / "out")(load(data).test.x)
    ]


def test_a_factory_that_raises_is_refused(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("def net(classes):\n    raise OSError('no such file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RequestError, match="broken:net failed: OSError: no such file"):
        ran(plan(data, models=["broken:net"]), tmp_path / "out")


def test_images_whose_labels_are_not_kept_can_be_learned_from(tmp_path: Path) -> None:
    """FixMatch stands beside methods that see the labels alone; all have the same labels and the same test set."""
    done = fallow.compare(
        "digits", "fixmatch:ratio=1,steps=4,ema", models=MODEL, seeds=1, train=60, generations=1, epochs=2,
        workers=1, out=tmp_path / "c",
    )  # fmt: skip
    assert {o.method.partition(":")[0] for o in done.entries.values() if o.reason is None} >= {"fixmatch", "ema"}
    data = next(iter(done.loaded.values()))
    assert len(data.train) == 60
    assert data.unlabelled is not None


def test_methods_that_learn_from_tasks_race_against_maml(tmp_path: Path) -> None:
    tasks = {"shots": 5, "per_epoch": 2, "val_tasks": 4, "test_tasks": 8}
    done = fallow.compare("sinusoid", "l2f", seeds=2, tasks=tasks, epochs=2, workers=1, out=tmp_path / "out")
    assert done.plan.methods == ("maml", "l2f")
    assert done.metric.name == "loss"
    found = {(o.method, o.seed): o.test for o in done.entries.values()}
    assert len(found) == 4
    assert all(loss is not None and loss > 0 for loss in found.values())
    best = min(("maml", "l2f"), key=lambda method: done.findings().settings[0].row(method).validation or 0.0)
    assert "fallow fewshot sinusoid" in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "best" / "run.json").read_text())["method"].endswith(best)


def test_tasks_and_labelled_examples_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="l2f learns from tasks and sam from labelled examples: compare them in two"):
        fallow.compare("sinusoid", "l2f,sam", out=tmp_path / "out")
    with pytest.raises(RequestError, match="unknown option of tasks 'shot': did you mean 'shots'"):
        fallow.compare("sinusoid", "l2f", tasks={"shot": 5}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
