from __future__ import annotations

import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fallow.base.errors import RequestError, WorkError
from fallow.experiment.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "experiment.db"


def record(value: Any = None, reason: str | None = None) -> dict[str, Any]:
    return {"identity": "abc", "value": value, "reason": reason, "seconds": 1.5}


def test_keeps_values_and_records_in_the_order_of_their_end(path: Path) -> None:
    store = Store(path)
    assert store.read("plan") is None
    store.write("plan", {"seeds": 2, "data": ["ä"]})
    store.write("plan", {"seeds": 3, "data": ["ä"]})
    for name in ("z", "a", "m", "z"):
        store.add(name, record({"test": 0.1 + 0.2, "name": name}))
    store.add("n", record(math.nan))
    store.close()
    store = Store(path)
    assert store.read("plan") == {"seeds": 3, "data": ["ä"]}
    found = store.records()
    assert list(found) == ["a", "m", "z", "n"]
    assert found["z"] == record({"test": 0.1 + 0.2, "name": "z"})
    assert math.isnan(found["n"]["value"])


def test_failures_are_kept_until_they_are_tried_again(path: Path) -> None:
    store = Store(path)
    store.add("a", record(reason="no room"))
    assert store.records() == {"a": record(reason="no room")}
    store.forget_failures()
    assert store.records() == {}
    store.add("a", record(1))
    store.forget_failures()
    assert list(store.records()) == ["a"]


def test_a_process_killed_as_it_began_left_half_a_file(path: Path) -> None:
    path.touch()
    Store(path).close()
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE experiment (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    store = Store(path)
    store.add("a", record(1))
    assert len(store.records()) == 1


def test_what_is_not_ours(path: Path) -> None:
    path.write_text("no database at all, but long enough to look at" * 50)
    with pytest.raises(RequestError, match="is not an experiment of fallow"):
        Store(path)
    path.unlink()
    Store(path).write("format", 99)
    with pytest.raises(RequestError, match="has format 99, this fallow reads 1: choose another --out"):
        Store(path)


def test_a_file_that_cannot_be_written_is_said_in_a_line(path: Path) -> None:
    store = Store(path)
    store.database.execute("PRAGMA max_page_count = 5")  # a full disk
    with pytest.raises(WorkError, match=r"cannot write .*experiment\.db: database or disk is full"):
        store.write("plan", "x" * 100_000)
    assert store.read("format") == 1


def test_someone_may_look_at_it_meanwhile(path: Path) -> None:
    store, reader = Store(path), sqlite3.connect(path)
    reader.execute("SELECT * FROM runs").fetchall()
    store.add("a", record(0.9))
    assert reader.execute("SELECT name, value FROM runs").fetchall() == [("a", "0.9")]
