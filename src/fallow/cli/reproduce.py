"""``fallow reproduce [NAME]``: the papers' tables; list them, run one, ours beside theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fallow.base.errors import RequestError, WorkError
from fallow.cli import options
from fallow.cli.wrapper import answer, working


def reproduce(
    name: Annotated[str | None, typer.Argument(help="a table; without one, they are listed")] = None,
    seeds: Annotated[int | None, typer.Option(help="how many; each table has its own default")] = None,
    seed: Annotated[int, typer.Option(help="the first seed")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="where mnist.npz, pets32.npz and the like are")] = None,
    out: Annotated[Path | None, typer.Option(help="the table's folder; default: reproduced/NAME")] = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Run one of the papers' tables and print ours beside theirs.

    Interrupted, the same command resumes it; asked for more seeds, it runs what is missing.
    """
    from fallow.reproduce import TABLES

    if name is None:
        if any(given is not None for given in (seeds, seed or None, data_dir, out, address, workers)):
            raise RequestError("name the table to run: fallow reproduce lists them")
        entries = {key: {"paper": e.paper, "shows": e.shows, "minutes": e.minutes} for key, e in TABLES.items()}
        name_width, paper_width = max(map(len, TABLES)), max(len(e.paper) for e in TABLES.values())
        lines = [
            f"{key:{name_width}}  {e.paper:{paper_width}}  {e.shows}; about {e.minutes:g} min on 2 cores"
            for key, e in TABLES.items()
        ]
        answer({"tables": entries}, as_json, lambda: print("\n".join(lines)))
        return

    from fallow.cli.display import typed
    from fallow.cli.live import Live
    from fallow.reproduce.page import write
    from fallow.reproduce.runs import reproduce

    folder = out or Path("reproduced") / name
    with working(folder), Live() as live:
        table = reproduce(
            name, folder, seeds=seeds, seed=seed, data_dir=data_dir, engine=engine, address=address, workers=workers,
            watch=live.show if sys.stderr.isatty() else None,
        )  # fmt: skip
    page = write(folder, table, typed())
    answer(table.describe(), as_json, lambda: print(f"{table}\nreport: {page}"))
    if table.failed:
        raise WorkError(f"{len(table.failed)} of the runs failed; their seeds are left out: repeat the command")
