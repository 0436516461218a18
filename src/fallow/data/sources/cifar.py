"""A folder of CIFAR-10 or CIFAR-100 batches, "python version".

These files are pickles, and a pickle can run any code. So nothing that a file names is ever imported: the few
names that a NumPy array is pickled with stand for recorders below, and every other name is refused.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError
from fallow.data.arrays import from_arrays
from fallow.data.parts import Parts

SIDE = 32


def is_cifar(folder: Path) -> bool:
    """Does the folder hold CIFAR batches?"""
    return (folder / "data_batch_1").is_file() or all((folder / name).is_file() for name in ("train", "test", "meta"))


def cifar(folder: Path) -> Parts:
    """Read data_batch_1 … and test_batch (CIFAR-10), or train and test (CIFAR-100, fine labels)."""
    tens = sorted(path for path in folder.glob("data_batch_*") if path.is_file())
    train = tens or [folder / "train"]
    test, meta = (folder / "test_batch", "batches.meta") if tens else (folder / "test", "meta")
    batches = [_batch(path) for path in train]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    pairs = {"train": (images, labels)}
    if test.is_file():
        pairs["test"] = _batch(test)
    return from_arrays(pairs, names=_names(folder / meta), channels_first=True)


def _batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images N×3×32×32 and labels of one file."""
    content = _load(path)
    data, labels = content.get(b"data"), content.get(b"labels", content.get(b"fine_labels"))
    pixels = data.array() if isinstance(data, _Array) else None
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != 3 * SIDE * SIDE:
        raise RequestError(f"{path} is not a CIFAR batch: its 'data' should be N×3072 values of uint8")
    if not (isinstance(labels, list) and len(labels) == len(pixels) and all(type(y) is int for y in labels)):
        raise RequestError(f"{path} is not a CIFAR batch: it should hold 'labels' or 'fine_labels', one for each image")
    return pixels.reshape(-1, 3, SIDE, SIDE), np.array(labels, np.int64)


def _names(path: Path) -> list[str] | None:
    if not path.is_file():
        return None
    content = _load(path)
    names = content.get(b"label_names", content.get(b"fine_label_names"))
    if not isinstance(names, list):
        return None
    return [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names]


def _load(path: Path) -> dict[bytes, Any]:
    """A pickled dict, its keys as bytes."""
    try:
        with path.open("rb") as file:
            content = _Reader(file, encoding="bytes").load()
    except RequestError as error:
        raise RequestError(f"{path} is refused: {error}") from None
    except Exception as error:  # damaged pickles raise of many kinds
        raise RequestError(f"{path} is not a readable CIFAR batch ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise RequestError(f"{path} is not a CIFAR batch: it should be a dict")
    return {key.encode() if isinstance(key, str) else key: value for key, value in content.items()}


class _Array:
    """Records how an array was pickled: (version, shape, dtype, Fortran order?, bytes)."""

    def __init__(self, *_: Any) -> None:
        self.shape: Any = None
        self.content: Any = None
        self.dtype: Any = None

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, fortran, self.content = state
        if fortran:
            raise RequestError("an array in Fortran order: CIFAR batches have none")

    def array(self) -> NDArray[np.uint8] | None:
        """The array, if it is one of uint8."""
        if not (isinstance(self.dtype, _DType) and self.dtype.code in ("u1", b"u1")):
            return None
        try:
            return np.frombuffer(self.content, np.uint8).reshape(self.shape)
        except (TypeError, ValueError):  # the shape does not fit the bytes
            return None


class _DType:
    """Records the name of a dtype."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like: nothing that uint8 needs."""


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """How pickles of protocol 5 build an array."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order != "C", content))
    return array


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 pickles bytes in protocol 2."""
    if encoding != "latin1":
        raise RequestError(f"the encoding {encoding!r}: CIFAR batches have none but latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """How Python 3 pickles b"" in protocol 2."""
    return b""


RECORDERS: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _latin1,
    ("__builtin__", "bytes"): _no_bytes,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
} | {
    (f"numpy.{core}.{module}", name): recorder
    for core in ("core", "_core")
    for module, name, recorder in (
        ("multiarray", "_reconstruct", _Array),
        ("numeric", "_frombuffer", _from_buffer),
    )
}


class _Reader(pickle.Unpickler):
    """Reads numbers, strings, containers and arrays; imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return RECORDERS[module, name]
        except KeyError:
            raise RequestError(
                f"it asks for {module}.{name}, which no CIFAR batch needs: do not trust this file"
            ) from None
