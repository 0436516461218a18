"""The outcomes of an experiment in one SQLite file, with one writer: the process that runs it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, WorkError, first_line

FORMAT = 1
SCHEMA = f"""
BEGIN;
CREATE TABLE IF NOT EXISTS experiment (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    name TEXT PRIMARY KEY, identity TEXT NOT NULL, value TEXT NOT NULL, reason TEXT, seconds REAL NOT NULL
);
INSERT OR IGNORE INTO experiment VALUES ('format', '{FORMAT}');
COMMIT;
"""

Record = Mapping[str, Any]  # of a run that ended: identity, value, reason, seconds


class Store:
    """``experiment.db``: values of the experiment itself, and one row for every run that ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._sound():
            self.database = sqlite3.connect(path, timeout=60)  # someone may be looking at it
            self.database.executescript(SCHEMA)  # a process may have been killed as it began
        if (found := self.read("format")) != FORMAT:
            raise RequestError(f"{path} has format {found}, this fallow reads {FORMAT}: choose another --out")

    def read(self, key: str) -> Any:
        """A value of the experiment itself, or None."""
        with self._sound():
            row = self.database.execute("SELECT value FROM experiment WHERE key = ?", (key,)).fetchone()
            return json.loads(row[0]) if row else None

    def write(self, key: str, value: Any) -> None:
        """Keep a value of the experiment itself."""
        self._change("INSERT OR REPLACE INTO experiment VALUES (?, ?)", key, json.dumps(value))

    def add(self, name: str, record: Record) -> None:
        """Keep how a run ended."""
        row = (name, record["identity"], json.dumps(record["value"]), record["reason"], record["seconds"])
        self._change("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", *row)

    def records(self) -> dict[str, Record]:
        """How the runs ended, by name, in that order."""
        with self._sound():
            rows = self.database.execute("SELECT name, identity, value, reason, seconds FROM runs ORDER BY rowid")
            return {
                name: {"identity": own, "value": json.loads(value), "reason": reason, "seconds": float(seconds)}
                for name, own, value, reason, seconds in rows
            }

    def forget_failures(self) -> None:
        """Failed runs are tried again: the disk may have room now, the data may be repaired."""
        self._change("DELETE FROM runs WHERE reason IS NOT NULL")

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _change(self, statement: str, *row: Any) -> None:
        try:
            with self.database:
                self.database.execute(statement, row)
        except sqlite3.OperationalError as error:  # a full disk, a file that may only be read
            raise WorkError(f"cannot write {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from error

    def damaged(self, why: object) -> RequestError:
        """What to say of a file that does not hold what it should: the outcomes are in the runs' folders, too."""
        return RequestError(
            f"{self.path} is not an experiment of fallow, or is damaged ({first_line(Exception(why))}): "
            "delete it, and the same command goes on with what is in runs/"
        )

    @contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as error:  # a page, or a value in it
            raise self.damaged(error) from error
