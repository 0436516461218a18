"""``fallow tune DATA``: learn the weight decay of every layer, and say what it is worth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import WorkError
from fallow.cli import options
from fallow.cli.wrapper import answer, working

if TYPE_CHECKING:
    from fallow.tuning.tune import Tuned


def tune(
    data: options.Data,
    model: options.Model = None,
    per: Annotated[str, typer.Option(help="a decay per layer or per weight")] = "layer",
    solver: Annotated[str, typer.Option(help="identity, neumann, cg, minres or nystrom")] = "identity",
    inner: Annotated[
        int | None, typer.Option(help="steps between two meta-updates; default: 75 updates per run")
    ] = None,
    grid: Annotated[int, typer.Option(help="points of the grid to compare with, from 1e-5 to 0.1")] = 10,
    seeds: Annotated[int, typer.Option(help="seeds: runs of each kind")] = 1,
    keep: options.Train = None,
    val: options.Val = 0.2,
    as_: options.As = None,
    groups: options.Groups = None,
    target: options.Target = None,
    drop: options.Drop = None,
    epochs: options.Epochs = 60,
    batch_size: options.BatchSize = 32,
    lr: options.Rate = 0.01,
    label_smoothing: options.Smoothing = 0.0,
    augment: options.Augment = "auto",
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="the folder; default: tuned/NAME")] = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Learn the weight decay on validation while training, and compare it with no decay and with a grid.

    Interrupted, the same command resumes it. The settings found are kept for fallow train --settings FILE.
    """
    from fallow.cli.display import say
    from fallow.cli.live import Live
    from fallow.data import folder_name
    from fallow.tuning.tune import tune

    folder = out or Path("tuned") / folder_name(data)
    with working(folder), Live() as live:
        tuned = tune(
            data, model, out=folder, per=per, solver=solver, inner=inner, grid=grid, seeds=seeds, seed=seed,
            train=keep, val=val, as_=as_, groups=groups, target=target, drop=drop, told=say,
            engine=engine, address=address, workers=workers, device=device,
            watch=live.show if sys.stderr.isatty() else None, epochs=epochs, batch_size=batch_size, lr=lr,
            label_smoothing=label_smoothing, augment=augment,
        )  # fmt: skip
    from fallow.cli.display import typed
    from fallow.tuning.page import write

    page = write(tuned, per, grid, typed())

    def report() -> None:
        _report(tuned, per, grid)
        print(f"report: {page}")

    answer(tuned.describe(), as_json, report)
    if tuned.failed:
        name, reason = next(iter(tuned.failed.items()))
        raise WorkError(f"{len(tuned.failed)} of the runs failed and were left out, first {name}: {reason}")


def _report(tuned: Tuned, per: str, grid: int) -> None:
    """The decay of every layer, what each way cost and gave, and one sentence."""
    from fallow.tuning.page import notes, rows, sentence

    width = max(5, *map(len, tuned.decay))
    print(f"{'layer':{width}}  decay" + ("" if per == "layer" else " (mean over the weights)"))
    for layer, value in tuned.decay.items():
        print(f"{layer:{width}}  {value:.2e}")
    print(f"\ndecay             cost in trainings  validation loss  {f'test {tuned.metric.words}':>13}  chosen")
    for name, cost, loss, test, chosen in rows(tuned, grid):
        print(f"{name:16}  {cost:>17}  {loss:>15}  {test:>13}  {chosen}".rstrip())
    print("", sentence(tuned), *notes(tuned), sep="\n")
    print(f"kept in {tuned.file}: fallow train DATA --settings {tuned.file}")
