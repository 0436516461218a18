"""A folder of images with a ``labels.csv``: file names, and what is to be told of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fallow.base.errors import RequestError, unknown
from fallow.data.arrays import from_tensors
from fallow.data.examples import Examples
from fallow.data.groups import numbered
from fallow.data.parts import Parts
from fallow.data.sources.folder import Found, read_images
from fallow.data.sources.table import read_cells
from fallow.data.tables import Cells, numbers
from fallow.data.targets import KINDS

LIST = "labels.csv"
SEVERAL = ";|"  # between the labels of one cell


def is_listed(path: Path) -> bool:
    """Whether a folder lists its images."""
    return (path / LIST).is_file()


def listed(root: Path, target: str | None, size: int | None, strict: bool = False, groups: str | None = None) -> Parts:
    """Read the images that labels.csv lists, with what it says of them.

    One column names files. The others are a label each, 0 or 1; or one of them (``target``, if there are more) holds a
    class, a number, or several labels in a cell (``oedema;fracture``). ``groups`` names a column of what belongs
    together.
    """
    path = root / LIST
    cells = dict(read_cells(path))
    files = cells.pop(_file_column(root, cells))
    belonging = None
    if groups is not None:
        if groups not in cells:
            raise unknown(f"column of {path} for groups", groups, cells)
        belonging = cells.pop(groups)
    names, y, kind = _answers(path, cells, target)
    notes: list[str] = []
    images = read_images(
        root, [Found("train", str(row), root / name) for row, name in enumerate(files)], size, strict, notes
    )
    if images.pixels is None:
        raise RequestError(f"the images of {root} are too many for memory: give a smaller size")
    rows = [int(found.label) for found in images.found]
    parts = from_tensors({"train": (torch.zeros(len(rows), 1), y[rows])}, names=names, target=kind)
    parts = Parts(Examples(images.pixels, parts.train.y), None, None, parts.target, parts.notes + notes)
    if belonging is not None:
        parts.groups = numbered({"train": np.array(belonging)[rows]})
    return parts


def _file_column(root: Path, cells: Cells) -> str:
    """The column whose first cell names a file; all others must, too."""
    for name, column in cells.items():
        if column[0].strip() and (root / column[0]).is_file():
            for row, cell in enumerate(column, 1):
                if not (root / cell).is_file():
                    raise RequestError(f"row {row} of {root / LIST} names {cell!r}, and there is no such file")
            return name
    raise RequestError(f"no column of {root / LIST} names files in {root}: give one with their names")


def _answers(path: Path, cells: Cells, target: str | None) -> tuple[list[str] | None, NDArray[Any], str | None]:
    """Names, answers and their kind, where that is certain."""
    kind = target if target in KINDS and target not in cells else None
    if target is not None and kind is None:
        name, colon, said = target.rpartition(":")
        name, kind = (name, said) if colon and said in KINDS else (target, None)
        if name not in cells:
            raise unknown(f"column of {path} to predict", name, cells)
        cells = {name: cells[name]}
    if not cells:
        raise RequestError(f"{path} says nothing of its files: add a column of classes, or one for each label")
    if len(cells) > 1:
        return list(cells), _labels(path, cells), "labels"
    name, column = next(iter(cells.items()))
    values, wrong = numbers(column)
    if any(mark in cell for cell in column for mark in SEVERAL):
        return *_several(column), "labels"
    if gap := next((row for row, cell in enumerate(column, 1) if not cell.strip()), None):
        raise RequestError(f"row {gap} of {name!r} in {path} is empty: fill it, or leave the file out")
    if wrong or kind == "classes":
        return None, np.array([cell.strip() for cell in column]), kind
    return [name], values.astype(np.int64) if (values == values.round()).all() else values, kind


def _labels(path: Path, cells: Cells) -> NDArray[Any]:
    """A column for each label."""
    for name, column in cells.items():
        for row, cell in enumerate(column, 1):
            if cell.strip() not in ("0", "1"):
                raise RequestError(
                    f"row {row} of {name!r} in {path} holds {cell!r}: give each label as 0 or 1, "
                    "or say which column is to be predicted (--target)"
                )
    return np.array([[int(cell) for cell in column] for column in cells.values()]).T


def _several(column: Any) -> tuple[list[str], NDArray[Any]]:
    """Cells with any number of labels."""
    held = [{part.strip() for part in cell.replace("|", ";").split(";") if part.strip()} for cell in column]
    names = sorted(set().union(*held))
    return names, np.array([[int(name in labels) for name in names] for labels in held])
