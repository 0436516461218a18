from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fallow.base.errors import WorkError
from fallow.base.lock import locked
from fallow.tuning import tune as module
from fallow.tuning.tune import evenly, spread
from tests.cli.conftest import Outcome, Run
from tests.kill import ended, failing, killed

SMALL = (
    "synthetic:n_test=64", "--train", 64, "--model", "mlp:hidden=4", "--epochs", 6, "--batch-size", 16, "--grid", 3,
    "--inner", 4, "--workers", 1,
)  # fmt: skip


@pytest.fixture
def tune(run: Run) -> Run:
    """``fallow tune`` on very little."""
    return lambda *words: run("tune", *SMALL, *words)


def test_the_layers_the_arms_and_the_file(tune: Run, run: Run, tmp_path: Path) -> None:
    out = tune("--seeds", 2, "--out", "t").done()
    for word in ("hidden1.linear", "head", "no decay", "grid of 3", "grid, equal cost", "learned", "2 seeds"):
        assert word in out
    assert out.endswith("report: t/tuned.html\n")
    page = (tmp_path / "t/tuned.html").read_text("utf-8")
    for word in (
        "hidden1.",
        "grid, equal cost",
        "With the learned decay, test balanced accuracy is",  # the 64 examples have uneven classes
        "fallow tune synthetic:n_test=64",
    ):
        assert word in page
    found = json.loads((tmp_path / "t/tuned.json").read_text())
    arms = {arm["name"]: arm for arm in found["arms"]}
    plain = arms["none"]["passes"][0]
    assert arms["grid"]["passes"] == [3 * plain] * 2
    assert all(2 * plain < passes for passes in arms["learned"]["passes"])
    assert all(equal <= mine for equal, mine in zip(arms["equal"]["passes"], arms["learned"]["passes"], strict=True))
    assert found["share"] == pytest.approx(sum(arms["learned"]["passes"]) / (6 * plain), abs=1e-4)

    # the file trains as the learned arm did, but for the mean over the seeds; a flag comes before it
    run("train", "synthetic:n_test=64", "--settings", "t/tuned.toml", "--out", "r").done()
    settings = json.loads((tmp_path / "r/run.json").read_text())["settings"]
    assert settings["weight_decay"] == found["decay"]
    assert (settings["epochs"], settings["label_smoothing"], settings["generations"]) == (6, 0.0, 1)
    run(
        "train", "synthetic:n_test=64", "--settings", "t/tuned.toml", "--out", "q", "--weight-decay", "0.25",
        "--epochs", 2,
    ).done()  # fmt: skip
    settings = json.loads((tmp_path / "q/run.json").read_text())["settings"]
    assert (settings["weight_decay"], settings["epochs"]) == (0.25, 2)


def test_what_is_chosen_is_chosen_on_validation(tune: Run, tmp_path: Path) -> None:
    tune("--out", "t").done()
    found = json.loads((tmp_path / "t/tuned.json").read_text())
    grid = next(arm for arm in found["arms"] if arm["name"] == "grid")
    losses = {p.name: _last(p)["val_loss"] for p in (tmp_path / "t/runs").glob("decay-*")}
    best = min(losses, key=losses.__getitem__)
    assert [f"{decay}-seed0" for decay in grid["decay"]] == [best]
    assert grid["test"] == [_last(tmp_path / "t/runs" / best)["test_balanced_accuracy"]]


def test_the_same_command_goes_on(tune: Run, tmp_path: Path) -> None:
    first = json.loads(tune("--out", "whole", "--json").done())
    killed(lambda: tune("--out", "t"), module, "fit", call=3)
    before = ended(tmp_path / "t")
    assert list(before) == ["learning-seed0"] or len(before) == 2
    again = json.loads(tune("--out", "t", "--json").done())
    assert again | {"out": 0, "file": 0} == first | {"out": 0, "file": 0}
    after = ended(tmp_path / "t")
    assert before.items() <= after.items()
    assert set(after) == {
        f"{name}-seed0" for name in ("learning", "learned", "none", *(f"decay-1.0e-0{i}" for i in (5, 3, 1)))
    }
    more = json.loads(tune("--out", "t", "--json", "--seeds", 2).done())
    assert [arm["passes"][0] for arm in more["arms"]] == [arm["passes"][0] for arm in again["arms"]]
    assert after.items() <= ended(tmp_path / "t").items()


def test_another_tuning_and_another_process_are_refused(tune: Run, tmp_path: Path) -> None:
    tune("--out", "t").done()
    with locked(tmp_path / "t/lock", wait=False):
        assert "another process is at work in t: wait for it" in tune("--out", "t").refused()
    assert "t holds another tuning: its lr is 0.01, not 0.02; choose" in tune("--out", "t", "--lr", "0.02").refused()
    assert "t holds another tuning: its seed is 0, not 1; choose" in tune("--out", "t", "--seed", 1).refused()
    assert "its method is 'implicit-decay:per=layer" in tune("--out", "t", "--per", "weight").refused()


