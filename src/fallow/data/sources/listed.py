"""A table of file names, and what is to be told of each: ``labels.csv`` in a folder of images, or any by its path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fallow.base.errors import RequestError, unknown
from fallow.data.arrays import from_tensors
from fallow.data.examples import Examples
from fallow.data.groups import numbered, unasked
from fallow.data.images import SUFFIXES
from fallow.data.parts import Parts
from fallow.data.sources.folder import Found, read_images
from fallow.data.sources.places import PART_OF, SPLITS, folders_in, printable
from fallow.data.sources.table import apart, parted, read_cells, written
from fallow.data.sources.wanted import SEVERAL, coded, columns_named, given, several_labels
from fallow.data.tables import Cells, numbers
from fallow.data.targets import KINDS

LIST = "labels.csv"


class Elsewhere(NamedTuple):
    """What names images that are in a folder beside the list."""

    column: str
    folder: str
    files: list[str]  # by their paths from the list


def is_listed(path: Path) -> bool:
    """Whether a folder lists its images."""
    return (path / LIST).is_file()


def lists(path: Path, cells: Cells) -> bool:
    """Whether a table is a list of images: it names some that are there, or says nothing but a label of each."""
    root = path.parent
    columns = [column for column in cells.values() if _names_images(root, column)]
    return (len(cells) == 2 and len(columns) == 1) or _elsewhere(root, cells) is not None or _here(root, cells)


def images_of(path: Path) -> list[Path]:
    """The images that a table names, in its order; none if it is no list of images that are there."""
    try:
        cells = read_cells(path)
    except RequestError:  # which whoever reads it as something else will say
        return []
    if (elsewhere := _elsewhere(path.parent, cells)) is not None:
        return [path.parent / file for file in elsewhere.files]
    column = next((column for column in cells.values() if _there(path.parent, column)), [])
    return [path.parent / file for file in column]


def listed(
    path: Path, cells: Cells, target: str | None, size: int | None, strict: bool = False, groups: Any = None
) -> Parts:
    """Read the images that a list names, with what it says of them.

    One column names files, by their paths from the list or as they are called in a folder beside it, perhaps without
    suffixes. The others are a label each, 0 or 1, or those of them that ``target`` names, parted by commas; or one
    (``target``, if there are more) holds a class, a number, or several labels in a cell (``oedema;fracture``).
    ``groups`` names a column of what belongs together. The source's own parts are those of a column ``split`` (set,
    partition, subset) of train, val and test, or of the folders train/, val/ and test/ that all files are in.
    """
    how, _ = written(cells)
    root, cells = path.parent, dict(cells)
    notes: list[str] = []
    if (elsewhere := _elsewhere(root, cells)) is not None:
        notes.append(f"The files that {elsewhere.column!r} names are those in {elsewhere.folder}/.")
        del cells[elsewhere.column]
    files = cells.pop(_file_column(path, cells)) if elsewhere is None else elsewhere.files
    notes += _uneven(path, files)
    part_of = _parts_of(path, cells, files, {groups, target, str(target).rpartition(":")[0]}, notes)
    belonging = None
    if groups is not None:
        if not isinstance(groups, str):
            raise RequestError(f"groups of listed images are a column of {path.name}: name it, or leave groups out")
        if groups not in cells:
            raise unknown(f"column of {path} for groups", groups, cells)
        belonging = cells.pop(groups)
    elif "test" not in part_of:
        notes += unasked({name: column for name, column in cells.items() if name != str(target).partition(":")[0]})
    names, y, kind = _answers(path, cells, target, how)
    found = [Found(part, str(row), root / name) for row, (part, name) in enumerate(zip(part_of, files, strict=True))]
    images = read_images(root, found, size, strict, notes)
    if images.pixels is None:
        raise RequestError(f"the images of {root} are too many for memory: give a smaller size")
    rows = torch.tensor([int(found.label) for found in images.found])
    places = {part: [i for i, found in enumerate(images.found) if found.part == part] for part in SPLITS}
    places = {part: place for part, place in places.items() if place}
    if "train" not in places:
        raise RequestError(f"none of the training images that {path} names can be read: repair them")
    answers = {part: (torch.zeros(len(place), 1), y[rows[place]]) for part, place in places.items()}
    parts = from_tensors(answers, names=names, target=kind)
    parts.notes += notes
    parts.decoded = True
    for part, place in places.items():
        pixels = images.pixels[place] if len(places) > 1 else images.pixels
        setattr(parts, part, Examples(pixels, getattr(parts, part).y))
    if belonging is not None:
        whose = apart([belonging[row] for row in rows.tolist()], parts.notes)
        parts.groups = numbered({part: whose[place] for part, place in places.items()})
    return parts


def _parts_of(path: Path, cells: dict[str, Any], files: Sequence[str], meant: set[Any], notes: list[str]) -> list[str]:
    """The part of every file, as a column says, which is then no label, or the folders; those ``meant`` are others."""
    if (said := parted(path, cells, meant, notes)) is not None:
        return said
    folders = [Path(os.path.normpath(file)).parent for file in files]
    above = (
        len(Path(os.path.commonpath(folders)).parts) if len({folder.is_absolute() for folder in folders}) == 1 else 0
    )
    first = [folder.parts[above].lower() if len(folder.parts) > above else "" for folder in folders]
    found = [PART_OF.get(name, "") for name in first]
    if not all(found) or "train" not in found:
        return ["train"] * len(files)
    notes.append(f"The parts are taken from the folders {', '.join(f'{name}/' for name in dict.fromkeys(first))}.")
    return found


def _names_images(root: Path, column: Sequence[str]) -> bool:
    """Whether all cells are called as images are, or some are files."""
    return all(cell.lower().endswith(SUFFIXES) for cell in column) or _there(root, column)


def _here(root: Path, cells: Cells) -> bool:
    """Whether a column names images by their paths from the list."""
    return any(_there(root, column) for column in cells.values())


def _there(root: Path, column: Sequence[str]) -> bool:
    return any(cell.lower().endswith(SUFFIXES) and (root / cell).is_file() for cell in column)


def _elsewhere(root: Path, cells: Cells) -> Elsewhere | None:
    """The column of which every cell names another image in one folder beside the list.

    Lists of competitions are so: train.csv beside train/, with names of files, or with ids, to which a suffix belongs.
    """
    if _here(root, cells):
        return None
    found = []
    for place in folders_in(root):
        pictures = [file.name for file in place.iterdir() if file.suffix.lower() in SUFFIXES]
        stems = {Path(name).stem: name for name in pictures}
        called = {name: name for name in pictures}
        if len(stems) == len(pictures):  # else one would name several
            called |= stems
        for name, column in cells.items():
            files = [called.get(cell.strip(), "") for cell in column] if called else [""]
            if all(files) and len(set(files)) == len(files):
                paths = [str(Path(place.name, file)) for file in files]
                found.append(Elsewhere(name, printable(place.name), paths))
    return found[0] if len(found) == 1 else None


def _file_column(path: Path, cells: Cells) -> str:
    """The column that names images, all of which must be there."""
    root = path.parent
    name = next((name for name, column in cells.items() if _names_images(root, column)), None)
    if name is None:
        raise RequestError(f"no column of {path} names images in {root}: give one with their names")
    if _there(root, [name]):
        raise RequestError(f"the first line of {path} names an image, {name}: write a line of names above it")
    gone = [row for row, cell in enumerate(cells[name], 1) if not (root / cell).is_file()]
    if gone:
        more = len(gone) - 1
        others = f", nor {'are' if more > 1 else 'is'} {more} other{'s' * (more > 1)}" if more else ""
        raise RequestError(
            f"row {gone[0]} of {path} names {cells[name][gone[0] - 1]!r}, which is not a file in {root}{others}: "
            "give their paths from there, or leave these rows out"
        )
    return name


def _uneven(path: Path, files: Sequence[str]) -> list[str]:
    """What to say where rows and files are not one to one."""
    named = {Path(os.path.normpath(path.parent / file)) for file in files}
    there = {file for place in {file.parent for file in named} for file in place.iterdir() if _visible(file)}
    found = []
    if twice := len(files) - len(named):
        rows = f"{twice} rows repeat" if twice > 1 else "1 row repeats"
        found.append(f"{rows} a file name in {path.name}: every row counts as an example.")
    if others := len(there - named):
        found.append(f"{others} image{'s' * (others > 1)} ignored: not listed in {path.name}.")
    return found


def _visible(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and file.name[0] != "."


def _answers(
    path: Path, cells: Cells, target: str | None, how: dict[str, str]
) -> tuple[list[str] | None, NDArray[Any], str | None]:
    """Names, answers and their kind, where that is certain."""
    kind = target if target in KINDS and target not in cells else None
    if target is not None and kind is None:
        name, colon, said = target.rpartition(":")
        name, kind = (name, said) if colon and said in KINDS else (target, None)
        names = columns_named(name, cells)
        if strange := [each for each in names if each not in cells]:
            raise unknown(f"column of {path} to predict", strange[0], cells)
        cells = {each: cells[each] for each in names}
    if not cells:
        raise RequestError(f"{path} says nothing of its files: add a column of classes, or one for each label")
    if len(cells) > 1:
        return list(cells), _labels(path, cells), kind or "labels"
    name, column = next(iter(cells.items()))
    values, wrong = numbers(column, how[name])
    if kind in (None, "labels") and any(mark in cell for cell in column for mark in SEVERAL):
        return *several_labels(column), "labels"
    if gap := next((row for row, cell in enumerate(column, 1) if not cell.strip()), None):
        raise RequestError(f"row {gap} of {name!r} in {path} is empty: fill it, or leave the file out")
    if wrong or kind == "classes" or (kind is None and coded(column, values, how[name])):
        return None, np.array([cell.strip() for cell in column]), kind
    return [name], values.astype(np.int64) if (values == values.round()).all() else values, kind


def _labels(path: Path, cells: Cells) -> NDArray[Any]:
    """A column for each label."""
    cells = {name: given(column) for name, column in cells.items()}
    for name, column in cells.items():
        for row, cell in enumerate(column, 1):
            if cell.strip() not in ("0", "1"):
                raise RequestError(
                    f"row {row} of {name!r} in {path} holds {cell!r}: give each label as 0 or 1, "
                    "or say which column is to be predicted (--target)"
                )
    return np.array([[int(cell) for cell in column] for column in cells.values()]).T
