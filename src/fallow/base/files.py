"""Files that are whole or absent: written beside, synchronised, then renamed over."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, WorkError

LEFTOVER = ".fallow"  # how the names of files end that are being written


def write(path: Path, *pieces: bytes | memoryview) -> None:
    """Replace a file in one step: a reader, or a crash at any moment, sees the old content or the new."""
    if path.is_dir():
        raise RequestError(f"{path} is a folder, and a file should be there: delete {path}, and repeat the command")
    if path.exists() and not path.is_file():  # a rename would replace a device for everybody
        raise RequestError(f"{path} is not a regular file: choose another path")
    beside = path.with_name(f".{path.name}.{os.getpid()}{LEFTOVER}")
    try:
        with open(beside, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WorkError(
            f"cannot write {path}: {error.strerror or error}; what was there before is intact, so make room and resume"
        ) from error


def _sync(folder: Path) -> None:
    """A new name is safe only when its folder is on the disk, too; not every system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EIO):  # others: this system does not sync folders
            raise
    finally:
        os.close(handle)


def is_leftover(path: Path) -> bool:
    """Whether a process that was killed while writing left this file."""
    return path.name.startswith(".") and path.suffix == LEFTOVER


def sweep(folder: Path) -> None:
    """Remove what a process that was killed while writing left beside; only for folders that are fallow's."""
    for path in filter(is_leftover, folder.iterdir()):
        path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Whatever is there, if anything."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replace a file with readable JSON."""
    write(path, (dumps(value, indent=2) + "\n").encode())


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite has no place in it, and becomes null.

    >>> dumps({"loss": float("inf"), "name": "é"})
    '{"loss": null, "name": "é"}'
    """
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        value = _finite(value)
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a path whose bytes are no UTF-8: escaped, it is read back as it was
        text = json.dumps(value, indent=indent, allow_nan=False)
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def expanded(path: str | Path) -> Path:
    """A path with ``~`` written out."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # ~nosuch
        raise RequestError(f"{path} begins with the home of a user unknown here: write the path out") from error


def digest(path: Path) -> str:
    """What identifies the content of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
