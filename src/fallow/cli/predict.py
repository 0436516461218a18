"""``fallow predict RUN IMAGE…``: use a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options


def predict(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or of a comparison: then its winner")],
    images: Annotated[list[Path], typer.Argument(help="PNG or JPEG files")],
    as_json: options.Json = False,
) -> None:
    """Say what the images show, by the model of a run or by the winner of a comparison."""
    from fallow.training.predict import Predictor

    found = Predictor(run)(images)
    if as_json:
        rows = [{"image": str(path)} | each._asdict() for path, each in zip(images, found, strict=True)]
        print(json.dumps({"predictions": rows}, ensure_ascii=False))
        return
    width = max(len(str(path)) for path in images)
    for path, each in zip(images, found, strict=True):
        print(f"{path!s:<{width}}  {each.label}  ({100 * each.confidence:.1f} %)")
