"""Examples to predict: images, folders of them, arrays and tables, in the shape that a model was trained on."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.base.files import expanded
from fallow.data.images import SUFFIXES, decode
from fallow.data.layout import numeric, on_white
from fallow.data.prose import columns_of_texts, texts_of
from fallow.data.sources.each import texts_below
from fallow.data.sources.listed import images_of
from fallow.data.sources.npz import XS, examples_of, fits
from fallow.data.sources.places import files_below
from fallow.data.sources.table import SUFFIXES as TABLES
from fallow.data.sources.table import as_trained, decoded, read_cells, written
from fallow.data.sources.wanted import TARGETS
from fallow.data.tables import GAPS, NUMBERED, Cells, DataTable, numbers, present
from fallow.data.texts import as_bytes, encoded, is_text, texts_in


class Given(NamedTuple):
    """Examples by name; what could not be read, by name with the reason."""

    names: list[str]
    x: Tensor
    failed: dict[str, str]


def from_paths(
    paths: Iterable[str | Path],
    shape: tuple[int, ...],
    pictures: bool,
    table: DataTable | None = None,
    columns: Sequence[str] = (),
    flattened: tuple[int, ...] = (),
) -> Given:
    """Files, and those in folders: PNG and JPEG where the model takes ``pictures``, .npz, .npy and .csv of arrays.

    A table that lists pictures stands for them, as in training (see `fallow.data.sources.listed.listed`).
    Where the model was trained on a ``table``, .csv, .tsv, .jsonl and .parquet hold rows with the same columns; where
    ``columns`` were read as pixels or samples, they are found by their names, if the file has names of them.
    Image files that became features were ``flattened``, from this shape.
    What cannot be read is left out, with its reason; only if nothing is left is that an error.
    """
    names: list[str] = []
    pieces: list[Tensor] = []
    failed: dict[str, str] = {}
    seen = pictures or bool(flattened)
    found = _files(paths, failed, KNOWN, seen)
    for path in _listed(found) if seen and not columns else found:
        try:
            if table is not None and path.suffix.lower() in TABLES:
                cells = as_trained(read_cells(path), table)
                raw = table.raw(cells, str(path))
                _strange(table, raw, cells, path)
                some = table.encode(raw)
            else:
                some = _read(path, shape, pictures, columns, flattened)
        except RequestError as error:
            failed[str(path)] = str(error)
            continue
        rows = [str(path)] if _is_image(path) else [f"{path}:{row}" for row in range(len(some))]
        whole = some.flatten(1).isfinite().all(1)
        failed |= {name: f"{name} has a gap or a value that is not finite" for name in compress(rows, ~whole)}
        if whole.any():
            names += compress(rows, whole)
            pieces.append(some[whole])
    if not pieces:
        reasons = list(failed.values())
        raise RequestError(reasons[0] if reasons else "there is nothing to predict: name files or folders")
    kinds = {piece.dtype for piece in pieces}
    return Given(names, torch.cat([p.float() for p in pieces] if len(kinds) > 1 else pieces), failed)


def from_texts(examples: Any, count: int, stood: bool | str | Sequence[str] = True) -> Given:
    """Texts in an array of strings (N, or N×2 for pairs), bytes as the data hold them, or files of texts.

    Files are .npz with the arrays that training has; .txt, an example a line, a tab between the two texts of a pair,
    but an example a file where the texts of training ``stood`` in "files", which may be given as folders; or tables,
    with the columns in which those of training stood, or else those that hold texts.
    """
    if isinstance(examples, Tensor):
        return Given([str(row) for row in range(len(examples))], examples, {})
    if not isinstance(examples, list | tuple):  # which are of paths
        held = read_texts(examples, count, "the array")
        return Given([str(row) for row in range(len(held))], held, {})
    names: list[str] = []
    arrays: list[NDArray[Any]] = []
    failed: dict[str, str] = {}
    for path in map(expanded, examples):
        try:
            if stood == "files" and (path.is_dir() or path.suffix.lower() == ".txt"):
                whole = texts_below(path)
                found, rows = encoded(list(whole.values()))[:, None], list(whole)
            else:
                found = _texts(path, count, stood if isinstance(stood, list | tuple) else [])
                rows = [f"{path}:{row}" for row in range(len(found))]
        except RequestError as error:
            failed[str(path)] = str(error)
            continue
        arrays.append(found)
        names += rows
    if not arrays:
        raise RequestError(next(iter(failed.values()), "there is nothing to predict: name files of texts"))
    return Given(names, _counted(np.concatenate(arrays), count, "the files"), failed)


def read_texts(examples: Any, count: int, what: str) -> Tensor:
    """Strings in an array (N, or N×2 for pairs) as the data hold them."""
    texts = texts_in(examples, what)
    if texts is None or not texts.size:
        raise RequestError(f"{what} holds no texts, and the model was trained on texts: give an array of strings")
    return _counted(texts, count, what)


def _counted(array: NDArray[Any], count: int, what: str) -> Tensor:
    found = as_bytes({"predict": array})["predict"]
    if found.shape[1] != count:
        raise RequestError(f"{what}: {found.shape[1]} texts in an example, and the model was trained on {count}")
    return found


def _texts(path: Path, count: int, columns: Sequence[str]) -> NDArray[Any]:
    """The texts of a file, N × K, in UTF-8."""
    if not path.is_file():
        there = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise RequestError(f"{there}: name .npz, .txt or .csv files of texts, or give an array of strings")
    if path.suffix.lower() == ".npz":
        found = _npz(path)
        if not is_text(found):
            raise RequestError(
                f"{path} holds no texts, and the model was trained on texts: save strings as x, or s1, s2"
            )
    elif path.suffix.lower() in TABLES:
        cells = read_cells(path)
        found = texts_of(cells, columns or columns_of_texts(cells, asked=True), str(path))
    elif path.suffix.lower() == ".txt":
        lines = enumerate(io.StringIO(decoded(path.read_bytes()), newline=None), 1)
        rows = {number: line.strip("\n").split("\t") for number, line in lines if line.strip()}
        if wrong := next((number for number, row in rows.items() if len(row) != count), None):
            several = f"{len(rows[wrong])} text{'s' * (len(rows[wrong]) > 1)}"
            raise RequestError(f"line {wrong} of {path} has {several}: give {count}, separated by a tab")
        found = np.array(list(rows.values()))
    else:
        raise RequestError(f"{path} is of no known kind: give .npz, .txt or .csv files of texts")
    if found.size == 0:
        raise RequestError(f"{path} holds no texts")
    held = found if found.dtype.kind == "S" else np.char.encode(found, "utf-8")
    return held[:, None] if held.ndim == 1 else held


def _strange(table: DataTable, raw: Tensor, cells: Cells, path: Path) -> None:
    """Say where rows lack what no training row lacked, or hold a category that none held."""
    missing = raw.isnan()
    for column, lacking in zip(table.columns, missing.unbind(1), strict=True):
        if column.gaps and column.categories:  # a gap is nothing new there, an unknown category is
            lacking = lacking & torch.tensor([present(cell) for cell in cells[column.name]])
        elif column.gaps:
            continue
        if not lacking.any():
            continue
        first, count = int(lacking.nonzero()[0]), int(lacking.sum())
        more = f" and {count - 1} more" if count > 1 else ""
        if column.gaps:
            warnings.warn(
                f"{path}:{first}{more}: no known category in {column.name!r} ({cells[column.name][first].strip()!r}); "
                "treated as missing",
                stacklevel=2,
            )
        else:
            what = "known category" if column.categories else "number"
            warnings.warn(
                f"{path}:{first}{more}: no {what} in {column.name!r}, which all training rows have; treated as "
                f"{'none of them' if column.categories else f'the median, {column.offset + column.median:g}'}",
                stacklevel=2,
            )


def _files(paths: Iterable[str | Path], failed: dict[str, str], known: Sequence[str], pictures: bool) -> Iterator[Path]:
    for path in map(expanded, paths):
        if path.is_dir():
            found = sorted(p for p in files_below(path) if p.suffix.lower() in known and p.is_file())
            if pictures:  # a list of labels may lie beside them
                found = [p for p in found if _is_image(p)] or found
            if not found:
                kinds = ", ".join(dict.fromkeys(known))
                failed[str(path)] = f"{path} holds no {kinds}: name files, or a folder of them"
            yield from found
        elif path.is_file():
            yield path
        else:
            failed[str(path)] = f"there is no file or folder {path}"


def _listed(paths: Iterable[Path]) -> Iterator[Path]:
    """Paths, with the images that a list names in its place."""
    for path in paths:
        yield from (path.suffix.lower() in TABLES and images_of(path)) or [path]


def _read(
    path: Path, shape: tuple[int, ...], pictures: bool, columns: Sequence[str], flattened: tuple[int, ...]
) -> Tensor:
    if _is_image(path):
        if not pictures and not flattened:
            raise RequestError(
                f"{path} is an image, and the model was trained on arrays of shape {shape}: give it arrays"
            )
        channels, height, width = flattened or shape
        try:
            image = torch.from_numpy(decode(path, (height, width), channels))[None]
            return image.flatten(1).float() if flattened else image
        except Exception as error:  # Pillow raises many kinds for a damaged file
            raise RequestError(f"{path} cannot be read as an image") from error
    kind = path.suffix.lower()
    if kind not in KNOWN:
        raise RequestError(f"{path} is of an unknown kind: give {', '.join(KNOWN)}")
    try:
        array = _rows(path, prod(shape), columns) if kind in TABLES else READERS[kind](path)
    except RequestError:
        raise
    except Exception as error:  # a damaged archive makes NumPy raise many kinds
        raise RequestError(
            f"{path} cannot be read ({str(error).splitlines()[0] if str(error) else error!r})"
        ) from error
    return shaped(numeric(array, str(path), as_=kind_of(shape)), shape, str(path))


def kind_of(shape: tuple[int, ...]) -> str:
    """What truth values are read as for a model that takes this shape (see `fallow.data.layout.numeric`)."""
    return "features" if len(shape) == 1 else "images"


def shaped(array: NDArray[Any], shape: tuple[int, ...], what: str = "examples") -> Tensor:
    """Examples in the shape that a model takes: without an axis of one channel, channels last, flat, or just one.

    >>> shaped(np.zeros((5, 8, 8)), (1, 8, 8)).shape, shaped(np.zeros((8, 8, 3)), (3, 8, 8)).shape
    (torch.Size([5, 1, 8, 8]), torch.Size([1, 3, 8, 8]))
    """
    if len(shape) == 3 and shape[0] == 3 and array.dtype == np.uint8:
        array = _without_alpha(array, shape)
    first = array.shape[1:]
    last = (*shape[1:], shape[0])  # channels last
    if first != shape and array.ndim == len(shape) + 1 and last == first:
        array = np.moveaxis(array, -1, 1)
    elif first != shape and array.shape in (shape, (*shape[1:], shape[0]), shape[1:] if shape[0] == 1 else shape):
        return shaped(array[None], shape, what)
    elif first != shape and shape[0] == 1 and first == shape[1:]:
        array = array[:, None]
    elif first != shape and 1 in (len(first), len(shape)) and prod(first) == prod(shape):
        array = array.reshape(-1, *shape)
    if array.shape[1:] != shape:
        raise RequestError(f"{what} have shape {first}: the model was trained on {shape}")
    kept = array if array.dtype == np.uint8 and len(shape) > 2 else array.astype(np.float32)
    return torch.from_numpy(np.ascontiguousarray(kept))


def _without_alpha(array: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Images in four channels, first or last, laid on white as those of a training were; others as they are."""
    if array.shape[-3:] == (*shape[1:], 4):
        array = np.moveaxis(array, -1, -3)
    return on_white(array) if array.shape[-3:] == (4, *shape[1:]) else array