def test_trainings_that_fail_are_left_out(tune: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(tune("--out", "whole", "--seeds", 2, "--json").done())
    diverged = WorkError("the loss became nan")

    def tuned(when: Callable[..., bool]) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(module, "fit", failing(module.fit, diverged, when))
            return tune("--out", "t", "--seeds", 2, "--json")

    point = tuned(lambda *_, weight_decay, seed, **__: weight_decay == pytest.approx(0.1) and seed == 1)
    assert point.code == 1
    assert (
        point.troubles
        == "fallow: 1 of the runs failed and were left out, first decay-1.0e-01-seed1: the loss became nan\n"
    )
    found = {arm["name"]: arm for arm in json.loads(point.out)["arms"]}
    assert found["grid"]["passes"] == [3 * found["none"]["passes"][0], 2 * found["none"]["passes"][1]]
    assert "decay-1.0e-01" not in found["grid"]["decay"][1:]

    (tmp_path / "t").rename(tmp_path / "other")
    seed = json.loads(tuned(lambda *given, seed, **__: "implicit" in given[2] and seed == 0).out)
    assert seed["failed"] == {
        "learning-seed0": "the loss became nan", "learned-seed0": "it comes after learning-seed0, which failed"
    }  # fmt: skip
    assert [arm["test"] for arm in seed["arms"]] == [arm["test"][1:] for arm in whole["arms"]]
    (tmp_path / "t/runs/learning-seed1").rename(tmp_path / "gone")
    (tmp_path / "t/experiment.db").unlink()
    none = tuned(lambda *given, **__: "implicit" in given[2])
    assert "3 of 12 trainings failed, too many to compare, learning-seed0: the loss became nan" in none.refused(1)
    again = json.loads(tune("--out", "t", "--seeds", 2, "--json").done())
    assert again | {"out": 0, "file": 0} == whole | {"out": 0, "file": 0}


def test_a_decay_per_weight_is_learned_again(tune: Run, run: Run, tmp_path: Path) -> None:
    out = tune("--per", "weight", "--out", "t").done()
    assert "mean over the weights" in out
    assert "implicit-decay:per=weight" in (tmp_path / "t/tuned.toml").read_text()
    run("train", "synthetic:n_test=64", "--settings", "t/tuned.toml", "--out", "r").done()
    again, before = _last(tmp_path / "r"), _last(tmp_path / "t/runs/learning-seed0")
    assert again["val_loss"] == before["val_loss"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--per", "neuron"], "unknown value for per 'neuron'"),
        (["--grid", 1], "grid is 1: it must be a whole number from 2"),
        (["--seeds", 0], "seeds is 0: it must be a whole number from 1"),
        (["--val", 1], "the decay is learned on validation, give a share between 0 and 1"),
        (["--solver", "exat"], "unknown solver 'exat'"),
        (["--inner", 500], "ends before the first meta-update"),
        (["--workers", 0], "workers is 0"),
        (["--engine", "dusk"], "unknown engine 'dusk': did you mean 'dask'?"),
        (["--model", "mpl"], "unknown model 'mpl'"),
        (["--epochs", 0], "epochs is 0"),
    ],
)
def test_requests_that_are_refused(tune: Run, words: list, line: str) -> None:
    assert line in tune("--out", "t", *words).refused()


def test_a_settings_file_that_is_wrong(run: Run, tmp_path: Path) -> None:
    def refused(text: str) -> str:
        (tmp_path / "s.toml").write_text(text)
        return run("train", "synthetic", "--model", "mlp:hidden=4", "--settings", "s.toml", "--out", "r").refused()

    assert "is not valid TOML" in refused("epochs = ")
    assert "unknown setting in s.toml 'epoch': did you mean 'epochs'?" in refused("epoch = 3")
    assert "unknown layer in weight_decay 'hed': did you mean 'head'?" in refused(
        "[weight_decay]\nhidden1 = 0.1\nhead = 0\nhed = 1"
    )
    assert "names no layer that holds head.weight" in refused("[weight_decay]\nhidden1 = 0.1")
    assert "head is -1" in refused("[weight_decay]\nhead = -1")
    assert "Invalid value for '--epochs'" in refused("epochs = 'many'")
    assert "gone.toml cannot be read: No such file" in run("train", "synthetic", "--settings", "gone.toml").refused()


def test_points_and_shares() -> None:
    assert spread(1e-5, 1e-1, 10)[::9] == pytest.approx([1e-5, 1e-1])
    assert evenly(range(10), 3) == [1, 5, 8]
    assert evenly(range(10), 10) == list(range(10))


def _last(run: Path) -> dict:
    return json.loads((run / "result.json").read_text())["last"]
