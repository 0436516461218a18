"""What examples are told apart by: their content, hashed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHUNK = 1 << 20  # bytes of a file at a time


def of_tensor(x: Tensor) -> bytes:
    """Type, shape and values of a tensor, hashed."""
    content = hashlib.sha256(f"{x.dtype} {tuple(x.shape)}".encode())
    content.update(_raw(x))
    return content.digest()


def of_rows(x: Tensor) -> list[bytes]:
    """Every example of a tensor, hashed.

    >>> one, other, again = of_rows(torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> one == again, one == other
    (True, False)
    """
    raw = _raw(x)
    row = len(raw) // max(1, len(x))
    return [hashlib.blake2b(raw[i : i + row], digest_size=16).digest() for i in range(0, len(raw), row)] if row else []


def of_files(paths: Iterable[Path]) -> list[bytes]:
    """The bytes of every file, hashed, by threads; a file that has not changed is read once in a process."""

    def attempt(path: Path) -> bytes:
        try:
            status = os.stat(path)
            return _of_file(str(path), status.st_size, status.st_mtime_ns)
        except OSError as error:
            return str(error.errno).encode()  # gone: that is content of another kind

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(attempt, paths))


@lru_cache(maxsize=1 << 21)
def _of_file(path: str, size: int, changed: int) -> bytes:
    content = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(CHUNK):
            content.update(piece)
    return content.digest()


def together(*pieces: Any) -> str:
    """One digest of several: bytes, or whatever prints the same when it is the same."""
    content = hashlib.sha256()
    for piece in pieces:
        plain = piece if isinstance(piece, bytes) else repr(piece).encode("utf-8", "surrogateescape")
        content.update(f"{len(plain)} ".encode())
        content.update(plain)
    return content.hexdigest()


def _raw(x: Tensor) -> memoryview:
    """The bytes of a tensor, of any type, on the host."""
    held = x.detach().cpu().contiguous()
    return held.reshape(-1).view(torch.uint8).numpy().data if held.numel() else memoryview(b"")
