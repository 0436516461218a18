from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fallow.base.errors import RequestError, WorkError
from fallow.comparison.plan import Cell
from fallow.comparison.store import Store

CELL = Cell("data", "mlp", "llf", 3, "runs/x", 2, 20, 20.0, {})
DONE = {
    "last": {"test_accuracy": 0.9, "val_accuracy": 0.8}, "best": {"test_accuracy": 0.7, "val_accuracy": 0.85},
    "seconds": 1.5, "steps": 20, "passes": 20.0,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "comparison.db"


def test_keeps_values_and_outcomes(path: Path) -> None:
    store = Store(path)
    assert store.read("plan") is None
    store.write("plan", {"seeds": 2, "data": ["ä"]})
    store.write("plan", {"seeds": 3, "data": ["ä"]})
    store.add(CELL, DONE)
    store.close()
    store = Store(path)
    assert store.read("plan") == {"seeds": 3, "data": ["ä"]}
    last, best = store.outcomes("last")["runs/x"], store.outcomes("best")["runs/x"]
    assert (last.test_accuracy, last.val_accuracy) == (0.9, 0.8)
    assert (best.test_accuracy, best.val_accuracy) == (0.7, 0.85)
    assert (last.data, last.model, last.method, last.seed) == ("data", "mlp", "llf", 3)
    assert (last.reason, last.seconds, last.steps, last.passes) == (None, 1.5, 20, 20.0)


def test_failures_are_kept_until_they_are_tried_again(path: Path) -> None:
    store = Store(path)
    store.add(CELL, {"reason": "no room"})
    found = store.outcomes("last")["runs/x"]
    assert (found.reason, found.test_accuracy) == ("no room", None)
    store.forget_failures()
    assert store.outcomes("last") == {}
    store.add(CELL, DONE)
    store.forget_failures()
    assert list(store.outcomes("last")) == ["runs/x"]


def test_a_process_killed_as_it_began_left_half_a_file(path: Path) -> None:
    path.touch()
    Store(path).close()
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE comparison (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    store = Store(path)
    store.add(CELL, DONE)
    assert len(store.outcomes("last")) == 1


def test_what_is_not_ours(path: Path) -> None:
    path.write_text("no database at all, but long enough to look at" * 50)
    with pytest.raises(RequestError, match="is no comparison of fallow"):
        Store(path)
    path.unlink()
    Store(path).write("format", 99)
    with pytest.raises(RequestError, match="has format 99, this fallow reads 1: choose another --out"):
        Store(path)


def test_a_file_that_cannot_be_written_is_said_in_a_line(path: Path) -> None:
    store = Store(path)
    store.database.execute("PRAGMA max_page_count = 5")  # a full disk
    with pytest.raises(WorkError, match=r"cannot write .*comparison\.db: database or disk is full"):
        store.write("plan", "x" * 100_000)
    assert store.read("format") == 1


def test_someone_may_look_at_it_meanwhile(path: Path) -> None:
    store, reader = Store(path), sqlite3.connect(path)
    reader.execute("SELECT * FROM runs").fetchall()
    store.add(CELL, DONE)
    assert reader.execute("SELECT method, test_last FROM runs").fetchall() == [("llf", 0.9)]
