"""What would more labels bring?"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fallow.base.errors import RequestError
from fallow.comparison.labels import SHARES, LabelCurves, learned, runners
from fallow.comparison.policy import WORK, races
from fallow.comparison.race import Runner
from fallow.comparison.run import describe
from fallow.comparison.work import read
from fallow.evaluate.metrics import CLASSES, NUMBERS
from tests.comparison.small import arrays, plan, ran

ACCURACY = CLASSES["accuracy"]


def test_fewer_are_among_more_and_in_proportion(tmp_path: Path) -> None:
    source = arrays(tmp_path / "few.npz", n=200, classes=4)
    how = plan(source).load_options()
    whole = read(source, 3, how)
    parts = [read(source, 3, how | {"keep": n}) for n in (32, 64, 96)]
    assert [len(part.train) for part in parts] == [32, 64, 96]
    inside = [set(map(tuple, part.train.x.tolist())) for part in (*parts, whole)]
    assert all(one < more for one, more in itertools.pairwise(inside))
    for part in parts:
        assert part.train.y.bincount().tolist() == [len(part.train) // 4] * 4
        assert part.test.x.equal(whole.test.x)
        assert part.val.x.equal(whole.val.x)


def test_the_best_control_and_the_best_method_on_validation() -> None:
    means = {"normal": 0.9, "long": 0.7, "restart": 0.8, "ema": 0.6, "sam": 0.5}
    entries = [Runner("d", "m", name, s, "x", None, 0.0, mean) for name, mean in means.items() for s in range(3)]
    assert runners(entries, ACCURACY) == ["restart", "ema"]
    assert runners(entries, NUMBERS["rmse"]) == ["long", "sam"]
    once = [replace(o, val=None, reason="no") if (o.method, o.seed) == ("restart", 0) else o for o in entries]
    assert runners(once, ACCURACY) == ["restart", "ema"]  # the control of all other tables, too
    never = [replace(o, val=None, reason="no") if o.method == "restart" else o for o in entries]
    assert runners(never, ACCURACY) == ["long", "ema"]
    easy = [Runner("d", "m", name, s, "x", None, 0.0, 0.9) for name in ("long", "sam") for s in (3, 4)]
    assert runners([*entries, *easy], ACCURACY) == ["restart", "ema"]  # whoever ran on had the easy seeds


def found(metric_of: dict[str, float], examples: int = 1000) -> LabelCurves:
    """Errors that fall with the root of the labels, from this much of each runner at all of them."""
    sizes = [*(round(share * examples) for share in SHARES), examples]
    parts = {
        (name, size, seed): 1 - error * (size / examples) ** -0.5 + 1e-4 * seed * (size % 7 - 3)
        for name, error in metric_of.items()
        for size in sizes
        for seed in range(4)
    }
    made = learned(list(metric_of), parts, examples, ACCURACY)
    assert made is not None
    return made


def test_a_method_is_worth_the_labels_that_the_control_would_need() -> None:
    made = found({"long": 0.2, "ema": 0.2 / 1.5**0.5})
    assert made.control.twice.mean == pytest.approx(1 - 0.2 / 2**0.5, abs=0.005)
    assert made.worth == pytest.approx(1500, rel=0.06)
    assert made.sentence([]).startswith("With twice the labels (2,000), long would go from 80.0 % to about 85.")
    assert re.search(r"ema is worth about \d+ labels to long\.", made.sentence(["ema"]))
    assert re.search(r"ema is worth about \d+ labels to long, which may be chance\.", made.sentence([]))
    drawing = made.drawing("d")
    assert drawing is not None
    assert "ema from " in drawing.says
    assert drawing.says.count("measured") == 1


def test_what_is_beyond_twice_the_labels_is_not_said() -> None:
    made = found({"long": 0.2, "ema": 0.1})
    assert made.worth is None
    assert "ema is worth more than doubling the labels, which may be chance" in made.sentence([])
    assert "ema saves no labels" in found({"long": 0.2, "ema": 0.25}).sentence([])


def test_without_enough_runs_there_is_no_curve() -> None:
    assert learned(["long", "ema"], {("long", 10, 0): 0.5}, 10, ACCURACY) is None


def test_where_no_error_is_left_there_is_no_curve() -> None:
    """Of the control; of the best method, the control's is told alone."""
    sizes = [*(round(share * 40) for share in SHARES), 40]
    scores = {"long": (0.8, 0.9, 1.0, 0.95), "ema": (0.8, 0.9, 1.0, 1.0)}
    parts = {
        (name, size, seed): score
        for name, values in scores.items()
        for size, score in zip(sizes, values, strict=True)
        for seed in range(2)
    }
    assert learned(["ema", "long"], parts, 40, ACCURACY) is None
    made = learned(["long", "ema"], parts, 40, ACCURACY)
    assert made is not None
    assert made.best is None
    assert 0.9 < made.control.twice.mean <= 1


def test_a_comparison_asks_what_more_labels_would_bring(tmp_path: Path) -> None:
    source = arrays(tmp_path / "few.npz", n=100)
    before = ran(plan(source), tmp_path / "out")  # normal and long: there is nothing to judge
    done = ran(plan(source, labels=True), tmp_path / "out")
    beside = [run for run in done.state.runs.values() if run.work == WORK and not races(run)]
    assert {(run.arguments["method"], run.arguments["load"]["keep"]) for run in beside} == {
        ("long", 16), ("long", 32), ("long", 48)
    }  # fmt: skip
    assert {run.arguments["seed"] for run in beside} == {0, 1}
    assert [run.arguments["settings"]["epochs"] for run in beside if run.arguments["load"]["keep"] == 16] == [4, 4]
    assert [row.scores for row in done.findings().settings[0].rows] == [
        row.scores for row in before.findings().settings[0].rows
    ]
    told = describe(done, done.findings())["labels"][0]
    assert told["control"]["labels"] == [16, 32, 48, 64]
    assert np.shape(told["control"]["scores"]) == (4, 2)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "With twice the labels (128), long would go from" in page
    assert (tmp_path / "out" / "figures" / "labels.svg").exists()
    with pytest.raises(RequestError, match="2 seeds or more"):
        ran(plan(source, labels=True, seeds=1), tmp_path / "other")
