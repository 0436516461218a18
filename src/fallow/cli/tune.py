"""``fallow tune DATA``: learn the weight decay of every layer, and say what it is worth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fallow.base.errors import Stopped, WorkError

if TYPE_CHECKING:
    from fallow.tuning.tune import Arm, Tuned

_NAMES = {"none": "no decay", "grid": "grid of {n}", "equal": "as much of the grid", "learned": "learned"}


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
    workers: Annotated[
        int | None, typer.Option(help="trainings side by side; default: as many as there are cores")
    ] = None,
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
    if as_json:
        print(json.dumps(tuned.describe(), ensure_ascii=False))
    else:
        _report(tuned, per, grid)
    if tuned.failed:
        name, reason = next(iter(tuned.failed.items()))
        raise WorkError(f"left out because they failed: {len(tuned.failed)}, first {name}: {reason}")


def _report(tuned: Tuned, per: str, grid: int) -> None:
    """The decay of every layer, what each way cost and gave, and one sentence."""
    from fallow.hypergradients.implicit import FAR

    width = max(5, *map(len, tuned.decay))
    print(f"{'layer':{width}}  decay" + ("" if per == "layer" else " (mean over the weights)"))
    for layer, value in tuned.decay.items():
        print(f"{layer:{width}}  {value:.2e}")
    unit = tuned.arms[0].passes[0]  # of one plain training
    print("\nway                  trainings' worth  validation loss  test accuracy  decay chosen")
    for arm in tuned.arms:
        cost = sum(arm.passes) / len(arm.passes) / unit
        name = _NAMES[arm.name].format(n=grid)
        print(f"{name:19}  {cost:16.1f}  {_mean(arm.val_loss):15.4f}  {_mean(arm.test_accuracy):13.2%}  {_chosen(arm)}")
    by = {arm.name: _mean(arm.test_accuracy) for arm in tuned.arms}
    points = 100 * (by["learned"] - by["grid"])
    sure = ""
    if (found := tuned.against_grid) is not None:
        sure = f" (95 % interval {100 * found.low:+.2f} to {100 * found.high:+.2f}, {len(tuned.arms[0].passes)} seeds)"
    print(
        f"\nThe learned decay is {points:+.2f} points from the best of the grid{sure}, at {tuned.share:.0%} of the "
        f"grid's compute, and {100 * (by['learned'] - by['none']):+.2f} from no decay."
    )
    if tuned.unsettled > FAR:
        print(
            f"note: at the last meta-update the training gradient was {tuned.unsettled:.1f} times the validation "
            "gradient: far from a minimum, where the decay means little; more --epochs would help"
        )
    if len(tuned.arms[0].passes) == 1:
        print("One seed says little: --seeds 3 gives an interval.")
    print(f"kept in {tuned.file}: fallow train DATA --settings {tuned.file}")


def _chosen(arm: Arm) -> str:
    """What validation chose, seed by seed."""
    return (
        ", ".join(dict.fromkeys(name.removeprefix("decay-") for name in arm.decay))
        if arm.name in ("grid", "equal")
        else ""
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
