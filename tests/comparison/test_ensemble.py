from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss

from fallow.comparison.run import describe
from fallow.core.record import RunFolder
from tests.comparison.small import arrays, plan, ran


def test_the_mean_of_the_probabilities(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = (draw.normal(size=(3, 6))[y] + draw.normal(size=(90, 6))).astype(np.float32)
    np.savez(tmp_path / "own.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    done = ran(plan(str(tmp_path / "own.npz"), "ema"), tmp_path / "out")
    setting = done.findings().settings[0]
    found = {each.method: each for each in setting.ensembles}
    assert set(found) == {"long", setting.rows[0].method}
    outcomes = [o for o in done.entries.values() if o.method == "long"]
    probabilities = []
    for o in outcomes:
        kept = RunFolder(done.folder / o.folder).outputs()
        output = np.exp(kept["test_last"].numpy().astype(np.float64))
        probabilities.append(output / output.sum(1, keepdims=True))
    right = np.mean(probabilities, 0).argmax(1) == y[60:]
    assert found["long"].test == pytest.approx(right.mean())
    assert found["long"].networks == 2
    together = np.mean(probabilities, 0)
    assert found["long"].calibration.log_loss == pytest.approx(log_loss(y[60:], together))
    assert "2 networks of long" in (tmp_path / "out" / "report.html").read_text("utf-8")
    with open(tmp_path / "out" / "summary.csv", newline="") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert float(lines["2 networks of long"]["mean"]) == found["long"].test
    assert lines["2 networks of long"]["verdict"] == "ensemble"
    mean = np.mean([log_loss(y[60:], each) for each in probabilities])
    assert (
        setting.row("long").calibration.log_loss
        == pytest.approx(mean)
        == pytest.approx(float(lines["long"]["log_loss"]))
    )
    fewer = ran(replace(plan(str(tmp_path / "own.npz"), "ema"), train=30), tmp_path / "fewer")
    assert fewer.findings().settings[0].ensembles == []  # each seed has other labels
    told = describe(done, done.findings())
    assert {each["method"]: each["calibration"]["ece"] for each in told["ensembles"]}["long"] >= 0


def test_seeds_with_test_sets_of_their_own_make_no_ensemble(tmp_path: Path) -> None:
    done = ran(plan(arrays(tmp_path / "few.npz")), tmp_path / "out")
    assert done.findings().settings[0].ensembles == []
