"""A sample of ``python -m benchmarks attack``, and what must not happen with a folder that is somebody else's."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.attack import GOOD, MAKE, damaged, damages, prepare, requests, verdict
from fallow.base.lock import locked
from tests.cli.conftest import SMALL, Run

TUNE = ("synthetic:n_test=16", "--train", 32, "--epochs", 4, "--batch-size", 16, "--grid", 2, "--inner", 2)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished and an unfinished run and comparison."""
    before = Path.cwd()
    home = tmp_path_factory.mktemp("attack")
    os.chdir(home)  # what is accepted leaves its folder here
    prepare(home)
    yield home
    os.chdir(before)


def test_malformed_requests(home: Path) -> None:
    ended = [(case, *verdict(case, home)) for case in requests(60, seed=1)]
    assert [one for one in ended if one[1] not in GOOD] == []


def test_damaged_folders(home: Path) -> None:
    ended = [(case, *damaged(case, home)) for case in damages(home, 15, seed=1)]
    assert [one for one in ended if one[1] not in GOOD] == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["compare", *SMALL[:1], "--seeds", 10**9], "seeds is 1000000000: it must be a whole number from 1 to 1000"),
        (["compare", *SMALL[:1], "--methods", ",,,"], "',,,' names nothing"),
        (["compare", *SMALL[:1], "--methods", ""], "'' names nothing"),
        (["compare", *SMALL[:1], "--set", f"clip={10**400}"], "has 401 digits"),
        (["compare", *SMALL[:1], "--workers", 10**6], "workers is 1000000"),
        (["train", *SMALL, "--epochs", 10**9], "epochs is 1000000000"),
        (["train", *SMALL, "--seed", 10**26], "seed is 100000000000000000000000000"),
        (["train", *SMALL, "--checkpoint-every", "nan"], "checkpoint_every is nan"),
        (["train", *SMALL, "--workers", -1], "workers is -1"),
        (["train", *SMALL[:1], "--minutes", 0], "minutes is 0.0: it must be a number above 0"),
        (["train", *SMALL[:1], "--minutes", "nan"], "minutes is nan: it must be a number above 0"),
        (["train", *SMALL, "--device", "cpu:99"], "device 'cpu:99' cannot be used here"),
        (["train", *SMALL, "--model", ""], "'' has no name"),
        (["train", *SMALL, "--devices", 10**6], "devices is 1000000"),
        (["train", *SMALL, "--method", "ema", "--split", "two"], "unknown module 'two'"),
        (["semi", "digits", "--labels", 20, "--network", "-inf"], "--network is for --method confidence"),
        (["semi", "digits", "--labels", 20, "--ood-share", "nan"], "ood_share is nan"),
        (["semi", "digits", "--labels", 20, "--device", "nowhere"], "device 'nowhere' cannot be used here"),
        (["tune", *TUNE, "--grid", 10**9], "grid is 1000000000"),
        (["fewshot", "sinusoid:points=many"], "points is many"),
        (["fewshot", "sinusoid", "--shots", 10**26], "shots is 1"),
        (["reproduce", "lw-table1", "--seeds", 10**9], "seeds is 1000000000"),
        (["reproduce", "--seeds", 3], "name the table to run"),
        (["diagnose", ".", "--what", ","], "what is ','"),
    ],
)
def test_what_cannot_be_meant(words: list, answer: str, run: Run) -> None:
    assert answer in run(*words).refused()


@pytest.mark.parametrize("words", [["diagnose", "--quick", "--what", "weights"], ["transfer", "--to", SMALL[0]]])
def test_trust_in_what_no_run_has_trained(words: list, run: Run, home: Path) -> None:
    verb, *rest = words
    said = run(verb, home / "run", *rest, "--model", "two", "--out", "out").refused()
    assert said == "none of the runs trained 'two': leave --model out, or name one of mlp:hidden=4"
    assert not Path("out").exists()


# ---- a folder of somebody else ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["predict", "diagnose", "transfer", "compare", "plan"])
def test_nothing_is_imported_because_a_file_names_it(verb: str, run: Run, home: Path, tmp_path: Path) -> None:
    Path("evil.py").write_text("open('ran', 'w').close()\nfrom fallow.models import MLP as net\n")
    for name in ("run", "comparison"):
        shutil.copytree(home / name, tmp_path / name)
    for path in (*Path("run").glob("run.json"), *Path("comparison").rglob("run.json")):
        record = json.loads(path.read_text()) | {"model": "evil:net"}
        record.pop("yardstick", None)  # that may have won, and is built from tensors alone
        path.write_text(json.dumps(record))
    plan = Path("comparison/plan.toml")
    plan.write_text(plan.read_text().replace("mlp:hidden=4", "evil:net"))
    image = Path("image.png")
    Image.new("L", (8, 8)).save(image)
    if verb == "compare":
        import sqlite3

        with sqlite3.connect("comparison/experiment.db") as database:
            database.execute("UPDATE experiment SET value = replace(value, 'mlp:hidden=4', 'evil:net')")
        words = [[*MAKE["comparison"], "--out", "comparison"]]
    elif verb == "plan":
        words = [["compare", "--plan", str(plan), "--out", "new"]]
    else:
        more = {"predict": [str(image)], "diagnose": ["--quick", "--what", "weights"], "transfer": ["--to", "digits"]}
        words = [[verb, folder, *more[verb]] for folder in ("run", "comparison")]
    for one in words:
        line = run(*one).refused()
        assert "evil:net" in line or one[:2] == ["predict", "comparison"]  # whose winner is tensors and names nothing
    assert not Path("ran").exists()


# ---- two processes, one folder ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["train", *SMALL, "--resume"], "--out"),
        (["compare", *SMALL[:3], "--models", "mlp:hidden=4", "--epochs", 1, "--methods", "ema"], "--out"),
        (["tune", *TUNE, "--model", "mlp:hidden=4"], "--out"),
        (["semi", "digits", "--labels", 20, "--val", 30, "--model", "mlp:hidden=4"], "--out"),
        (["fewshot", "sinusoid", "--iterations", 1, "--every", 1, "--resume"], "--out"),
        (["reproduce", "lw-table1", "--seeds", 1], "--out"),
        (["diagnose", "RUN", "--quick", "--what", "weights"], "--out"),
        (["transfer", "RUN", "--to", SMALL[0], "--train", 32], "--out"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_the_second_process_in_a_folder_is_refused(words: list, out: str, run: Run, home: Path) -> None:
    Path("taken").mkdir()
    with locked(Path("taken/lock"), wait=False):
        line = run(*[home / "run" if word == "RUN" else word for word in words], out, "taken").refused()
    assert line.startswith("another process is at work in taken")
    assert [path.name for path in Path("taken").iterdir()] == ["lock"]
