"""``fallow atlas [DATA …]``: which method helps where; many comparisons, one picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fallow.base.errors import RequestError
from fallow.cli import options
from fallow.cli.wrapper import answer, working


def atlas(
    data: Annotated[
        list[str] | None, typer.Argument(help="data sets to add: bundled names or paths; without one, the atlas' own")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="numbers of labels to train on, for the data sets named: 100,300 (default: all)")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="where mnist.npz, pets32.npz and the like are: eight more data sets")
    ] = None,
    add_to: Annotated[
        Path | None, typer.Option(help="the atlas.csv of another atlas, to show beside the new settings")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="names with settings; default: those of fallow compare")] = None,
    seeds: Annotated[int | None, typer.Option(help="at most this many per method (default 20; 4 with --quick)")] = None,
    tune: Annotated[int, typer.Option(help="try this many settings for each runner, controls included")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="small networks and a quarter of the epochs")] = False,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    out: Annotated[Path, typer.Option(help="the atlas' folder; comparisons already in it stay in the picture")] = Path(
        "atlas"
    ),
    as_json: options.Json = False,
) -> None:
    """Compare the methods on many data sets at two sizes, and draw where which helps.

    Interrupted, the same command resumes it; with data sets named, it adds them to the atlas in --out.
    """
    from dataclasses import asdict

    import joblib

    from fallow.atlas import rows as kept
    from fallow.atlas.findings import Atlas
    from fallow.atlas.page import write
    from fallow.atlas.run import estimate, plan, survey
    from fallow.atlas.sites import site as own
    from fallow.atlas.sites import sites
    from fallow.cli.display import say, typed
    from fallow.cli.live import Live
    from fallow.comparison.plan import METHODS, split_names
    from fallow.core.engine import find_device
    from fallow.experiment import check
    from fallow.report.words import many, roughly

    if labels is not None and not data:
        raise RequestError("--labels is for data sets that are named: fallow atlas DATA --labels 100,300")
    if data_dir is not None and data:
        raise RequestError("--data-dir is for the atlas' own data sets: name paths, or leave them out")
    check(engine, address, workers)
    find_device(device)
    sizes = [_size(text) for text in labels.split(",")] if labels is not None else [None]
    entered = METHODS if methods is None else tuple(split_names(methods))
    before = [] if add_to is None else kept.read(add_to)
    with working(out), Live() as live:
        where = [own(source, size) for source in data for size in sizes] if data else sites(data_dir, out)
        names = [site.name for site in where]
        if twice := [name for name in names if names.count(name) > 1]:
            raise RequestError(f"{twice[0]} would be in the atlas twice: name it once")
        plans = {site.name: plan(site, entered, seeds, tune, quick) for site in where}
        fresh = [name for name in names if not (out / "comparisons" / name / "summary.csv").exists()]
        seconds = estimate([plans[name] for name in fresh])
        for name, long in zip(fresh, seconds, strict=True):
            say(f"{name}: {roughly(long)} of CPU time")
        hands = workers or joblib.cpu_count()
        if fresh:
            time = roughly(sum(seconds) / hands)
            say(f"{len(fresh)} of {len(where)} comparisons to run: {time} with {many(hands, 'worker')}")
        found = survey(
            where, out, methods=entered, seeds=seeds, tune=tune, quick=quick, before=before, told=say,
            engine=engine, address=address, workers=workers, device=device,
            watch=live.show if sys.stderr.isatty() else None,
        )  # fmt: skip
    drawn = Atlas(found)
    page = write(out, drawn, typed())
    answer(
        {"rows": [asdict(row) for row in found], "sentences": drawn.sentences, "guarantee": drawn.guarantee},
        as_json,
        lambda: print("\n".join([*drawn.sentences, drawn.guarantee, f"report: {page}"])),
    )


def _size(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise RequestError(f"--labels has {text!r}: give whole numbers, separated by commas")
    return int(text)
