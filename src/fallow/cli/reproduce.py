"""``fallow reproduce [NAME]``: the papers' tables; list them, run one, ours beside theirs."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from fallow.base.errors import RequestError, unknown


def reproduce(
    name: Annotated[str | None, typer.Argument(help="a table; without one, they are listed")] = None,
    seeds: Annotated[int | None, typer.Option(help="how many; each table has its own default")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where mnist.npz, pets32.npz and the like are")] = None,
    out: Annotated[Path | None, typer.Option(help="a folder for the numbers and a figure")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run one of the papers' tables and print ours beside theirs."""
    from fallow.reproduce import TABLES

    if name is None:
        entries = {key: {"paper": e.paper, "shows": e.shows, "minutes": e.minutes} for key, e in TABLES.items()}
        if as_json:
            print(json.dumps({"tables": entries}, ensure_ascii=False))
        else:
            for key, entry in TABLES.items():
                print(f"{key:12}  {entry.paper:15}  {entry.shows}; about {entry.minutes:g} min on 2 cores")
        return
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    if seeds is not None and seeds < 1:
        raise RequestError(f"seeds is {seeds}: one or more are needed")
    if sys.stderr.isatty():
        print(f"{TABLES[name].paper}: about {TABLES[name].minutes:g} min on 2 cores …", file=sys.stderr)
    module = import_module(f"fallow.reproduce.{TABLES[name].module}")
    table = module.run(name, seeds or module.SEEDS, data_dir)
    print(json.dumps(table.describe(), ensure_ascii=False) if as_json else table)
    if out is not None:
        from fallow.cli.display import typed
        from fallow.reproduce.page import write

        page = write(out, table, typed())
        if not as_json:
            print(f"report: {page}")
