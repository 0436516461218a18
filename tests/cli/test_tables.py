"""Tables, labels and masks that are wrong: one line, exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.data.test_tables import ROWS, columns, written


@pytest.mark.parametrize(
    ("change", "words", "line"),
    [
        ({}, ["--target", "prise"], "to predict 'prise': did you mean 'price'?"),
        ({"price": ["7"] * ROWS}, ["--target", "price"], "is '7' in all rows: there is nothing to predict"),
        ({"price": ["NA"] * ROWS}, ["--target", "price"], "is empty: name the one to predict (--target)"),
        ({"dose": ["1.5"] * 30 + ["much"] + ["2"] * 29}, ["--target", "price"], "row 31 of 'dose' holds 'much'"),
        (
            {"price": [*range(30), "?!", *range(29)]},
            ["--target", "price"],
            "row 31 of 'price', which is to be predicted",
        ),
        ({"price": ["a"] * 59 + ["b"]}, ["--target", "price"], "class 'b' has 1 of the 3 examples"),
        ({}, ["--target", "price", "--groups", "wart"], "for groups 'wart': did you mean 'ward'?"),
        ({}, ["--target", "price", "--metric", "accuracy"], "unknown metric of numbers 'accuracy'"),
        ({}, ["--target", "price", "--method", "fixmatch"], "fixmatch gives unlabelled images the likeliest class"),
        ({}, ["--target", "price", "--method", "cutmix"], "cutmix cuts boxes from images or signals"),
    ],
)
def test_tables(change: dict, words: list[str], line: str, run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", **columns() | change)
    assert line in run("train", path, *words).refused()


def test_the_column_without_a_name_is_dropped(run: Run, tmp_path: Path) -> None:
    held = {"": np.random.default_rng(1).integers(0, 9, ROWS)} | columns()
    path, out = written(tmp_path / "t.csv", **held), tmp_path / "run"
    few = ["--model", "mlp:hidden=4", "--epochs", 1, "--generations", 1, "--out", out]
    run("train", path, "--target", "price", *few, "--quiet", "--drop", "").done()
    table = json.loads((out / "run.json").read_text())["table"]
    assert [column["name"] for column in table] == ["age", "ward", "dose"]


def test_prices_are_written_out(run: Run, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    path = written(tmp_path / "t.csv", size=draw.normal(size=ROWS), price=draw.integers(10**4, 10**5, ROWS) + 0.5)
    few = ["--model", "mlp:hidden=4", "--epochs", 1, "--generations", 1, "--out", tmp_path / "run"]
    said = run("train", path, "--target", "price", *few).done()
    assert "rmse" in said.lower()
    assert "e+0" not in said


@pytest.mark.parametrize(
    ("y", "target", "line"),
    [
        (np.full((12, 3), 2), "labels", "holds 2 in row 0, column 0: give each label as 0 or 1"),
        (np.zeros((12, 3)), "labels", "has no label in any of the 12 examples"),
        (np.zeros((12, 6, 6)), "dense", "y of train has shape (12, 6, 6): give masks of 8×8, as the examples are"),
        (np.array(["a"] * 12), "numbers", "give numbers, N or N×K"),
    ],
)
def test_answers(y: np.ndarray, target: str, line: str, run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((12, 8, 8, 1), np.float32), y=y)
    assert line in run("train", tmp_path / "d.npz", "--target", target).refused()


def test_another_header_when_predicting(run: Run, tmp_path: Path) -> None:
    path, out = written(tmp_path / "t.csv", **columns()), tmp_path / "run"
    few = ["--model", "mlp:hidden=4", "--epochs", 1, "--generations", 1, "--out", out]
    run("train", path, "--target", "price", *few, "--quiet").done()
    said = run("predict", out, written(tmp_path / "new.csv", age=["1"], wart=["north"], dose=["2"])).refused()
    assert said.endswith("new.csv lacks the column 'ward', which the model was trained with")
    said = run("predict", out, written(tmp_path / "new.csv", age=["1"], ward=["north"], dose=["lots"])).refused()
    assert "row 1 of 'dose' holds 'lots', where a number belongs" in said
