from __future__ import annotations

import functools
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import safetensors.torch
import torch

import fallow
from fallow.base.errors import RequestError, WorkError
from fallow.core import loop
from fallow.core.record import RunFolder
from tests.core.small import OWN, TINY, Net, equal, points, weights

IDENTITY = {"method": "llf", "settings": {"lr": 0.1, "epochs": 3, "split": (1, 2)}}


def refusal(folder: Path, identity: dict = IDENTITY, resume: bool = True) -> str:
    with pytest.raises(RequestError) as caught:
        RunFolder(folder).open(identity, resume)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_opens_a_new_folder_and_the_same_run_again(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    RunFolder(out).open(IDENTITY, resume=False, notes=["a note"])
    stored = json.loads((out / "run.json").read_text())
    assert stored["method"] == "llf"
    assert stored["notes"] == ["a note"]
    assert stored["versions"].keys() >= {"fallow", "torch", "numpy", "python"}
    RunFolder(out).open(IDENTITY, resume=True, notes=["other notes are no other run"])


def test_other_versions_and_threads_are_said_while_there_is_something_to_do(tmp_path: Path) -> None:
    RunFolder(tmp_path).open(IDENTITY, resume=False)
    stored = json.loads((tmp_path / "run.json").read_text())
    stored["versions"] |= {"torch": "1.13.0", "threads": 777}
    (tmp_path / "run.json").write_text(json.dumps(stored))
    with pytest.warns(
        UserWarning, match=r"began with torch 1\.13\.0 \(now .*\), threads 777 \(now .*may differ in its bits"
    ):
        RunFolder(tmp_path).open(IDENTITY, resume=True)
    RunFolder(tmp_path).finish({"seconds": 1.0})
    RunFolder(tmp_path).open(IDENTITY, resume=True)


def test_refuses_an_existing_run_without_resume(tmp_path: Path) -> None:
    RunFolder(tmp_path).open(IDENTITY, resume=False)
    assert "add --resume to resume it" in refusal(tmp_path, resume=False)


def test_another_run_is_named_by_the_first_difference(tmp_path: Path) -> None:
    RunFolder(tmp_path).open(IDENTITY, resume=False)
    other = {"method": "llf", "settings": {"lr": 0.2, "epochs": 4, "split": (1, 2)}}
    words = refusal(tmp_path, other)
    assert "its settings.lr is 0.1, not 0.2" in words
    assert "epochs" not in words
    assert "its method is 'llf', not 'seal'" in refusal(tmp_path, other | {"method": "seal"})


def test_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    (tmp_path / ".notes.1").write_text("of work")
    assert "holds other files and no run" in refusal(tmp_path, resume=False)
    assert "holds other files and no run" in refusal(tmp_path, resume=True)
    assert (tmp_path / "thesis.tex").read_text() + (tmp_path / ".notes.1").read_text() == "yearsof work"


def test_a_file_and_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file: --out needs a folder" in refusal(tmp_path / "file")
    with pytest.raises(WorkError, match="cannot make the folder"):
        RunFolder(tmp_path / "file" / "run").open(IDENTITY, resume=False)


def test_what_a_killed_writer_left_is_no_obstacle(tmp_path: Path) -> None:
    left = tmp_path / ".run.json.4711.fallow"
    left.write_text('{"meth')
    RunFolder(tmp_path).open(IDENTITY, resume=False)
    assert not left.exists()
    left.write_text('{"meth')
    refusal(tmp_path, resume=False)
    assert left.exists()  # whoever is refused touches nothing: the writer may be alive
    RunFolder(tmp_path).open(IDENTITY, resume=True)
    assert not left.exists()


def test_a_damaged_run_json(tmp_path: Path) -> None:
    RunFolder(tmp_path).open(IDENTITY, resume=False)
    (tmp_path / "run.json").write_text('{"meth')
    assert "run.json cannot be read" in refusal(tmp_path)


def test_a_full_disk_while_appending(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(WorkError, match=r"cannot write .*metrics.jsonl"):
        folder.append({"epoch": 1})


def fit(out: Path, **changes) -> fallow.Result:
    model = changes.pop("model", None) or Net()
    defaults = OWN if "optimizer" in changes else TINY
    return fallow.fit(model, points(), changes.pop("method", "llf"), out=out, **(defaults | changes))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"lr": 0.01}, "its settings.lr is 0.05, not 0.01"),
        ({"seed": 4}, "its settings.seed is 3, not 4"),
        ({"split": 1}, "its settings.split is 'auto', not 1"),
        ({"optimizer": "adamw"}, "its settings.optimizer is 'sgd', not 'adamw'"),
        ({"loss": torch.nn.functional.multi_margin_loss}, "its loss is None, not 'multi_margin_loss'"),
        ({"method": "llf:biases=False"}, "its method is"),
        ({"model": Net(classes=3)}, "its model is"),
    ],
)
def test_every_setting_is_part_of_a_run(change: dict, difference: str, tmp_path: Path) -> None:
    fit(tmp_path, epochs=1)
    with pytest.raises(RequestError) as caught:
        fit(tmp_path, epochs=1, resume=True, **change)
    assert difference in str(caught.value)


