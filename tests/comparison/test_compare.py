"""The public function."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import fallow
from fallow.base.errors import RequestError
from fallow.comparison import execute
from fallow.comparison.memory import keep
from fallow.comparison.plan import Plan
from fallow.data import load
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


def test_arrays_in_memory_are_kept_for_the_runs_and_for_another_day(tmp_path: Path) -> None:
    small: dict[str, Any] = {
        "models": [MODEL], "seeds": 2, "generations": 2, "epochs": 1, "batch_size": 16, "workers": 1,
    }  # fmt: skip
    file = arrays(tmp_path / "arrays.npz")
    with np.load(file) as held:
        x, y = held["x"], held["y"]
    out = tmp_path / "out"
    done = fallow.compare((x, y), "ema", **small, out=out)
    other = fallow.compare(file, "ema", **small, out=tmp_path / "other").folder
    assert [row | {"folder": ""} for row in results(out)] == [row | {"folder": ""} for row in results(other)]
    kept = (out / "arrays.npz").stat().st_mtime_ns
    again = fallow.compare((torch.from_numpy(x), y.tolist()), "ema", **small, out=out)
    assert len(again.runs) == len(done.runs)
    assert (out / "arrays.npz").stat().st_mtime_ns == kept
    with pytest.raises(RequestError, match="holds a comparison of other data: choose another out"):
        fallow.compare((x, 1 - y), "ema", **small, out=out)


def test_arrays_are_kept_as_they_are_read(tmp_path: Path) -> None:
    asked, draw = Plan(data=("arrays",)), np.random.default_rng(0)
    y = np.array(["b", "a"] * 10, object)
    ambiguous = torch.from_numpy(draw.integers(0, 256, (20, 3, 8, 4), np.uint8))
    for x in (ambiguous, ambiguous.numpy(), draw.normal(size=(20, 5)) < 0, np.array(["yes", "no"] * 10)):
        kept, given = load(keep((x, y), asked, tmp_path)), load((x, y))
        assert (kept.shape, kept.classes, kept.content()) == (given.shape, given.classes, given.content())
    parts = (ambiguous, y), (ambiguous[:5], y[:5])
    assert load(keep(parts, asked, tmp_path)).content() == load(parts).content()


def test_what_cannot_be_kept_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    x, y = torch.zeros(20, 3), torch.arange(20) % 2
    for data, says in (
        (load((x, y)), "split already"),
        (TensorDataset(x, y), "is a TensorDataset that .* numpy.savez"),
        ({"x": x, "y": y}, "is a dict that"),
        ((x, y[:5]), "20 examples but 5 labels"),
    ):
        with pytest.raises(RequestError, match=says):
            fallow.compare(data, "ema", out=tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="by name"):
        fallow.compare((x, y), "maml", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
