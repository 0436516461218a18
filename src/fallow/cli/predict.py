"""``fallow predict RUN FILE…``: use a trained model."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fallow.base.errors import RequestError, WorkError
from fallow.cli import options
from fallow.cli.wrapper import answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fallow.training.predict import Predictions

WHOLE, LARGE = 1e6, 1e15  # between these, numbers are rounded to whole ones


def predict(
    run: Annotated[Path, typer.Argument(help="the folder of a run, or of a comparison: its winner")],
    files: Annotated[
        list[Path], typer.Argument(help="images, folders of images, or .npz, .npy or .csv files of examples")
    ],
    model: Annotated[str | None, typer.Option(help="the run's own module:factory, named again to be trusted")] = None,
    masks: Annotated[
        Path | None,
        typer.Option(help="a folder to write predicted masks into: PNG of the picture's size, .npy of volumes"),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output")] = False,
    as_json: options.Json = False,
) -> None:
    """Predict what files show, with the model of a run or the winner of a comparison.

    Files that cannot be read are reported and skipped; the exit code is then 1.
    """
    from fallow.cli.display import say
    from fallow.training.predict import Predictor

    predictor = Predictor(run, model=model)
    dense = predictor.target.kind == "dense"
    if masks is not None and not dense:
        raise RequestError(f"{run} does not predict masks: leave --masks out")
    found = predictor(files)
    written = [] if masks is None else write_masks(found, predictor.classes, masks)
    classes = predictor.classes if dense else None

    def report() -> None:
        if as_csv:
            table = csv.writer(sys.stdout)
            if predictor.target.kind == "numbers" and predictor.target.outputs > 1:
                table.writerow(["name", *predictor.target.names])
                table.writerows([p.name, *map(repr, p.label)] for p in found)
                return
            table.writerow(["name", "label", "confidence"])
            table.writerows([p.name, _words(p.label, classes, repr), p.confidence] for p in found)
            return
        width = max(len(p.name) for p in found)
        for p in found:
            sure = "" if p.confidence is None else f"  ({100 * p.confidence:.1f} %)"
            print(f"{p.name:<{width}}  {_words(p.label, classes)}{sure}")
        if written:
            print(f"\n{len(written)} mask{'s' if len(written) > 1 else ''} in {masks}")

    rows = [{"name": p.name, "label": p.label, "confidence": p.confidence} for p in found]
    named = {} if classes is None else {"classes": classes}  # a mask is of their places
    answer({"predictions": rows, "failed": found.failed} | named, as_json, report)
    for reason in found.failed.values():
        say(f"left out: {reason}")
    if found.failed:
        raise WorkError(f"{len(found.failed)} of {len(found.failed) + len(found)} could not be read and were left out")


def write_masks(found: Predictions, classes: Sequence[str], folder: Path) -> list[Path]:
    """A file for each predicted mask: PNG of a picture, in its own size, .npy of what has not two dimensions.

    Pixels have the grey values that the masks of the training had, where those are its classes, or else their places.
    """
    import numpy as np
    from PIL import Image

    from fallow.data.images import SUFFIXES, probe, uncut

    grey = all(name.isdigit() and int(name) < 256 for name in classes)
    values = np.array([int(name) if grey else place for place, name in enumerate(classes)], np.uint8)
    written: dict[Path, NDArray[np.uint8]] = {}
    for p in found:
        mask = values[np.array(p.label)]
        source, row = p.name, ""
        if not source.lower().endswith(SUFFIXES):
            source, _, row = p.name.rpartition(":")
        elif mask.ndim == 2:
            mask = uncut(mask, probe(Path(source)).size, values[0])
        name = Path(source).stem + (f"-{row}" if row else "")
        file = folder / f"{name}{'.png' if mask.ndim == 2 else '.npy'}"
        if file in written:
            raise RequestError(f"two of the files would be {file}: predict their folders one by one")
        written[file] = mask
    folder.mkdir(parents=True, exist_ok=True)
    for file, mask in written.items():
        if mask.ndim == 2:
            Image.fromarray(mask).save(file)
        else:
            np.save(file, mask)
    return list(written)


def short(number: float) -> str:
    """A number to be read: six digits, but all of those before the point.

    >>> short(1712345678.25), short(0.12345678), short(1e300)
    ('1712345678', '0.123457', '1e+300')
    """
    return f"{number:.0f}" if WHOLE <= abs(number) < LARGE else f"{number:.6g}"


def _words(label: Any, masks: list[str] | None = None, number: Callable[[float], str] = short) -> str:
    """A label, several, or a number; of a mask its size, and how much of it each class has."""
    if masks is not None:
        import numpy as np

        places = np.array(label)
        shares = [f"{name} {100 * (places == place).mean():.1f} %" for place, name in enumerate(masks)]
        return f"{'×'.join(map(str, places.shape))}: {', '.join(shares)}"
    if isinstance(label, list):
        return ", ".join(_words(each, number=number) for each in label) or "none"
    return number(label) if isinstance(label, float) else str(label)
