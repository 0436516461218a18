"""The public function."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import fallow
from fallow.base.errors import RequestError
from fallow.comparison import execute
from fallow.comparison.plan import Plan
from fallow.experiment import State
from tests.comparison.small import MODEL, arrays, plan, ran, results


def test_is_the_plan_with_its_arguments_in_sight(tmp_path: Path) -> None:
    data = arrays(tmp_path / "few.npz")
    seen: list[int] = []

    def watch(state: State) -> None:
        seen.append(len(state.outcomes))

    done = fallow.compare(
        data, "llf, ema", models=[MODEL], seeds=2, generations=2, epochs=1, batch_size=16, out=tmp_path / "out",
        workers=1, watch=watch,
    )  # fmt: skip
    ran(plan(data, "llf", "ema"), tmp_path / "other")
    assert results(tmp_path / "out") == results(tmp_path / "other")
    assert (seen[0], seen[-1]) == (0, 10)
    assert repr(done) == f"Comparison(few: 5 methods × 2 seeds, 10 of 10 runs done; {tmp_path}/out/report.html)"
    shown = done._repr_html_()
    assert shown.count("<tr>") == 1 + 5
    assert f"{done.findings().settings[0].rows[0].estimate.mean:.1%}".replace("%", " %") in shown
    assert done.findings().sentence.startswith("On few, ")


def test_every_field_of_a_plan_can_be_given() -> None:
    given = inspect.signature(fallow.compare).parameters
    for item in dataclasses.fields(Plan):
        if item.name == "recipes":  # of a stored plan
            continue
        assert item.name in given
        if item.name not in ("data", "seeds", "settings", "tasks"):
            assert given[item.name].default == item.default
    assert inspect.signature(execute).parameters.keys() - {"plan", "began", "told", "diagnosing"} <= given.keys()


def test_defaults_and_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Plan, Path]] = []

    def spy(whole: Plan, out: Path, **_: Any) -> None:
        asked.append((whole, out))

    monkeypatch.setattr("fallow.comparison.execute", spy)
    fallow.compare("digits", lr=0.5, settings={"clip": 1.0})
    fallow.compare(["digits", "synthetic"], quick=True)
    assert asked == [
        (Plan(data=("digits",), settings={"lr": 0.5, "clip": 1.0}), Path("comparisons/digits")),
        (Plan(data=("digits", "synthetic"), seeds=4, quick=True), Path("comparisons/digits+synthetic-quick")),
    ]
    with pytest.raises(RequestError, match="unknown method 'sael': did you mean 'seal'"):
        fallow.compare("digits", "sael")
