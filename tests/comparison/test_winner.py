"""What is taken home: the best row of all, taught all labels, with probabilities that can be trusted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import fallow
from fallow.base.errors import WorkError
from fallow.comparison import yardsticks as learners
from fallow.comparison.work import read
from fallow.data.examples import united
from fallow.methods import build
from fallow.training.predict import Predictor
from fallow.training.yardsticks import relearned, yardsticks
from tests.comparison.small import MODEL, arrays, plan, ran, state


@pytest.fixture
def data(tmp_path: Path) -> str:
    return arrays(tmp_path / "data.npz", n=80, classes=3)


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no yardstick."""
    monkeypatch.setattr(learners, "measured", lambda *_, **__: [])


def record(out: Path) -> dict[str, Any]:
    return json.loads((out / "best" / "run.json").read_text())


@pytest.mark.usefixtures("networks")
def test_a_network_is_trained_again_on_all_labels(data: str, tmp_path: Path) -> None:
    asked, out = plan(data, "ema"), tmp_path / "out"
    done = ran(asked, out)
    winner, taken = done.findings().winner, done.taken
    assert winner is not None
    assert taken is not None
    judged = json.loads((out / winner.folder / "run.json").read_text())
    loaded = read(data, winner.seed, asked.load_options())
    whole = fallow.data.load((united(loaded.train, loaded.val).x, united(loaded.train, loaded.val).y), val=0, test=0)
    assert taken.labels == record(out)["labels"] == len(whole.train)
    whole.mean, whole.std, whole.test = loaded.mean, loaded.std, loaded.test
    settings = {key: value for key, value in judged["settings"].items() if key != "metric"}
    alone = fallow.fit(MODEL, whole, winner.method, **settings)
    kept = load_file(out / "best" / "best.safetensors")
    for name, tensor in alone.model.state_dict().items():
        torch.testing.assert_close(kept[name], tensor, msg=name)
    assert taken.test == alone.last["test_accuracy"]
    assert "trained again on all 64 labels, validation included" in (out / "report.html").read_text()
    before = state(out)
    ran(asked, out)
    assert state(out) == before  # nothing is trained twice


@pytest.mark.usefixtures("networks")
def test_whatever_becomes_of_the_winner_the_same_command_mends_it_or_says_how(data: str, tmp_path: Path) -> None:
    asked, out = plan(data, seeds=1), tmp_path / "out"
    done = ran(asked, out)
    kept, before = out / "best" / "best.safetensors", (out / "best" / "best.safetensors").read_bytes()
    kept.unlink()
    (kept / "inside").mkdir(parents=True)  # a folder where the file was
    ran(asked, out)
    assert kept.read_bytes() == before
    shutil.rmtree(out / "best")
    (out / "best").write_text("a file where the folder was")
    ran(asked, out)
    assert kept.read_bytes() == before
    winner = done.findings().winner
    assert winner is not None
    judged = out / winner.folder
    for damage in ("", "[]", "{}", "{"):
        (judged / "run.json").write_text(damage)
        with pytest.raises(WorkError, match=f"run.json is damaged .*: delete {judged}, and the same command trains it"):
            ran(asked, out)
    shutil.rmtree(judged)
    ran(asked, out)
    assert kept.read_bytes() == before


@pytest.mark.usefixtures("networks")
def test_probabilities_are_calibrated_by_the_judged_networks_validation(data: str, tmp_path: Path) -> None:
    done = ran(plan(data, "ema", refit=False), tmp_path / "out")
    winner = done.findings().winner
    assert winner is not None
    assert record(tmp_path / "out")["labels"] is None
    judged = tmp_path / "out" / winner.folder
    assert (tmp_path / "out/best/best.safetensors").read_bytes() == (judged / "last.safetensors").read_bytes()
    outputs = load_file(judged / "outputs.safetensors")
    loss = [
        functional.cross_entropy(outputs["val_last"] / t, outputs["val_y"]).item() for t in np.geomspace(0.05, 20, 400)
    ]
    heat = record(tmp_path / "out")["temperature"]
    assert functional.cross_entropy(outputs["val_last"] / heat, outputs["val_y"]).item() <= min(loss) + 1e-6
    predictor, x = Predictor(tmp_path / "out"), read(data, 0, done.plan.load_options()).test.x
    sure = (predictor.logits(x) / heat).softmax(1).max(1).values
    assert [said.confidence for said in predictor(x)] == pytest.approx(sure.tolist())


@pytest.mark.parametrize("name", ["logistic", "extra trees"])
def test_a_yardstick_is_kept_as_tensors(name: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = learners.measured
    monkeypatch.setattr(learners, "measured", lambda *a, **k: [row for row in measured(*a, **k) if row.name == name])
    asked, out = plan(data, "ema", settings={"lr": 1e-6}), tmp_path / "out"  # networks that learn nothing
    done = ran(asked, out)
    winner = done.findings().winner
    assert winner is not None
    assert winner.method == name
    loaded = read(data, winner.seed, asked.load_options())
    judged = next(each for each in yardsticks(loaded, seed=winner.seed) if each.name == name)
    assert winner.val == judged.metrics["val"]["accuracy"]
    loaded.train, loaded.val = united(loaded.train, loaded.val), None
    again = relearned(loaded, name, judged.chosen, winner.seed)
    torch.testing.assert_close(Predictor(out).logits(loaded.test.x), again.outputs["test"])
    assert record(out)["labels"] == len(loaded.train)
    assert sorted(path.suffix for path in (out / "best").iterdir()) == [".json", ".safetensors"]
    (row,) = done.yardsticks
    assert learners.entry(row, 0) == winner


@pytest.mark.parametrize("name", ["k-NN", "majority"])
def test_every_yardstick_can_be_kept(name: str, data: str, tmp_path: Path) -> None:
    from fallow.training.yardsticks import keep

    loaded = read(data, 0, plan(data).load_options())
    found = next(each for each in yardsticks(loaded) if each.name == name)
    keep(found, loaded, tmp_path)
    torch.testing.assert_close(Predictor(tmp_path).logits(loaded.test.x), found.outputs["test"])


def test_what_validation_chose_is_settled() -> None:
    history = [{"strength": 0.01}]
    assert str(build("probe").settled(history)) == "probe:strength=0.01"
    assert str(build("lp-ft+mixup").settled(history)) == "lp-ft:strength=0.01+mixup"
    assert str(build("llf").settled(history)) == "llf"