def _npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        found = {key.lower(): key for key in archive.files}
        parts = ("test", "val", "dev", "train")
        wanted = [*XS, *(key for part in parts for name in XS for key in (f"{name}_{part}", f"{part}_{name}"))]
        key = next((found[name] for name in wanted if name in found), None)
        if key is None and len(archive.files) == 1:
            key = archive.files[0]
        if key is None:
            raise RequestError(f"{path} holds {', '.join(archive.files) or 'nothing'}: name the array of examples x")
        if others := [found[name] for name in wanted if name in found and found[name] != key]:
            warnings.warn(f"of {path} only {key} is predicted, not {', '.join(others)}", stacklevel=2)
        fits(path, archive, [key])
        return examples_of(path, archive, found, key)


def _npy(path: Path) -> Any:
    return np.load(path, allow_pickle=False)


def _names(row: Sequence[str], trained: Sequence[str] = ()) -> bool:
    """Whether a first row holds the names of columns: a word, those that were ``trained`` on, or places, 0, 1, 2, ….

    >>> _names(["length", "3"]), _names(["0", "1", "2"]), _names(["0.1", "", "2"])
    (True, True, False)
    """
    cells = [cell.strip() for cell in row]
    if len(cells) > 1 and cells == [str(place) for place in range(len(cells))]:
        return True
    if trained and set(trained) <= set(cells):
        return True
    try:
        [float(cell) for cell in cells if cell.lower() not in GAPS]
    except ValueError:
        return True
    return False