def test_a_factory_has_the_same_name_in_every_process(tmp_path: Path) -> None:
    def make(parameters, lr: float):
        return torch.optim.SGD(parameters, lr=lr)

    fit(tmp_path, optimizer=functools.partial(make, lr=0.1))
    stored = json.loads((tmp_path / "run.json").read_text())["settings"]["optimizer"]
    assert " at 0x" not in stored  # an address would make every later process another run
    fit(tmp_path, optimizer=functools.partial(make, lr=0.1), resume=True)


def test_a_method_that_needs_no_threshold_asks_for_none(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 2)  # one layer has no early and late side
    result = fit(tmp_path, model=model, method="born-again")
    assert len(result.generations) == 2
    assert json.loads((tmp_path / "run.json").read_text())["partition"] is None


def test_resume_without_a_folder() -> None:
    with pytest.raises(RequestError, match="resume needs out"):
        fallow.fit(Net(), points(), resume=True, **TINY)


def test_a_finished_run_says_the_same_again_and_writes_nothing(tmp_path: Path) -> None:
    first = fit(tmp_path)
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in tmp_path.iterdir()}
    again = fit(tmp_path, resume=True)
    assert again.describe() == first.describe() == json.loads((tmp_path / "result.json").read_text())
    assert equal(weights(first.network), weights(again.network))
    assert equal(first.best_weights, again.best_weights)
    rewritten = {"metrics.jsonl"}
    for path in tmp_path.iterdir():
        content, inode = before.pop(path.name)
        assert path.read_bytes() == content
        assert path.name in rewritten or path.stat().st_ino == inode
    assert not before


def test_the_outcome_is_written_when_the_run_was_killed_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", killed)
        with pytest.raises(Killed):
            fit(tmp_path)
    assert not (tmp_path / "result.json").exists()
    result = fit(tmp_path, resume=True)
    assert (tmp_path / "result.json").exists()
    assert equal(weights(result.network), weights(fit(tmp_path / "whole").network))


def test_a_damaged_checkpoint_goes_on_from_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LIVE", 0.0)
    out = tmp_path / "run"
    whole = fit(tmp_path / "whole")

    class Killed(BaseException):
        pass

    def stop(ctx) -> None:
        if ctx.clock.generation == 1 and ctx.clock.step == 1:
            raise Killed

    with pytest.raises(Killed):
        fit(out, observer=stop, checkpoint_every=0)
    checkpoint = out / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-9])
    assert equal(weights(fit(out, resume=True).network), weights(whole.network))


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    """The second is refused, and nothing is touched."""
    out, ready = tmp_path / "run", tmp_path / "ready"
    child = os.fork()
    if child == 0:

        def wait(ctx) -> None:
            ready.touch()
            time.sleep(60)

        with suppress(BaseException):
            fit(out, observer=wait, checkpoint_every=0)
        os._exit(0)
    try:
        while not ready.exists():
            time.sleep(0.01)
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        with pytest.raises(RequestError, match="another process is at work in"):
            fit(out, resume=True)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert fit(out, resume=True).generations  # the lock died with its holder


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 80, {"test_last": torch.zeros(3)}, {"test_lost": torch.zeros(3), "test_y": torch.zeros(3)}],
)
def test_damaged_outputs_are_named_with_what_to_do(content: bytes | dict, tmp_path: Path) -> None:
    named = {} if isinstance(content, bytes) else {name: torch.zeros(3) for name in content}
    found = content if isinstance(content, bytes) else safetensors.torch.save(named)
    (tmp_path / "outputs.safetensors").write_bytes(found)
    with pytest.raises(WorkError, match=r"is damaged \(.*\): delete .*, and the same command trains it again"):
        RunFolder(tmp_path).outputs()


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.previous"])
def test_a_folder_in_place_of_a_checkpoint(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(RequestError, match=rf"{name} is a folder: delete it"):
        RunFolder(tmp_path).load_checkpoint()
