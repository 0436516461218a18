"""A comparison's column on transfer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fallow
from fallow.training import yardsticks
from tests.cli.conftest import Run, run

__all__ = ["run"]  # the fixture

WORDS = (
    "compare", "synthetic:n_test=16", "--train", 32, "--models", "mlp:hidden=8", "--methods", "ema", "--seeds", 2,
    "--epochs", 1, "--generations", 2, "--workers", 1, "--tune", 0, "--out", "out",
)  # fmt: skip


def test_every_method_has_an_accuracy_and_a_verdict_on_other_data(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardsticks, "TREES", 2)
    draw = np.random.default_rng(0)
    y = np.arange(100) % 4
    np.savez("other.npz", x=(draw.normal(size=(4, 128))[y] + draw.normal(size=(100, 128))).astype("float32"), y=y)
    out = run("--quiet", *WORDS, "--transfer-to", "other.npz", "--json").done()
    (found,) = json.loads(out)["transfer"].values()
    assert found["reference"] == "long"
    alone = fallow.transfer("out", "other.npz", workers=1)
    means = {entry.row: entry.estimate.mean for entry in alone.findings.entries}
    assert {row["row"]: row["mean"] for row in found["results"]} == means
    assert {row["row"] for row in found["results"]} >= {"normal", "long", "ema"}
    page = Path("out/report.html").read_text("utf-8")
    assert "Transfer to other" in page
    text = run("--quiet", *WORDS, "--transfer-to", "other.npz").done()
    assert "probe of other" in text
    assert f"{100 * means['ema']:.1f} % (" in text


def test_what_cannot_be_probed_is_refused_before_anything_is_trained(run: Run) -> None:
    line = run(*WORDS, "--transfer-to", "nowhere.npz").refused()
    assert "nowhere.npz" in line
    assert not Path("out").exists()
