"""``fallow reproduce [NAME]``: the papers' tables; list them, run one, ours beside theirs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from fallow.base.errors import Stopped, WorkError


def reproduce(
    name: Annotated[str | None, typer.Argument(help="a table; without one, they are listed")] = None,
    seeds: Annotated[int | None, typer.Option(help="how many; each table has its own default")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where mnist.npz, pets32.npz and the like are")] = None,
    out: Annotated[Path | None, typer.Option(help="the table's folder; default: reproduced/NAME")] = None,
    engine: Annotated[str, typer.Option(help="local, ray or dask")] = "local",
    address: Annotated[str | None, typer.Option(help="of the cluster; without one, it is started here")] = None,
    workers: Annotated[int | None, typer.Option(help="runs side by side; default: one for each core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run one of the papers' tables and print ours beside theirs.

    Interrupted, the same command goes on; asked for more seeds, it runs what is missing.
    """
    from fallow.reproduce import TABLES

    if name is None:
        entries = {key: {"paper": e.paper, "shows": e.shows, "minutes": e.minutes} for key, e in TABLES.items()}
        if as_json:
            print(json.dumps({"tables": entries}, ensure_ascii=False))
        else:
            for key, entry in TABLES.items():
                print(f"{key:12}  {entry.paper:15}  {entry.shows}; about {entry.minutes:g} min on 2 cores")
        return

    from fallow.cli.display import typed
    from fallow.cli.live import Live
    from fallow.reproduce.page import write
    from fallow.reproduce.runs import reproduce

    folder = out or Path("reproduced") / name
    try:
        with Live() as live:
            table = reproduce(
                name, folder, seeds=seeds, data_dir=data_dir, engine=engine, address=address, workers=workers,
                watch=live.show if sys.stderr.isatty() else None,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Stopped(f"stopped: the same command resumes it, in {folder}") from None
    page = write(folder, table, typed())
    print(json.dumps(table.describe(), ensure_ascii=False) if as_json else table)
    if not as_json:
        print(f"report: {page}")
    if table.failed:
        raise WorkError(f"runs that failed: {len(table.failed)}; their seeds are left out: repeat the command")
