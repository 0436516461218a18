"""``fallow diagnose RUN…``: why a model generalises: spectrum, depth, margins, noise, flatness."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import RequestError
from fallow.base.lock import alone
from fallow.base.names import visible
from fallow.base.numbers import require_whole
from fallow.cli import options
from fallow.cli.wrapper import answer

if TYPE_CHECKING:
    from fallow.diagnose.run import Diagnosis


def diagnose(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, or a comparison's folder: its first seed")],
    what: Annotated[
        str | None, typer.Option(help="some of spectrum, depth, margins, noise, flatness, slices, weights")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="a first look: a few hundred examples and fewer probes")
    ] = False,
    generations: Annotated[
        bool, typer.Option("--generations", help="every generation of runs that kept them (--keep-generations)")
    ] = False,
    weights: Annotated[str, typer.Option(help="the last weights, or the best on validation")] = "last",
    examples: Annotated[int, typer.Option(help="how many training and test examples to use")] = 2000,
    data: Annotated[str | None, typer.Option(help="where the data is, if it has moved")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="a run's own module:factory, named again to be trusted; may be repeated")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the folder; default: diagnosis/ in the first run")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure why models generalise as they do, and draw it: one page that overlays several runs."""
    if weights not in ("last", "best"):
        raise RequestError(f"weights is {weights!r}: give last or best")
    require_whole("examples", examples)
    names = (what or "").replace(",", " ").split()
    if what is not None and not names:
        raise RequestError(f"what is {what!r}: name measures, separated by commas, or leave it out")

    from fallow.base.errors import unknown
    from fallow.diagnose.measures import MEASURES

    for name in names:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    from fallow.cli.display import live, typed
    from fallow.diagnose.page import write
    from fallow.diagnose.run import diagnose as measure
    from fallow.diagnose.subjects import record_of, refuse_unused, subjects
    from fallow.report.shown import Shown

    began = time.monotonic()

    def show(now: str, done: float) -> None:
        if live():
            from fallow.cli.display import duration

            left = f", {duration((time.monotonic() - began) / done * (1 - done))} left" if done else ""
            print(f"\r\x1b[K{100 * done:3.0f} %{left}: {visible(now)}", end="", file=sys.stderr, flush=True)

    looked = subjects(runs, data=data, weights=weights, generations=generations, examples=examples, trusted=model or ())
    refuse_unused(model or (), [str(record_of(subject.folder)["model"]) for subject in looked])
    folder = out or runs[0] / "diagnosis"
    with alone(folder):
        found = measure(looked, names or None, quick=quick, progress=show)
        if live():
            print("\r\x1b[K", end="", file=sys.stderr)
        page = write(folder, found, typed(), Shown.of(looked[0].metric))
    answer(found.describe() | {"out": str(page.parent)}, as_json, lambda: _report(found, page))


def _report(found: Diagnosis, page: Path) -> None:
    from fallow.report.words import number

    looked = found.subjects
    numbers, width = found.numbers(), max(len(subject.name) for subject in looked)
    for title, values in numbers.items():
        print(f"{title}:")
        for name, value in values.items():
            print(f"  {name:<{width}}  {number(value)}")
        if title in found.orders():
            rho, p = found.orders()[title]
            print(f"  Spearman's ρ with test {looked[0].metric.words}: {rho:+.2f}, p = {p:.2f}")
    for name, failed in found.failures.items():
        for subject, reason in failed.items():
            print(f"{name} of {subject} could not be measured: {reason}")
    print(f"report: {page}")