def _rows(path: Path, wanted: int, trained: Sequence[str]) -> Any:
    """A table of numbers, a row for each example, perhaps with names in the first row.

    The columns are those that the model was ``trained`` on, if the file names them. Where there are more than
    ``wanted`` of others, those called as what is predicted or as row numbers are left out.
    """
    if path.suffix.lower() == ".csv":
        with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
            rows = [row for row in csv.reader(file) if row]
        if not rows or not _names(rows[0], trained):
            try:
                return np.array([[float(cell) if present(cell) else np.nan for cell in row] for row in rows])
            except ValueError as error:
                raise RequestError(f"{path} is not a table ({error}): give a row of features per example") from error
    cells = read_cells(path)
    kept = _chosen(cells, wanted, trained, path)
    how, _ = written(cells)
    columns = []
    for key, column in kept.items():
        values, wrong = numbers(column, how[key])
        if wrong:
            cell = column[wrong[0]]
            raise RequestError(
                f"{path} holds more than numbers ({cell!r} in row {wrong[0] + 1} of {key!r}): correct it"
            )
        columns.append(values)
    return np.stack(columns, 1)


def _chosen(cells: Cells, wanted: int, trained: Sequence[str], path: Path) -> Cells:
    """The columns of inputs, in the order of training."""
    if any(name in cells for name in trained):
        if lacking := next((name for name in trained if name not in cells), None):
            raise RequestError(f"{path} lacks the column {lacking!r}, which the model was trained with")
        return {name: cells[name] for name in trained}
    inputs = {key: column for key, column in cells.items() if not _beside(key)}
    return inputs if len(inputs) == wanted < len(cells) else cells


def _beside(name: str) -> bool:
    """Whether a column is called as one that stands beside the examples."""
    name = name.strip().lower()
    return name in TARGETS or NUMBERED.fullmatch(name) is not None


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


READERS = {".npz": _npz, ".npy": _npy}
KNOWN = (*SUFFIXES, *READERS, *TABLES)
