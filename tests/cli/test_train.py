from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fallow.core import loop
from tests.cli.conftest import Run


def same_weights(a: Path, b: Path) -> bool:
    one, two = load_file(a / "last.safetensors"), load_file(b / "last.safetensors")
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_prints_a_table_and_keeps_the_run(train: Run, tmp_path: Path) -> None:
    words = train("--method", "llf", "--out", "a").done()
    assert words.startswith("synthetic: 32 train, 8 val, 16 test examples of 8 classes; mlp:hidden=4,4, llf\n")
    assert "early  hidden1.linear" in words
    assert "\n         1       2          -" in words
    assert "\n         2       2" in words
    assert "8 steps in " in words
    assert words.endswith("kept in a\n")
    kept = {path.name for path in (tmp_path / "a").iterdir()}
    assert kept == {
        "run.json", "metrics.jsonl", "checkpoint", "checkpoint.previous", "last.safetensors", "best.safetensors",
        "lock", "outputs.safetensors", "result.json",
    }  # fmt: skip
    assert len((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()) == 4


def test_the_columns_of_the_table_are_below_their_names(train: Run) -> None:
    lines = train("--method", "seal:scale=1,share=0.5", "--out", "a").done().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("generation"))
    assert len({len(line) for line in lines[at : at + 3]}) == 1


def test_json_is_one_object_and_nothing_else(train: Run) -> None:
    outcome = train("--method", "llf", "--json", "--out", "a")
    result = json.loads(outcome.done())
    assert outcome.out.count("\n") == 1
    assert result["out"] == "a"
    assert result["steps"] == 8
    assert [row["generation"] for row in result["generations"]] == [1, 2]
    assert result["run"]["settings"]["epochs"] == 2
    assert result["last"]["test_accuracy"] is not None
    assert json.loads(Path("a/result.json").read_text())["last"] == result["last"]


def test_every_run_gets_a_folder_of_its_own(train: Run) -> None:
    for name in (
        "synthetic_n_test=16-seal_share=0.5_scale=1.0-seed0",
        "synthetic_n_test=16-seal_share=0.5_scale=1.0-seed0-2",
    ):
        assert train("--method", "seal:share=0.5,scale=1.0", "--json").done()
        assert (Path("runs") / name / "result.json").exists(), list(Path("runs").iterdir())


def test_resume_of_nothing_simply_starts(train: Run) -> None:
    train("--out", "a").done()
    train("--out", "b", "--resume").done()
    Path("c").mkdir()
    train("--out", "c", "--resume").done()
    assert same_weights(Path("a"), Path("b"))
    assert same_weights(Path("a"), Path("c"))


@pytest.mark.parametrize("json", [False, True])
def test_resume_of_a_finished_run_says_the_same_again(train: Run, json: bool) -> None:
    words = ("--method", "seal:share=0.5,scale=1", "--out", "a", *["--json"] * json)
    first = train(*words).done()
    before = {path.name: path.read_bytes() for path in Path("a").iterdir()}
    assert train(*words, "--resume").done() == first
    assert {path.name: path.read_bytes() for path in Path("a").iterdir()} == before


def test_resume_without_a_folder(train: Run) -> None:
    assert train("--resume").refused() == "--resume needs --out: the folder of the run to resume"


def test_an_existing_folder(train: Run) -> None:
    train("--out", "a").done()
    assert "a already holds a run: add --resume" in train("--out", "a").refused()
    assert "its settings.lr is 0.01, not 0.5" in train("--out", "a", "--resume", "--lr", 0.5).refused()
    assert "its method is 'normal', not" in train("--out", "a", "--resume", "--method", "llf").refused()
    Path("b").mkdir()
    Path("b/file").touch()
    assert "holds other files" in train("--out", "b").refused()
    assert "is a file" in train("--out", "b/file").refused()
    assert "cannot make the folder" in train("--out", "b/file/c").refused(1)


def test_checkpoints_that_cannot_be_gone_on_with(train: Run) -> None:
    train("--out", "a").done()
    train("--out", "b", "--seed", 1).done()
    path, whole = Path("a/checkpoint"), Path("a/checkpoint").read_bytes()
    for content, words in (
        (Path("b/checkpoint").read_bytes(), "belongs to another run"),
        (whole.replace(b"checkpoint 1 ", b"checkpoint 9 ", 1), "has checkpoint format 9, this fallow reads format 1"),
        (whole[:-100], "is damaged: delete it to start this run again"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "is damaged"),
        (b"PK\x03\x04", "is not a checkpoint of fallow"),
    ):
        path.write_bytes(content)
        Path("a/checkpoint.previous").unlink(missing_ok=True)  # it would go on from that
        assert words in train("--out", "a", "--resume").refused()


def test_a_loss_that_diverges(train: Run) -> None:
    words = ("--lr", "1e30", "--out", "a", "--checkpoint-every", 0)
    for again in ((), ("--resume",), ("--resume",)):  # from the same checkpoint to the same end
        line = train(*words, *again).refused(1)
        assert "the loss became nan at generation 1, epoch 1, step 2 (the step before: " in line
        assert "likely the learning rate (1e+30) is too high: lower it, or set clip or warmup" in line
        assert line.endswith("the last good checkpoint is kept in a")
        assert Path("a/checkpoint").exists()
        assert not Path("a/result.json").exists()


