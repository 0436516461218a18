"""A table as a small CSV: what it is in lines that begin with #, then a line for every cell.

Everything that is printed of a table comes back from it, so that pages can be made from files.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError
from fallow.reproduce.table import Cell, Table

ABOUT = ("name", "paper", "unit", "command", "measured", "seconds")
COLUMNS = tuple(field.name for field in fields(Cell))
AGREES = {True: "yes", False: "no", None: ""}


def text(table: Table) -> str:
    """The table as the text of a file."""
    out = io.StringIO()
    for key in ABOUT:
        out.write(f"# {key}: {getattr(table, key)}\n")
    out.writelines(f"# remark: {' '.join(remark.split())}\n" for remark in table.remarks)
    out.writelines(f"# test: {json.dumps(test, ensure_ascii=False)}\n" for test in table.tests)
    out.writelines(f"# failed: {json.dumps(each, ensure_ascii=False)}\n" for each in table.failed.items())
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for c in table.cells:
        lines.writerow(
            [c.row, c.column, "" if c.paper is None else c.paper, c.ours, c.spread, c.seeds, AGREES[c.agrees]]
        )
    return out.getvalue()


def parse(lines: Iterable[str]) -> Table:
    """The table of a file's lines.

    >>> parse(text(Table("t", "A, table 1", [Cell("a", "b", None, 1.5, 0.5, 2, None)])).splitlines()).cells
    [Cell(row='a', column='b', paper=None, ours=1.5, spread=0.5, seeds=2, agrees=None)]
    """
    about: dict[str, Any] = {"remarks": [], "tests": [], "failed": {}}
    rows = []
    for line in lines:
        if not line.startswith("# "):
            rows.append(line)
            continue
        key, _, value = line[2:].rstrip("\n").partition(": ")
        if key == "remark":
            about["remarks"].append(value)
        elif key == "test":
            about["tests"].append(json.loads(value))
        elif key == "failed":
            about["failed"] |= dict([json.loads(value)])
        else:
            about[key.rstrip(":")] = float(value) if key == "seconds" else value
    agrees = {word: agreed for agreed, word in AGREES.items()}
    cells = [
        Cell(
            row["row"], row["column"], float(row["paper"]) if row["paper"] else None, float(row["ours"]),
            float(row["spread"]), int(row["seeds"]), agrees[row["agrees"]],
        )
        for row in csv.DictReader(rows)
    ]  # fmt: skip
    return Table(cells=cells, **about)


def read(path: Path) -> Table:
    """The table of a file."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f"{path} is not a table of fallow reproduce ({error}): give the .csv that it wrote"
        ) from error


def pooled(ours: Table, theirs: Table) -> Table:
    """A table of the seeds of both, as one command would have had them: n, mean and deviation are all it takes.

    With n = a + b seeds, means x, y and deviations s, t: (n − 1)·deviation² = (a − 1)s² + (b − 1)t² + (x − y)²·ab/n.
    Whether a cell agrees with the paper is said where both say the same. Tests, and remarks with numbers of some seeds,
    cannot be pooled so, and are refused.

    >>> one = Table("t", "A, table 1", [Cell("a", "b", None, 1.0, 0.0, 1, None)])
    >>> two = Table("t", "A, table 1", [Cell("a", "b", None, 3.0, 0.0, 1, None)])
    >>> pooled(one, two).cells  # of 1 and 3
    [Cell(row='a', column='b', paper=None, ours=2.0, spread=1.4142, seeds=2, agrees=None)]
    """
    places = [[(c.row, c.column, c.paper) for c in table.cells] for table in (ours, theirs)]
    if ours.name != theirs.name or places[0] != places[1] or ours.unit != theirs.unit:
        raise RequestError(f"{theirs.name} has other cells than {ours.name}: seeds are pooled of the same table")
    if ours.tests or theirs.tests or ours.remarks != theirs.remarks:
        raise RequestError(f"{ours.name} has tests, or remarks on single seeds: run all of them in one folder")
    cells = []
    for a, b in zip(ours.cells, theirs.cells, strict=True):
        n = a.seeds + b.seeds
        square = (a.seeds - 1) * a.spread**2 + (b.seeds - 1) * b.spread**2
        square += (a.ours - b.ours) ** 2 * a.seeds * b.seeds / n
        agrees = a.agrees if a.agrees == b.agrees else None
        mean, spread = (a.seeds * a.ours + b.seeds * b.ours) / n, math.sqrt(square / (n - 1))
        cells.append(replace(a, ours=round(mean, 4), spread=round(spread, 4), seeds=n, agrees=agrees))
    return replace(
        ours, cells=cells, failed=ours.failed | theirs.failed, seconds=round(ours.seconds + theirs.seconds, 1),
        measured=", ".join(dict.fromkeys([ours.measured, theirs.measured])),
    )  # fmt: skip


def of(found: dict[str, Any]) -> Table:
    """The table of the plain values that ``NAME.json`` holds."""
    known = {field.name for field in fields(Table)}
    cells = [Cell(**cell) for cell in found["cells"]]
    return Table(**{key: value for key, value in found.items() if key in known} | {"cells": cells})
