"""Arrays in a NumPy archive; no pickles are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError
from fallow.data.arrays import from_arrays
from fallow.data.parts import Parts

XS = ("x", "images", "image", "data", "features", "inputs")
YS = ("y", "labels", "label", "targets", "target")
SPLITS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
NAMES = ("class_names", "classes", "label_names", "names")


def npz(path: Path, target: str | None = None) -> Parts:
    """Read x_train, y_train, perhaps x_val, y_val, x_test, y_test, or just x, y; other arrays are left alone.

    Instead of x: images, data, features, inputs; instead of y: labels, targets; the part before or after
    (train_images); small or capital letters. An array of class names is used where it fits the labels. ``target``
    is the kind of y, where it is not to be guessed.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise RequestError(f"{path} is a single array: save x and y together with numpy.savez")
        with archive:
            return _parts(path, archive, target)
    except RequestError:
        raise
    except Exception as error:  # a damaged archive makes NumPy raise many kinds
        raise RequestError(f"{path} is no readable .npz ({error}): save it with numpy.savez") from error


def _parts(path: Path, archive: Any, target: str | None) -> Parts:
    found = {key.lower(): key for key in archive.files}
    keys = {part: _pair(path, found, spellings) for part, spellings in SPLITS.items()}
    if keys["train"] is None:
        keys["train"] = _pair(path, found, ("",))
    if keys["train"] is None:
        raise RequestError(
            f"{path} holds {', '.join(archive.files) or 'nothing'}: "
            "name its arrays x and y, or x_train, y_train, x_test, y_test (x_val, y_val)"
        )
    pairs = {
        part: (_read(path, archive, pair[0]), _read(path, archive, pair[1]))
        for part, pair in keys.items()
        if pair is not None
    }
    listed = next((found[name] for name in NAMES if name in found), None)
    names = None if listed is None else _read(path, archive, listed)
    usable = names is not None and names.ndim == 1 and names.dtype.kind == "U"
    return from_arrays(pairs, names=names.tolist() if usable and names is not None else None, target=target)


def _pair(path: Path, found: dict[str, str], spellings: tuple[str, ...]) -> tuple[str, str] | None:
    """The keys of x and y for a part."""
    for split in spellings:
        x, y = (
            next((found[key] for name in names for key in _keys(name, split) if key in found), None)
            for names in (XS, YS)
        )
        if x and y:
            return x, y
        if x or y:
            raise RequestError(f"{path} holds {x or y} without its {'labels' if x else 'examples'}: save both")
    return None


def _keys(name: str, split: str) -> tuple[str, ...]:
    return (f"{name}_{split}", f"{split}_{name}") if split else (name,)


def _read(path: Path, archive: Any, key: str) -> NDArray[Any]:
    try:
        return archive[key]
    except ValueError as error:  # NumPy refuses to unpickle
        raise RequestError(f"{key} in {path} is an array of objects: save numbers (or strings) only") from error
