"""The tables of policies: methods of a seed meet the same tasks, and a table that was stopped is gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fallow.reproduce import l2f_control
from fallow.reproduce.l2f_control import CONTROL, METHODS, Practice
from fallow.reproduce.runs import constants, reproduce


def test_navigation_is_judged_in_four_places_with_its_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(l2f_control.PLANS, "l2f-navigation", Practice("navigation:horizon=5", 2, 1, 2))
    monkeypatch.setattr(l2f_control, "TEST_TASKS", 3)
    assert constants(l2f_control)["PLANS"]["l2f-navigation"] == ["navigation:horizon=5", 2, 1, 2]
    table = reproduce("l2f-navigation", tmp_path / "out", seeds=2, workers=1)
    rows, columns = ({getattr(c, key) for c in table.cells} for key in ("row", "column"))
    assert rows == set(METHODS)
    assert {"as in training, 0", "far goals and starts, 4"} <= columns
    assert len(columns) == 12
    starts = [c.ours for c in table.cells if c.column == "as in training, 0"]
    assert len(set(starts)) == 3  # one iteration moved each of them otherwise
    assert sum(f"L2F − {CONTROL}" in test["claim"] for test in table.tests) == 4
    assert (tmp_path / "out" / "runs" / "MAML-0" / "run" / "checkpoint").exists()
