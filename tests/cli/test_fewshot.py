from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow import Episodes, Sinusoid
from fallow.cli.fewshot import processes
from fallow.cli.main import main

ARGUMENTS = ["--shots", "5", "--iterations", "4", "--every", "2", "--val-tasks", "3", "--episodes", "5"]


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["fallow", "fewshot", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_trains_judges_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    out = tmp_path / "run"
    code, said, _ = run(
        monkeypatch, capsys, "sinusoid", "--method", "l2f", "--steps", "2", *ARGUMENTS, "--out", str(out)
    )
    assert code == 0
    assert "95 % interval over 5 tasks" in said
    assert "sinusoid: 5-shot tasks; mlp:hidden=40,40,init=torch, maml:steps=2,rate=0.01+l2f" in said
    for name in ("fits.svg", "steps.svg"):
        assert (out / name).read_text().startswith("<?xml")
    assert said.endswith(f"report: {out / 'fewshot.html'}\n")
    page = (out / "fewshot.html").read_text("utf-8")
    for words in (
        "learns new tasks to a test loss of",
        "Before and after",
        "--method l2f",
        "maml:steps=2,rate=0.01+l2f",
    ):
        assert words in page
    again = [*ARGUMENTS, "--out", str(out), "--resume", "--json"]
    code, said, _ = run(monkeypatch, capsys, "sinusoid", "--method", "l2f", "--steps", "2", *again)
    found = json.loads(said)
    assert code == 0
    assert found["test"]["tasks"] == 5
    assert len(found["test"]["steps"]) == 3
    assert found["run"]["data"]["setting"] == "standard"
    longer = [*again, "--iterations", "80", "--every", "40"]
    code, _, err = run(monkeypatch, capsys, "sinusoid", "--method", "l2f", "--steps", "2", *longer)
    assert code == 2
    assert "iterations, and a schedule of as many: resume it with these" in err


def test_images_are_judged_together_and_each_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (120, 16, 16), dtype=np.uint8), np.repeat(np.arange(20), 6)
    np.savez(tmp_path / "noise.npz", x_train=x, y_train=y)
    few = [*ARGUMENTS[2:], "--ways", "2", "--shots", "1", "--model", "conv4:width=2", "--devices", "1"]
    code, said, _ = run(monkeypatch, capsys, str(tmp_path / "noise.npz"), *few, "--out", str(tmp_path / "run"))
    assert code == 0
    assert "(transductive); each query on its own" in said
    assert "the last, each query on its own" in (tmp_path / "run" / "fewshot.html").read_text("utf-8")
    assert "maml:steps=1,rate=0.4,evaluate_steps=3" in said


def test_images_take_a_process_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    images = Episodes(x=torch.zeros(60, 1, 16, 16), y=torch.arange(60) // 6, ways=2, shots=1, queries=2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert processes(images, None, "cpu", None) == 3
    assert processes(images, 2, "cpu", None) == 2  # each needs a task
    assert processes(images, None, "cpu", 1) == 1  # who counts threads wants one process
    assert processes(Sinusoid(), None, "cpu", None) == 1
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert processes(images, None, "cpu", None) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sinusoid", "--method", "seal"], "seal learns from labelled examples"),
        (["nowhere"], "there is no nowhere"),
        (["sinusoid:seting=hard"], "did you mean 'setting'"),
        (["sinusoid", "--rate", "1e5", *ARGUMENTS], "the inner loop diverged"),
        (["sinusoid", "--episodes", "0"], "episodes is 0"),
        (["sinusoid", "--resume"], "--resume needs --out"),
        (["sinusoid", "--minutes", "0"], "minutes is 0"),
        (["sinusoid", "--minutes", "1", "--iterations", "5"], "give one of them"),
        (["omniglot"], "omniglot is not installed: give --data-dir"),
        (["sinusoid", "--data-dir", "nowhere"], "--data-dir nowhere is not a folder"),
        (["mixture:noise=-1"], "noise is -1"),
        (["sinusoid", "--splits", "x.json"], "sinusoid has no classes"),
        (["few.npz", "--ways", "2", "--splits", "few.json"], "the splits name no classes for test"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("few.npz", x=np.zeros((40, 2)), y=np.arange(40) % 4)
    Path("few.json").write_text('{"train": [0, 1], "val": [2, 3]}')
    code, said, error = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1
    assert not said