def test_an_ascent_that_diverges(train: Run) -> None:
    line = train("--method", "seal:scale=1e30,share=0.5", "--out", "a").refused()
    assert "the ascent diverged" in line
    assert "generation 2" in line


def test_a_full_disk_and_then_room_again(train: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--method", "llf", "--checkpoint-every", 0)
    train(*words, "--out", "whole").done()
    real = os.fsync
    for fails in (
        1,
        2,
        5,
        8,
        11,
        16,
        17,
        19,
    ):  # run.json, checkpoints, weights, outputs, the outcome; files and folders
        calls = 0

        def full(file: int, fails: int = fails) -> None:
            nonlocal calls
            calls += 1
            if calls == fails:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(file)

        out = Path(f"full {fails}")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            line = train(*words, "--out", out).refused(1)
        assert "No space left on device" in line
        assert "make room and resume" in line
        train(*words, "--out", out, "--resume").done()
        assert same_weights(out, Path("whole"))


def test_pretrained_weights(train: Run) -> None:
    train("--out", "a").done()
    held = load_file("a/last.safetensors")
    head = {name: value for name, value in held.items() if name.startswith("network.head")}
    save_file(
        {name: value for name, value in held.items() if name not in head} | {"other": torch.ones(2)}, "part.safetensors"
    )
    words = train("--out", "b", "--weights", "part.safetensors").done()
    assert "weights from part.safetensors\n  matched         4  hidden1.linear.weight" in words
    assert "missing         2  head.weight, head.bias" in words
    assert "unexpected      1  other" in words
    assert "no file gone.pt" in train("--out", "c", "--weights", "gone.pt").refused()
    assert "no file a" in train("--out", "c", "--weights", "a").refused()
    Path("bad.pt").write_bytes(b"nothing of the kind")
    assert "bad.pt" in train("--out", "c", "--weights", "bad.pt").refused()
    save_file({"other": torch.ones(2)}, "other.safetensors")
    assert (
        "nothing in other.safetensors fits this model"
        in train("--out", "c", "--weights", "other.safetensors").refused()
    )
    line = train("--out", "b", "--weights", "a/last.safetensors", "--resume").refused()
    assert "its weights are" in line  # other weights are another run
    assert not Path("c").exists()


def test_a_factory_of_the_user(run: Run) -> None:
    Path("own_net.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes):\n    return nn.Sequential(nn.Linear(shape[0], 6), nn.ReLU(), nn.Linear(6, classes))\n"
        "def number():\n    return 3\n"
        "def broken():\n    raise ValueError('on\\npurpose')\n"
    )

    def train(model: str, out: str):
        return run("train", "synthetic", "--train", 32, "--epochs", 2, "--generations", 2, "--model", model,
                   "--method", "llf", "--out", out)  # fmt: skip

    assert "own_net:net, llf" in train("own_net:net", "a").done()
    for model, words in (
        ("no_such_module:net", "no module 'no_such_module'"),
        ("own_net:nett", "did you mean 'net'?"),
        ("own_net:number", "own_net:number returned a int"),
        ("own_net:broken", "own_net:broken failed: ValueError: on"),
        ("own_net:", "names no factory"),
    ):
        assert words in train(model, "b").refused()
    assert not Path("b").exists()


@pytest.mark.parametrize("line", ['model = "foreign_net:net"', 'method = "confidence:network=foreign_net:net"'])
def test_a_settings_file_imports_nothing(line: str, run: Run) -> None:
    """It may be somebody else's, with code beside it: the command itself must name that code."""
    Path("foreign_net.py").write_text("from pathlib import Path\nPath('trace').touch()\n")
    Path("s.toml").write_text(f"{line}\n")
    refused = run("train", "digits", "--settings", "s.toml", "--out", "a").refused()
    assert refused == (
        "s.toml names the model 'foreign_net:net', which is not fallow's own: name it in the command, too"
    )
    key, _, value = line.replace('"', "").partition(" = ")
    run("train", "digits", "--settings", "s.toml", f"--{key}", value, "--out", "a").refused()  # it has no factory
    assert Path("trace").exists() == (key == "model")
    assert not Path("a").exists()


def test_ctrl_c_in_this_process(train: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loop.close_epoch

    def interrupted(ctx) -> bool:
        if ctx.clock.generation == 1:
            raise KeyboardInterrupt
        return real(ctx)

    train("--out", "whole", "--method", "llf").done()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "close_epoch", interrupted)
        line = train("--method", "llf").refused(130)
    out = "runs/synthetic_n_test=16-llf-seed0"
    assert line == f"stopped: the same command with --out {out} --resume resumes it"
    train("--method", "llf", "--out", out, "--resume").done()
    assert same_weights(Path("whole"), Path(out))


def test_a_terminal_that_knows_only_ascii(train: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has "…" in it, and run.json what not."""
    bare = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", bare)
    assert train("--method", "llf", "--out", "a").code == 0
    assert b"hidden2.linear ? head" in bare.buffer.getvalue()
