"""``fallow tune DATA``: learn the weight decay of every layer, and say what it is worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import Stopped, WorkError

if TYPE_CHECKING:
    from fallow.tuning.tune import Tuned


def tune(
    data: Annotated[str, typer.Argument(help="a bundled name (digits) or a path")],
    model: Annotated[str | None, typer.Option(help="mlp:hidden=784, resnet18:width=16, …; default by the data")] = None,
    per: Annotated[str, typer.Option(help="a decay per layer or per weight")] = "layer",
    solver: Annotated[str, typer.Option(help="identity, neumann, cg, minres or nystrom")] = "identity",
    inner: Annotated[int | None, typer.Option(help="steps between two meta-updates; default: 75 in a training")] = None,
    grid: Annotated[int, typer.Option(help="points of the grid to compare with, from 1e-5 to 0.1")] = 10,
    seeds: Annotated[int, typer.Option(help="how many trainings of each kind")] = 1,
    keep: Annotated[int | None, typer.Option("--train", help="keep this many training examples")] = None,
    val: Annotated[float, typer.Option(help="share of the training examples for validation")] = 0.2,
    epochs: Annotated[int, typer.Option()] = 60,
    batch_size: Annotated[int, typer.Option()] = 32,
    lr: Annotated[float, typer.Option(help="the initial learning rate")] = 0.01,
    label_smoothing: Annotated[float, typer.Option()] = 0.0,
    augment: Annotated[str, typer.Option(help="none, flip, crop, flip+crop or auto")] = "auto",
    seed: Annotated[int, typer.Option(help="the first")] = 0,
    out: Annotated[Path | None, typer.Option(help="the folder; default: tuned/NAME")] = None,
    engine: Annotated[str, typer.Option(help="local, ray or dask")] = "local",
    address: Annotated[str | None, typer.Option(help="of the cluster; without one, it is started here")] = None,
    workers: Annotated[int | None, typer.Option(help="trainings side by side; default: one for each core")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Learn the weight decay on validation while training, and compare with none and with a grid.

    Interrupted, the same command goes on. The settings found are kept for fallow train --settings FILE.
    """
    from fallow.cli.live import Live
    from fallow.tuning.tune import tune

    folder = out or Path("tuned") / (Path(data).stem or "data")
    try:
        with Live() as live:
            tuned = tune(
                data, model, out=folder, per=per, solver=solver, inner=inner, grid=grid, seeds=seeds, seed=seed,
                train=keep, val=val, engine=engine, address=address, workers=workers, device=device,
                watch=live.show if sys.stderr.isatty() else None, epochs=epochs, batch_size=batch_size, lr=lr,
                label_smoothing=label_smoothing, augment=augment,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Stopped(f"stopped: the same command goes on where it was, in {folder}") from None
    from fallow.cli.display import typed
    from fallow.tuning.page import write

    page = write(tuned, per, grid, typed())
    if as_json:
        print(json.dumps(tuned.describe(), ensure_ascii=False))
    else:
        _report(tuned, per, grid)
        print(f"report: {page}")
    if tuned.failed:
        name, reason = next(iter(tuned.failed.items()))
        raise WorkError(f"left out because they failed: {len(tuned.failed)}, first {name}: {reason}")


def _report(tuned: Tuned, per: str, grid: int) -> None:
    """The decay of every layer, what each way cost and gave, and one sentence."""
    from fallow.tuning.page import notes, rows, sentence

    width = max(5, *map(len, tuned.decay))
    print(f"{'layer':{width}}  decay" + ("" if per == "layer" else " (mean over the weights)"))
    for layer, value in tuned.decay.items():
        print(f"{layer:{width}}  {value:.2e}")
    print("\nway                  trainings' worth  validation loss  test accuracy  decay chosen")
    for name, cost, loss, test, chosen in rows(tuned, grid):
        print(f"{name:19}  {cost:>16}  {loss:>15}  {test:>13}  {chosen}".rstrip())
    print("", sentence(tuned), *notes(tuned), sep="\n")
    print(f"kept in {tuned.file}: fallow train DATA --settings {tuned.file}")
