"""The results of a comparison in one SQLite file, with one writer: the process that runs it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, WorkError
from fallow.comparison.findings import Outcome
from fallow.comparison.plan import Cell

FORMAT = 1
SCHEMA = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS comparison (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    folder TEXT PRIMARY KEY, data TEXT NOT NULL, model TEXT NOT NULL, method TEXT NOT NULL, seed INTEGER NOT NULL,
    reason TEXT, test_last REAL, test_best REAL, val_last REAL, val_best REAL, seconds REAL, steps INTEGER, passes REAL
);
INSERT OR IGNORE INTO comparison VALUES ('format', '{FORMAT}');
COMMIT;
"""
COLUMNS = (
    "folder", "data", "model", "method", "seed", "reason",
    "test_last", "test_best", "val_last", "val_best", "seconds", "steps", "passes",
)  # fmt: skip


class Store:
    """``comparison.db``: the plan, and one row for every run that is done or failed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.database = sqlite3.connect(path, timeout=60)  # someone may be looking at it
            self.database.executescript(SCHEMA)  # a process may have been killed as it began
            found = self.read("format")
        except sqlite3.DatabaseError as error:
            raise RequestError(f"{path} is no comparison of fallow ({error}): choose another --out") from error
        if found != FORMAT:
            raise RequestError(f"{path} has format {found}, this fallow reads {FORMAT}: choose another --out")

    def read(self, key: str) -> Any:
        """A value of the comparison itself, or None."""
        row = self.database.execute("SELECT value FROM comparison WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def write(self, key: str, value: Any) -> None:
        """Keep a value of the comparison itself."""
        self._change("INSERT OR REPLACE INTO comparison VALUES (?, ?)", key, json.dumps(value))

    def add(self, cell: Cell, record: dict[str, Any]) -> None:
        """Keep what a run gave: the record that its worker left in the run's folder."""
        last, best = record.get("last") or {}, record.get("best") or {}
        values = {
            "folder": cell.folder, "data": cell.data, "model": cell.model, "method": cell.method, "seed": cell.seed,
            "reason": record.get("reason"),
            "test_last": last.get("test_accuracy"), "test_best": best.get("test_accuracy"),
            "val_last": last.get("val_accuracy"), "val_best": best.get("val_accuracy"),
            "seconds": record.get("seconds", 0.0), "steps": record.get("steps", 0), "passes": record.get("passes", 0.0),
        }  # fmt: skip
        marks = ", ".join("?" * len(COLUMNS))
        self._change(
            f"INSERT OR REPLACE INTO runs ({', '.join(COLUMNS)}) VALUES ({marks})", *(values[c] for c in COLUMNS)
        )

    def outcomes(self, score: str) -> dict[str, Outcome]:
        """Every run that is done or failed, by folder; ``score`` is "last" or "best"."""
        rows = self.database.execute(f"SELECT {', '.join(COLUMNS)} FROM runs ORDER BY folder").fetchall()
        found = {}
        for values in rows:
            row = dict(zip(COLUMNS, values, strict=True))
            found[row["folder"]] = Outcome(
                row["data"], row["model"], row["method"], row["seed"], row["folder"], row["reason"],
                row[f"test_{score}"], row[f"val_{score}"], row["seconds"], row["steps"], row["passes"],
            )  # fmt: skip
        return found

    def forget_failures(self) -> None:
        """Failed runs are tried again: the disk may have room now, the data may be repaired."""
        self._change("DELETE FROM runs WHERE reason IS NOT NULL")

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _change(self, statement: str, *values: Any) -> None:
        try:
            with self.database:
                self.database.execute(statement, values)
        except sqlite3.OperationalError as error:  # a full disk, a file that may only be read
            raise WorkError(f"cannot write {self.path}: {error}") from error
