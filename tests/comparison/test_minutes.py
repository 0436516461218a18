"""A race within a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.comparison.minutes import paces, within
from fallow.comparison.plan import Plan
from fallow.data import load
from fallow.evaluate.race import looks_until, visible
from tests.comparison.small import MODEL, arrays, plan, ran


def planned(tmp_path: Path, minutes: float, **changes: object) -> Plan:
    source = arrays(tmp_path / "few.npz")
    asked = plan(source, "ema", "dropout", **{"seeds": 20, "minutes": minutes} | changes)
    return within(asked, {source: load(source)}, 2, {(source, MODEL): 0.5})


@pytest.mark.parametrize(("minutes", "seeds"), [(1.0, 11), (0.4, 4), (0.01, 2), (9.0, 20)])
def test_as_many_seeds_as_the_time_allows_if_no_method_is_dropped(tmp_path: Path, minutes: float, seeds: int) -> None:
    """38 training examples are 3 batches of 16: 6 passes in 2 generations for three runners, and 3 for normal."""
    found = planned(tmp_path, minutes)
    assert found.seeds == seeds
    assert found.looks == looks_until(seeds)


def test_folds_stay_whole_and_tuning_takes_its_time(tmp_path: Path) -> None:
    assert planned(tmp_path, 1.0, folds=5).looks == (5, 10)
    assert planned(tmp_path, 0.1, folds=5).looks == (5,)
    assert planned(tmp_path, 1.0, tune=8).seeds == 5  # 8 quarters, and 2 finalists on 2 seeds: as long as 6 seeds


def test_a_planned_race_sees_more_than_one_that_is_cut_off() -> None:
    assert visible(8, looks_until(8), level=0.005) < 0.8 * visible(8, looks_until(20), level=0.005)


def test_what_was_planned_is_kept(tmp_path: Path) -> None:
    source = arrays(tmp_path / "few.npz")
    asked = plan(source, seeds=20, minutes=1e-6)
    done = ran(asked, tmp_path / "out")
    assert (done.plan.seeds, done.plan.looks) == (2, (2,))
    again = ran(asked, tmp_path / "out")
    assert (again.plan.seeds, again.plan.exploratory) == (2, ())
    assert Plan.of(**Plan.read(tmp_path / "out" / "plan.toml", [MODEL])) == again.plan


def test_the_pace_is_that_of_a_step(tmp_path: Path) -> None:
    source = arrays(tmp_path / "few.npz")
    (pace,) = paces(plan(source, "ema"), {source: load(source)}).values()
    assert 1e-6 < pace < 10
