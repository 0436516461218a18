"""``fallow export RUN``: a trained model as one file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fallow.cli import options
from fallow.cli.wrapper import answer


def export(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or of a comparison: then its winner")],
    to: Annotated[Path | None, typer.Option(help="the file; default: model.onnx or model.pt2 in the folder")] = None,
    format: Annotated[str | None, typer.Option(help="onnx or torch; default: by the file's ending, else onnx")] = None,
    weights: Annotated[str, typer.Option(help="best on validation, or last")] = "best",
    model: Annotated[str | None, typer.Option(help="the run's own module:factory, named again to be trusted")] = None,
    as_json: options.Json = False,
) -> None:
    """Write a trained model as one file that needs no fallow: raw examples in, probabilities or numbers out.

    Scaling and resizing are inside, a batch may have any size, and the names of the classes are in the metadata. The
    model of a table takes encoded features, since no graph reads text: the metadata say which, and how they are made.
    """
    from fallow.training.export import written

    path, about = written(run, to, format, weights, model)

    def report() -> None:
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        print(f"{path} ({size}): {about['input']} in, {about['output']} out; any batch size")

    answer({"file": str(path), "bytes": path.stat().st_size}, as_json, report)
