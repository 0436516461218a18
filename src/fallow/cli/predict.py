"""``fallow predict RUN FILE…``: use a trained model."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fallow.base.errors import WorkError
from fallow.cli import options
from fallow.cli.wrapper import answer


def predict(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or of a comparison: its winner")],
    files: Annotated[
        list[Path], typer.Argument(help="images, folders of images, or .npz, .npy or .csv files of examples")
    ],
    model: Annotated[str | None, typer.Option(help="the run's own module:factory, named again to be trusted")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output")] = False,
    as_json: options.Json = False,
) -> None:
    """Predict what files show, with the model of a run or the winner of a comparison.

    Files that cannot be read are reported and skipped; the exit code is then 1.
    """
    from fallow.cli.display import say
    from fallow.training.predict import Predictor

    predictor = Predictor(run, model=model)
    found = predictor(files)
    masks = predictor.classes if predictor.target.kind == "dense" else None

    def report() -> None:
        if as_csv:
            table = csv.writer(sys.stdout)
            table.writerow(["name", "label", "confidence"])
            table.writerows([p.name, _words(p.label, masks), p.confidence] for p in found)
            return
        width = max(len(p.name) for p in found)
        for p in found:
            sure = "" if p.confidence is None else f"  ({100 * p.confidence:.1f} %)"
            print(f"{p.name:<{width}}  {_words(p.label, masks)}{sure}")

    rows = [{"name": p.name, "label": p.label, "confidence": p.confidence} for p in found]
    named = {} if masks is None else {"classes": masks}  # a mask is of their places
    answer({"predictions": rows, "failed": found.failed} | named, as_json, report)
    for reason in found.failed.values():
        say(f"left out: {reason}")
    if found.failed:
        raise WorkError(f"{len(found.failed)} of {len(found.failed) + len(found)} could not be read and were left out")


def _words(label: Any, masks: list[str] | None = None) -> str:
    """A label, several, or a number; of a mask its size, and how much of it each class has."""
    if masks is not None:
        import numpy as np

        places = np.array(label)
        shares = [f"{name} {100 * (places == place).mean():.1f} %" for place, name in enumerate(masks)]
        return f"{'×'.join(map(str, places.shape))}: {', '.join(shares)}"
    if isinstance(label, list):
        return ", ".join(map(_words, label)) or "none"
    return f"{label:.6g}" if isinstance(label, float) else str(label)
