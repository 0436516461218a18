"""Comparisons whose answers are numbers, or several labels: what they judge by, and what their page shows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, precision_score, recall_score, roc_auc_score

from fallow import Predictor
from fallow.comparison.answered import answered
from fallow.data.targets import Labels, Numbers
from tests.comparison.small import plan, ran

ROWS = 80


def table(path: Path) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 2))
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["dose", "age", "price"])
        rows.writerows(np.c_[x, 200 + 30 * x[:, 0] + draw.normal(size=ROWS)].round(4).tolist())
    return path


def test_a_table_of_numbers(tmp_path: Path) -> None:
    """Lower is better in the ranking, on the page and in the choice of the winner, which takes the raw file."""
    data = table(tmp_path / "houses.csv")
    asked = plan(str(data), "normal", "long", "dropout:rate=0.95", target="price", settings={"epochs": 8, "lr": 0.05})
    found = ran(asked, tmp_path / "out")
    (setting,) = found.findings().settings
    assert setting.metric.name == "rmse"
    by_name = {row.method: row for row in setting.rows}
    assert by_name["dropout:rate=0.95"].estimate.mean > by_name["long"].estimate.mean + 5
    assert by_name["dropout:rate=0.95"].to_control.difference.mean > 5  # in the metric's own unit and direction
    assert setting.rows[-1].method == "dropout:rate=0.95"  # the worst on validation
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    for words in ("price: predicted against true", "price: residuals", "R²", "the largest errors", "new.csv"):
        assert words in page
    assert "What it confuses" not in page
    assert (tmp_path / "out" / "figures" / "predicted.svg").exists()
    said = [answer.label for answer in Predictor(tmp_path / "out")(data)]
    assert np.corrcoef(said, np.loadtxt(data, delimiter=",", skiprows=1)[:, 2])[0, 1] > 0.8


def test_several_numbers_and_labels_are_looked_at_one_by_one() -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.randn(40, 2, generator=draw) * 5 + 20
    target = Numbers(["height", "weight"]).fitted(y)
    output = (y - torch.tensor(target.mean)) / torch.tensor(target.std)
    output[:, 1] += 1
    body, drawn = answered(target, output, y)
    assert list(drawn) == ["predicted-1", "residuals-1", "predicted-2", "residuals-2"]
    assert f"weight, 40 test examples: RMSE {target.std[1]:.4g}".rstrip("0") in "".join(body)
    assert "too high" in "".join(body)


def test_a_row_for_every_label() -> None:
    draw = torch.Generator().manual_seed(0)
    y = (torch.rand(60, 3, generator=draw) < 0.4).float()
    y[:, 2] = 0  # nobody has it
    output = torch.randn(60, 3, generator=draw) + y
    body, drawn = answered(Labels(["a", "b", "c"]), output, y)
    assert drawn == {}
    page = "".join(body)
    truth, p = y.numpy(), output.double().sigmoid().numpy()
    for label in (0, 1):
        given = p[:, label] >= 0.5
        for value in (
            roc_auc_score(truth[:, label], p[:, label]),
            average_precision_score(truth[:, label], p[:, label]),
            *(score(truth[:, label], given) for score in (f1_score, precision_score, recall_score)),
        ):
            assert f">{100 * value:.1f}<" in page
    assert page.count("–") == 4  # of a label without examples only its precision is known


def test_labels_have_a_page(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 5)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=(x[:, :2] > 0).astype(np.uint8), label_names=np.array(["oedema", "fracture"]))
    found = ran(plan(str(tmp_path / "d.npz"), "long"), tmp_path / "out")
    assert found.metric.name == "macro-auroc"
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Label by label" in page
    assert "oedema" in page
    assert "What it confuses" not in page
    with pytest.raises(Exception, match="accuracy"):
        ran(plan(str(tmp_path / "d.npz"), "long", settings={"metric": "accuracy"}), tmp_path / "other")


def test_a_test_part_that_has_no_number_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    """The AUROC of one class; it was an error of the statistics once everything had run."""
    x, y = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32), np.arange(60) % 2
    np.savez(tmp_path / "one.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=np.zeros(20, int))
    done = ran(plan(str(tmp_path / "one.npz"), "ema", settings={"metric": "auroc"}), tmp_path / "out")
    rows = done.findings().settings[0].rows
    assert {row.method for row in rows} == {"normal", "long", "ema"}
    assert {reason for row in rows for reason in row.failed.values()} == {"its test AUROC is nan"}
    assert all(row.estimate is None for row in rows)
    assert "its test AUROC is nan" in (tmp_path / "out" / "report.html").read_text()
