"""Arrays in memory, kept in a comparison's folder: its runs work in other processes, and it may go on tomorrow."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fallow.base import files
from fallow.base.errors import RequestError
from fallow.comparison.plan import Plan
from fallow.comparison.work import read
from fallow.data import Data, Examples
from fallow.data.answers import array_of
from fallow.data.layout import COLOURS, numeric
from fallow.data.texts import texts_in
from fallow.experiment.folder import home

NAME = "arrays"  # of the file, and so of the data
PARTS = {1: ("train",), 2: ("train", "test"), 3: ("train", "val", "test")}


def in_memory(data: Any) -> bool:
    """Whether data are given themselves, and not by name.

    >>> in_memory("digits"), in_memory(["digits", Path("a.npz")]), in_memory((np.zeros((2, 3)), [0, 1]))
    (False, False, True)
    """
    if isinstance(data, str | Path | Iterator):
        return False
    return not (isinstance(data, Sequence | np.ndarray) and all(isinstance(item, str | Path) for item in data))


def keep(data: Any, plan: Plan, folder: Path) -> str:
    """Write ``(x, y)``, or two or three parts of such pairs, into the folder of a comparison; the path.

    Nothing is written before they are known to be readable, and other arrays than a comparison began with are refused.
    """
    if isinstance(data, Data):
        raise RequestError(
            "data is split already, and a comparison splits it anew for every seed: give what it was loaded from, "
            "a name, a path or arrays (x, y)"
        )
    if plan.fewshot:
        raise RequestError(f"{plan.methods[0]} draws tasks from data by name: give a name or a path")
    pairs = _pairs(data)
    read(pairs[0] if len(pairs) == 1 else tuple(pairs), plan.first, plan.load_options())
    arrays: dict[str, NDArray[Any]] = {}
    for part, (x, y) in zip(PARTS[len(pairs)], pairs, strict=True):
        texts = texts_in(x, f"x of {part}")
        arrays[f"x_{part}"] = (
            _channels_last(x, numeric(x, f"x of {part}", as_=plan.as_), plan.as_) if texts is None else texts
        )
        arrays[f"y_{part}"] = array_of(y, f"y of {part}", ())
    path = folder / f"{NAME}.npz"
    with home(folder, "comparison") as store:
        if not _same(path, arrays):
            if store.read("plan") is not None:
                raise RequestError(f"{folder} holds a comparison of other data: choose another out")
            held = io.BytesIO()
            np.savez(held, **arrays)  # type: ignore[arg-type]  # numpy's stub has a flag among the names
            files.write(path, held.getbuffer())
    return str(path)


def _pairs(data: Any) -> list[tuple[Any, Any]]:
    """One to three pairs of arrays."""
    if isinstance(data, tuple | list) and len(data) in (2, 3) and all(isinstance(part, tuple) for part in data):
        parts = list(data)
    else:
        parts = [data]
    if not all(isinstance(p, tuple | list) and len(p) == 2 and not isinstance(p[0], Examples) for p in parts):
        raise RequestError(
            f"data is a {type(data).__name__} that a comparison cannot keep for its runs: give names, paths, "
            "arrays (x, y), or save them by numpy.savez('mine.npz', x=x, y=y) and give 'mine.npz'"
        )
    return [tuple(part) for part in parts]


def _channels_last(x: Any, array: NDArray[Any], as_: str | None) -> NDArray[Any]:
    """Tensors of four axes are read channels first, and arrays out of a file channels last."""
    if not isinstance(x, Tensor) or array.ndim != 4 or as_ not in (None, "images"):
        return array
    first = array.shape[1] in COLOURS or (as_ is not None and array.shape[3] not in COLOURS)
    return np.moveaxis(array, 1, 3) if first else array


def _same(path: Path, arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether the file holds just these arrays."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            return set(kept.files) == arrays.keys() and all(
                kept[key].dtype == array.dtype and np.array_equal(kept[key], array) for key, array in arrays.items()
            )
    except (OSError, ValueError, EOFError):  # not there, or damaged
        return False
