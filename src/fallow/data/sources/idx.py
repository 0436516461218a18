"""A folder of idx files, as MNIST and its kin come: plain or gzipped."""

from __future__ import annotations

import gzip
import re
from math import prod
from pathlib import Path
from typing import Any
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError
from fallow.base.machine import memory
from fallow.data.arrays import from_arrays
from fallow.data.parts import Parts

NAME = re.compile(r"(train|t10k|test)-(images|labels)[-.]idx\d-ubyte(\.gz)?")
DEFLATED = 1032  # a compressed byte never gives more
EXPECTED = "train-images-idx3-ubyte and train-labels-idx1-ubyte, perhaps t10k-… (or .gz)"


def is_idx(folder: Path) -> bool:
    """Does the folder hold idx files?"""
    return any(NAME.fullmatch(entry.name) and entry.is_file() for entry in folder.iterdir())


def idx(folder: Path) -> Parts:
    """Read train-images-idx3-ubyte, train-labels-idx1-ubyte, and t10k-… as the test set if it is there."""
    files: dict[tuple[str, str], Path] = {}
    for path in sorted(folder.iterdir(), reverse=True):  # a plain file comes after its .gz, and wins
        if (match := NAME.fullmatch(path.name)) and path.is_file():
            files["train" if match[1] == "train" else "test", match[2]] = path
    pairs = {}
    for part in ("train", "test"):
        images, labels = files.get((part, "images")), files.get((part, "labels"))
        if images and labels:
            pairs[part] = read(images, dimensions=3), read(labels, dimensions=1)
        elif images or labels or part == "train":
            raise RequestError(f"{folder} lacks the images or labels for {part}: it should hold {EXPECTED}")
    return from_arrays(pairs)


def read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """One idx file: two zero bytes, the type 8 (uint8), the number of axes, their lengths, the values."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic = file.read(4)
            if magic != bytes([0, 0, 8, dimensions]):
                raise RequestError(
                    f"{path} begins with {magic.hex() or 'nothing'}: an idx file of uint8 "
                    f"with {dimensions} axes begins with {bytes([0, 0, 8, dimensions]).hex()}"
                )
            lengths = np.frombuffer(_exactly(file, 4 * dimensions, path), ">u4").tolist()
            _check_length(path, prod(lengths))
            values = _exactly(file, prod(lengths), path)
            if file.read(1):
                raise RequestError(f"{path} is longer than the {prod(lengths)} values it announces: fetch it again")
    except (OSError, EOFError, ZlibError) as error:  # a damaged gzip
        raise RequestError(f"{path} cannot be read ({error}): fetch it again") from error
    return np.frombuffer(values, np.uint8).reshape(lengths)


def _check_length(path: Path, length: int) -> None:
    """Refuse what the header announces, if the file cannot hold it or memory cannot take it, before reading on."""
    most = path.stat().st_size * (DEFLATED if path.suffix == ".gz" else 1)
    if length > most:
        raise RequestError(f"{path} is truncated: its header announces {length} bytes: fetch it again")
    if length > memory() // 2:
        raise RequestError(
            f"{path} announces {length >> 30} GiB, more than half of this machine's memory: give a smaller one"
        )


def _exactly(file: Any, length: int, path: Path) -> bytearray:
    """``length`` bytes, read in pieces: a false header must not reserve memory that the file cannot fill."""
    content = bytearray()
    while len(content) < length:
        piece = file.read(min(1 << 20, length - len(content)))
        if not piece:
            raise RequestError(
                f"{path} is truncated: {len(content)} bytes where {length} should follow: fetch it again"
            )
        content += piece
    return content
