"""``fallow compare``: what it prints, what it refuses, and how it stops."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fallow.comparison.plan import METHODS, QUICK_SEEDS, SEEDS, Plan
from tests.cli.conftest import Outcome, Run
from tests.cli.test_process import ENVIRONMENT, python
from tests.comparison.small import arrays, results, state

TINY = (
    "--models", "mlp:hidden=4", "--epochs", 1, "--generations", 2, "--seeds", 1, "--methods", "ema", "--workers", 1,
    "--augment", "none",
)  # fmt: skip


@pytest.fixture
def compare(run: Run) -> Run:
    """``fallow compare`` of very little, in this process; flags given later win."""
    return lambda data, *words: run("compare", data, *TINY, *words)


def told(found: Outcome) -> tuple[str, list[str]]:
    """What a comparison that worked printed: the result, and the lines on standard error."""
    assert found.code == 0, found
    return found.out, found.err.splitlines()


# ---- what it prints -------------------------------------------------------------------------------------------


def test_the_verdict_table_and_the_paths(compare: Run) -> None:
    out, err = told(compare("digits", "--train", 60, "--seeds", 2, "--out", "out"))
    lines = out.splitlines()
    assert lines[1] == "digits · mlp:hidden=4"
    assert re.split(r"\s{2,}", lines[2]) == [
        "method", "seeds", "test accuracy", "95 % interval", "vs normal", "vs long", "p (Holm)", "detectable", "ECE",
        "log-loss", "passes", "time", "verdict",
    ]  # fmt: skip
    rows = {line.split()[0]: line for line in lines[3:6]}
    assert set(rows) == {"normal", "long", "ema"}
    assert all(" 2/2 " in row for row in rows.values())
    assert rows["normal"].endswith("baseline")
    assert rows["long"].endswith("control")
    learners = [line for line in lines if line.endswith("  yardstick")]
    assert learners[0].startswith("majority  ")
    assert re.search(r" 2 +10\.\d\d % +yardstick$", learners[0])
    untuned = next(i for i, line in enumerate(lines) if line.startswith("untuned: "))
    assert lines[untuned - 2] == learners[-1]
    assert re.fullmatch(r"undecided: ema \(.+\)", lines[untuned - 1])
    assert next(line for line in lines[untuned:] if "shown to beat" in line or "beats" in line).startswith(
        "On digits, "
    )
    assert any(line.startswith("best model: out/best/best.safetensors (") for line in lines[untuned:])
    assert lines[-2:] == ["  fallow predict out image.png", "report: out/report.html"]
    for name in ("report.html", "results.csv", "plan.toml", "experiment.db", "best/best.safetensors"):
        assert Path("out", name).is_file()

    assert err[0].startswith(
        "digits: 434 grey images of 8×8, 10 classes, 60 for training, 15 for validation, 359 for testing; "
    )
    assert err[0].endswith("; 3 methods, a race of up to 2 seeds")
    assert err[1].startswith("mlp:hidden=4, 2 epochs in batches of 64, one-cycle rate up to 0.01")
    assert err[2].startswith("2 seeds will detect, with 80 % power, a true difference of ")
    assert "this takes less than a minute on 1 worker" in err
    finished = [line for line in err if line.startswith("[")]
    assert len(finished) == 6  # one line a run, the last ones too
    assert finished[-1].startswith("[100 %, 0:00 left] digits mlp:hidden=4 ")
    assert re.fullmatch(r"\[.*\] digits mlp:hidden=4 \w+ seed \d: test \d+\.\d\d % in \d+\.\d s", finished[0])


def test_minutes_too_short_for_anything_but_the_first_run(compare: Run) -> None:
    out, err = told(compare("digits", "--train", 60, "--seeds", 4, "--minutes", 1e-4, "--out", "out"))
    assert len([line for line in err if line.startswith("[")]) == 1
    assert "no method is shown to beat long" in out


def test_json_is_one_object(compare: Run) -> None:
    out, _ = told(compare("digits", "--train", 60, "--seeds", 2, "--out", "out", "--json"))
    assert out.count("\n") == 1
    found = json.loads(out)
    assert found["out"] == "out"
    assert found["sentence"].startswith("On digits, ")
    assert Plan.of(**found["plan"]) == Plan.of(**Plan.read(Path("out/plan.toml")))
    assert {row["method"] for row in found["rows"]} == {"normal", "long", "ema"}
    ema = next(row for row in found["rows"] if row["method"] == "ema")
    assert set(ema["accuracy"]) == {"0", "1"}
    assert ema["to_control"]["method"] == "long"
    assert ema["to_control"]["low"] <= ema["to_control"]["mean"] <= ema["to_control"]["high"]
    assert ema["passes"] == 2 * 1  # epochs × batches
    worth = {row["method"]: row["validation"] for row in found["rows"]}
    worth |= {row["name"]: statistics.fmean(row["val"]) for row in found["yardsticks"]}
    assert worth[found["winner"]["method"]] == max(worth.values())


def test_again_with_more_seeds(compare: Run) -> None:
    told(compare("digits", "--train", 60, "--out", "out"))
    before = {file: seen for file, seen in state(Path("out")).items() if not file.startswith("runs/winner/")}
    _, err = told(compare("digits", "--train", 60, "--out", "out", "--seeds", 2))
    assert "3 runs are done already" in err
    assert len([line for line in err if line.startswith("[")]) == 3
    assert before.items() <= state(Path("out")).items()
    out, err = told(compare("digits", "--train", 60, "--out", "out", "--seeds", 2))
    assert not [line for line in err if line.startswith("[")]
    assert "6 runs are done already" in err
    assert "2/2" in out


def test_several_data_sets(compare: Run) -> None:
    for i in range(2):
        arrays(Path(f"set{i}.npz"), seed=i)
    out, _ = told(compare("set0.npz", "set1.npz", "--out", "out"))
    assert "\nset0 · mlp:hidden=4\n" in out
    assert "\nset1 · mlp:hidden=4\n" in out
    assert "Over 2 settings: does the column outperform the row?" in out
    assert "(with fewer than five settings, the exact test cannot reach 5 %)" in out
    assert "Which method wins when" not in out  # two settings grow no tree
    assert "fallow predict" not in out  # these are no images


def test_failed_runs_are_named_once_with_their_reason(compare: Run) -> None:
    arrays(Path("few.npz"))
    found = compare("few.npz", "--methods", "ema,cutmix", "--seeds", 2, "--out", "out")
    out, err = found.out, found.err.splitlines()
    assert found.code == 1
    assert err[-1].startswith("fallow: 2 of 8 runs failed, the first because: cutmix cuts boxes from images")
    failed = [line for line in out.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 1
    assert failed[0].startswith("failed: cutmix on few (mlp:hidden=4), seeds 0, 1: cutmix cuts boxes from images")
    assert len([line for line in err if "cutmix seed" in line and ": failed: cutmix cuts" in line]) == 2


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_when_every_run_fails(words: tuple[str, ...], compare: Run) -> None:
    arrays(Path("few.npz"))
    found = compare("few.npz", "--lr", "1e20", "--out", "out", *words)
    assert found.code == 1
    assert found.err.splitlines()[-1].startswith("fallow: every run failed, the first because: ")
    if words:
        assert json.loads(found.out)["winner"] is None
    assert Path("out/report.html").exists()


def test_the_default_folder_is_found_again(compare: Run) -> None:
    arrays(Path("few.npz"))
    told(compare("few.npz"))
    assert Path("comparisons/few/report.html").exists()
    before = state(Path("comparisons/few"))
    told(compare("./few.npz"))  # the same file
    assert state(Path("comparisons/few")) == before
    arrays(Path("more.npz"))
    line = compare("more.npz", "--out", "comparisons/few").refused()
    assert (
        line
        == "comparisons/few holds another comparison: its data is ['few.npz'], not ['more.npz']; choose another --out"
    )


def test_a_saved_plan_runs_again(compare: Run, run: Run) -> None:
    arrays(Path("few.npz"))
    told(compare("few.npz", "--out", "one", "--set", "clip=1,schedule=constant", "--split", "1"))
    plan = Plan.of(**Plan.read(Path("one/plan.toml")))
    assert plan.settings == {"generations": 2, "epochs": 1, "split": 1, "clip": 1, "schedule": "constant"} | {
        "augment": "none"
    }
    told(run("compare", "--plan", "one/plan.toml", "--out", "two", "--workers", 1))
    assert results(Path("two")) == results(Path("one"))


def test_flags_come_before_the_plan(compare: Run, run: Run) -> None:
    arrays(Path("few.npz"))
    Path("plan.toml").write_text(
        'data = ["few.npz"]\nmethods = ["llf"]\nseeds = 1\nmodels = ["mlp:hidden=4"]\nbudget = "steps"\n'
        "[settings]\nepochs = 1\ngenerations = 2\nlr = 0.5\n"
    )
    told(run("compare", "--plan", "plan.toml", "--methods", "ema", "--lr", 0.1, "--out", "out", "--workers", 1))
    found = Plan.of(**Plan.read(Path("out/plan.toml")))
    assert found.methods == ("normal", "long", "ema")
    assert found.budget == "steps"
    assert found.settings == {"epochs": 1, "generations": 2, "lr": 0.1}


def test_quick_and_defaults(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    import fallow.comparison

    asked: list[tuple[Plan, Path]] = []

    def spy(plan: Plan, out: Path, **_: object) -> None:
        asked.append((plan, out))
        raise KeyboardInterrupt

    monkeypatch.setattr(fallow.comparison, "execute", spy)
    for words in (("digits",), ("digits", "--quick"), ("digits", "--quick", "--seeds", 5)):
        assert run("compare", *words).code == 130
    plain, quick, more = (plan for plan, _ in asked)
    assert [str(out) for _, out in asked] == [
        "comparisons/digits",
        "comparisons/digits-quick",
        "comparisons/digits-quick",
    ]
    assert (plain.seeds, quick.seeds, more.seeds) == (SEEDS, QUICK_SEEDS, 5)
    assert plain.seeds >= 4
    assert len(plain.methods) >= 6
    assert set(METHODS) < set(plain.methods)
    assert plain.methods == quick.methods


# ---- what it refuses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--methods", "sael"], "unknown method 'sael': did you mean 'seal'?"),
        (["--models", "scn"], "unknown model 'scn': did you mean 'scnn'?"),
        (["--engine", "rai"], "unknown engine 'rai': did you mean 'ray'?"),
        (["--address", "tcp://x:1"], "an address is for --engine ray or dask"),
        (["--budget", "step"], "unknown budget 'step': did you mean 'steps'?"),
        (["--score", "lest"], "unknown score 'lest'"),
        (["--seeds", "0"], "seeds is 0: it must be a whole number from 1"),
        (["--seeds", "four"], "Invalid value for '--seeds'"),
        (["--seed", "-1"], "seed is -1"),
        (["--workers", "0"], "workers is 0: it must be a whole number from 1"),
        (["--val", "0"], "val is 0.0: a comparison chooses on validation"),
        (["--train", "5"], "train=5 is too few for 10 classes"),
        (["--train", "5000"], "train=5000"),
        (["--size", "8"], "size=8 is for folders of images"),
        (["--lr", "-1"], "lr is -1.0: it must be above 0"),
        (["--epochs", "0"], "epochs is 0: it must be a whole number from 1"),
        (["--optimizer", "adam"], "unknown optimizer 'adam': did you mean 'adamw'?"),
        (["--augment", "flop"], "did you mean 'flip'?"),
        (["--methods", "llf", "--split", "hiden1"], "unknown module 'hiden1'"),
        (["--device", "gpu"], "device 'gpu' cannot be used here"),
        (["--weights", "gone.pt"], "no file gone.pt"),
        (["--set", "clp=1"], "unknown setting 'clp': did you mean 'clip'?"),
        (["--set", "seed=3"], "seed is set in the settings"),
        (["--set", "clip"], "is not a setting"),
        (["--plan", "gone.toml"], "the plan gone.toml cannot be read: No such file or directory"),
        (["--plan", "bad.toml"], "unknown key of a plan 'metods': did you mean 'methods'?"),
        (["--plan", "odd.toml"], "settings of a plan cannot be 3"),
        (["--plan", "broken.toml"], "the plan broken.toml is not valid TOML"),
        (["--sedes", "3"], "No such option: --sedes"),
        (["digits"], "data 'digits' is named twice"),
    ],
)
def test_wrong_requests(words: list[str], answer: str, compare: Run) -> None:
    Path("bad.toml").write_text('metods = ["llf"]\n')
    Path("odd.toml").write_text("settings = 3\n")
    Path("broken.toml").write_text("seeds = \n")
    assert answer in compare("digits", "--out", "out", *words).refused()
    assert not Path("out").exists()


def test_no_data(run: Run) -> None:
    assert run("compare").refused().startswith("there is no data to compare on: fallow compare DATA, or --plan FILE")
    Path("plan.toml").write_text("data = []\n")
    assert run("compare", "--plan", "plan.toml").refused().startswith("there is no data to compare on")
    assert not Path("comparisons").exists()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        ("digitz", "unknown data 'digitz': did you mean 'digits'?"),
        ("no/such/path", "there is no no/such/path"),
        ("empty", "no class folders"),
        ("bare", "holds no images"),
        ("synthetic:alhpa=1", "did you mean 'alpha'?"),
        ("text.txt", "is of an unknown kind"),
        ("alone.npz", "examples of 1 class, '0': give two or more"),
        ("scarce.npz", "class '1' has 2 of the 3 examples that training, validation, test need"),
    ],
)
def test_data_that_cannot_be_compared_on(data: str, answer: str, compare: Run) -> None:
    Path("empty").mkdir()
    Path("bare/cats").mkdir(parents=True)
    Path("text.txt").write_text("hello")
    arrays(Path("alone.npz"), classes=1)
    np.savez("scarce.npz", x=np.zeros((30, 3), np.float32), y=np.array([0] * 28 + [1] * 2))
    assert answer in compare(data, "--out", "out").refused()
    assert not Path("out").exists()


def test_a_folder_of_one_class(compare: Run, images: Path) -> None:
    for path in (images / "dog").iterdir():
        path.unlink()
    (images / "dog").rmdir()
    assert "examples of 1 class, 'cat': give two or more" in compare(images, "--out", "out").refused()


def test_fewer_images_than_classes_times_splits(compare: Run, images: Path) -> None:
    for i in range(2, 8):
        (images / "dog" / f"{i}.png").unlink()
    assert "class 'dog' has 2 of the 3 examples" in compare(images, "--out", "out").refused()
    assert not Path("out").exists()


def test_a_corrupt_image_is_named_and_skipped_or_refused(compare: Run, images: Path) -> None:
    (images / "cat" / "3.png").write_bytes((images / "cat" / "3.png").read_bytes()[:60])
    line = compare(images, "--out", "out", "--strict").refused()
    assert "cat/3.png cannot be read as an image: repair or remove it" in line
    assert not Path("out").exists()
    _, err = told(compare(images, "--out", "out"))
    assert "note: 1 unreadable image skipped: cat/3.png." in err
    assert "cat/3.png" in Path("out/report.html").read_text("utf-8")


def test_mixed_sizes_are_resized_and_said_so(compare: Run, images: Path) -> None:
    Image.fromarray(np.zeros((12, 20), np.uint8)).save(images / "cat" / "3.png")
    _, err = told(compare(images, "--size", 8, "--out", "out"))
    note = "Images of 8×8 to 12×20 pixels were cut to the centre and resized to 8×8."
    assert f"note: {note}" in err
    assert note in Path("out/report.html").read_text("utf-8")


def test_a_comparison_does_not_become_part_of_its_data(run: Run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(images)
    line = run("compare", ".", *TINY).refused()
    assert line == "comparisons/images is inside the data .: choose another --out"
    assert sorted(path.name for path in images.iterdir()) == ["cat", "dog"]


def test_outputs_that_are_something_else(compare: Run) -> None:
    arrays(Path("few.npz"))
    Path("file").write_text("hello")
    assert compare("few.npz", "--out", "file").refused() == "file is a file: --out needs a folder"
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("hello")
    assert "full holds other files and no comparison" in compare("few.npz", "--out", "full").refused()
    told(compare("few.npz", "--out", "out"))
    before = state(Path("out"))
    for words in (("--lr", 0.5), ("--train", 20), ("--seed", 3), ("--quick",)):
        assert "out holds another comparison: its " in compare("few.npz", "--out", "out", *words).refused()
    assert state(Path("out")) == before
    Path("out/experiment.db").write_text("this is no database, but it is long enough to be read as one" * 20)
    assert "experiment.db is not an experiment of fallow" in compare("few.npz", "--out", "out").refused()


# ---- the process ------------------------------------------------------------------------------------------------


def test_help_does_not_wait_for_torch() -> None:
    loaded = python(
        "import sys, json; from fallow.cli.main import main; sys.argv = ['fallow', 'compare', '--help']\n"
        "try: main()\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)))"
    )
    heavy = {"torch", "numpy", "scipy", "sklearn", "kornia", "matplotlib", "PIL", "joblib", "jinja2", "ray", "sqlite3"}
    assert not heavy & set(loaded)


def read_until(terminal: int, word: str, child: subprocess.Popen) -> str:
    """What a terminal shows until a word appears, or until the child has gone."""
    shown = b""
    while word.encode() not in shown:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            shown += os.read(terminal, 65536) if ready else b""
        except OSError:  # Linux has this for the end of a terminal
            break
        if not ready and child.poll() is not None:
            break
    return shown.decode()


def test_a_terminal_shows_a_live_table_and_ctrl_c_stops(run: Run) -> None:
    words = ("compare", "digits", "--train", "300", "--models", "scnn:width=4,dense=16", "--generations", "2",
             "--epochs", "12", "--methods", "ema", "--seeds", "2", "--workers", "1", "--augment", "none",
             "--out", "out")  # fmt: skip
    terminal, inner = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "fallow", *words], stdin=inner, stderr=inner, stdout=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=own_terminal, env=ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(inner)
    try:
        shown = read_until(terminal, "1/2", child)  # a first seed is done
        os.write(terminal, b"\x03")
        shown += read_until(terminal, "\0", child)
        out = child.communicate()[0]
    finally:
        child.kill()
        os.close(terminal)
    assert "digits: 734 grey images of 8×8, 10 classes, 300 for training, 75 for validation" in shown
    assert re.search(r"\d+ % done in 0:\d\d", shown)
    for word in ("method", "test accuracy so far", "time per run", "normal", "long", "ema", "left"):
        assert word in shown
    assert "Traceback" not in shown
    assert child.returncode == 130, shown
    assert shown.endswith("fallow: stopped: the same command resumes it\r\n")
    assert out == ""
    done = len(list(Path("out").glob("runs/*/outcome.json")))
    assert 0 < done < 6
    out, err = told(run(*words))
    assert f"{done} {'run is' if done == 1 else 'runs are'} done already" in err
    assert out.count("2/2") == 3


def own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
