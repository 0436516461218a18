"""A folder per class with an example in every file, a text or an array, perhaps under train/, val/ and test/."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError
from fallow.base.machine import memory
from fallow.data.arrays import from_arrays
from fallow.data.examples import Examples
from fallow.data.groups import of_files
from fallow.data.images import SUFFIXES
from fallow.data.parts import Parts
from fallow.data.sources.places import beside, files_below, folders_in, nested, printable, refuse_parts_below, splits
from fallow.data.sources.table import decoded
from fallow.data.sources.wanted import alike
from fallow.data.texts import encoded

TXT, NPY = ".txt", ".npy"


def kind_of_files(root: Path) -> str | None:
    """Of which kind the examples in the folders of a folder are, if most are no images, which may have captions."""
    counts = Counter(path.suffix.lower() for place in folders_in(root) for path in files_below(place))
    most = max((NPY, TXT), key=lambda suffix: counts[suffix])
    return most if counts[most] > 2 * sum(counts[suffix] for suffix in SUFFIXES) else None


def each_a_file(root: Path, suffix: str, as_: str | None = None, groups: str | None = None) -> Parts:
    """Read every file with this suffix; those whose names are the same before the separator ``groups`` belong together.

    Arrays must have one shape, and are laid out as those of a .npz are (`fallow.data.layout.layout`).
    """
    if groups is not None and not isinstance(groups, str):
        raise RequestError("groups of a folder are read from its file names: give the separator after the group")
    notes: list[str] = []
    places = splits(root)
    beside(root, places, notes)
    nested(places, notes)
    files = {part: _files(base, suffix, notes) for part, base in places.items()}
    paths = {part: [path for _, path in held] for part, held in files.items()}
    labels = {part: np.array([printable(place.name) for place, _ in held]) for part, held in files.items()}
    read = _texts if suffix == TXT else _arrays
    parts = from_arrays({part: (read(held), labels[part]) for part, held in paths.items()}, target="classes", as_=as_)
    parts.notes += notes + alike(printable(root.resolve().name), list(parts.target.names))
    parts.groups = None if groups is None else of_files(paths, groups, parts.notes)
    if suffix == TXT:
        parts.texts_of = "files"
        held = [part.x for part in (parts.train, parts.val, parts.test) if isinstance(part, Examples)]
        if empty := sum(int((~x.flatten(1).any(1)).sum()) for x in held):
            parts.notes.append(f"{empty} file{'s are' if empty > 1 else ' is'} empty.")
    return parts


def texts_below(place: Path) -> dict[str, str]:
    """The texts of a folder's files, or of one file, by name."""
    if not place.exists():
        raise RequestError(f"there is no file or folder {place}")
    paths = sorted(files_below(place)) if place.is_dir() else [place]
    found = [path for path in paths if path.suffix.lower() == TXT and path.is_file()]
    if not found:
        raise RequestError(f"{place} holds no {TXT} files: name those of the texts to predict")
    return {str(path): decoded(path.read_bytes()) for path in found}


def _files(base: Path, suffix: str, notes: list[str]) -> list[tuple[Path, Path]]:
    """The folder and the path of every example of a part, in a fixed order."""
    places = folders_in(base)
    refuse_parts_below(places)
    found: list[tuple[Path, Path]] = []
    others = 0
    for place in places:
        files = sorted(path for path in files_below(place) if path.is_file())
        wanted = [path for path in files if path.suffix.lower() == suffix]
        if not wanted:
            raise RequestError(f"class {printable(place.name)!r} in {base} has no {suffix}: add some, or remove it")
        others += len(files) - len(wanted)
        found += [(place, path) for path in wanted]
    if others:
        notes.append(f"{others} file{'s' * (others > 1)} in {printable(base.name)} ignored: not {suffix}.")
    return found


def _texts(paths: list[Path]) -> NDArray[np.bytes_]:
    return encoded([decoded(path.read_bytes()) for path in paths])


def _arrays(paths: list[Path]) -> NDArray[Any]:
    """The arrays of files, stacked."""
    if (size := sum(path.stat().st_size for path in paths)) > memory():
        raise RequestError(f"the arrays have {size >> 30} GB, more than this machine's memory: make them smaller")
    arrays = []
    for path in paths:
        try:
            arrays.append(np.load(path, allow_pickle=False))
        except Exception as error:  # a damaged file makes NumPy raise many kinds
            raise RequestError(f"{path} is not a readable .npy ({error}): save numbers by numpy.save") from error
        if arrays[-1].shape != arrays[0].shape:
            raise RequestError(
                f"{path} has shape {arrays[-1].shape}, and {paths[0].name} {arrays[0].shape}: "
                "cut or fill them to one shape"
            )
    return np.stack(arrays)
