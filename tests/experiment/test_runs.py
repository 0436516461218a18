from __future__ import annotations

import pytest

from fallow.base.errors import WorkError
from fallow.experiment import Outcome, Run, grid, runs, values
from fallow.experiment.runs import identity


def test_names_are_names_of_folders() -> None:
    for name in ("a", "digits-mlp-lw+fam=0.1-3f-seed0", "decay-1.0e-04", ".x", "x" * 240):
        assert Run(name, "tests.experiment.errands:double").name == name
    for name in ("", "a/b", "..", ".", "a b", "x" * 241, "a\n"):
        with pytest.raises(ValueError, match="cannot name a run"):
            Run(name, "tests.experiment.errands:double")


def test_work_is_fallows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "HOME", "fallow.")
    assert Run("a", "fallow.training.fit:fit")
    for work in ("os:system", "fallow", "fallow.training", "fallowed.x:y", "tests.experiment.errands:double"):
        with pytest.raises(ValueError, match=r"must be a function of fallow, as fallow\.module:function"):
            Run("a", work)


def test_arguments_are_as_they_come_back_from_a_file() -> None:
    assert Run("a", "tests.experiment.e:f", {"pair": (1, 2)}).arguments == {"pair": [1, 2]}
    with pytest.raises(TypeError, match="not JSON serializable"):
        Run("a", "tests.experiment.e:f", {"x": object()})


def test_identity_is_work_arguments_and_what_came_before() -> None:
    work = "tests.experiment.e:f"
    a, other = Run("a", work, {"x": 1, "y": 2}), Run("a", work, {"x": 2})
    b = Run("b", work, after=("a",))
    assert identity(a, {}) == identity(Run("c", work, {"y": 2, "x": 1}, cost=9, paths={"root": "/"}), {})
    assert len({identity(run, {}) for run in (a, other, Run("a", work + "f", {"x": 1, "y": 2}))}) == 3
    assert identity(b, {"a": a}) != identity(b, {"a": other})
    assert identity(b, {"a": a}) != identity(Run("b", work), {})


def test_values_and_failures() -> None:
    one, two = Run("one", "tests.experiment.e:f"), Run("two", "tests.experiment.e:f")
    assert grid(iter([one, two]))({}) == (one, two)
    assert values({"one": Outcome(one, 3), "two": Outcome(two, None)}) == {"one": 3, "two": None}
    with pytest.raises(WorkError, match="1 of 2 runs failed, first two: no room"):
        values({"one": Outcome(one, 3), "two": Outcome(two, reason="no room")})
