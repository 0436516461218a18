"""Files that are whole or absent: written beside, synchronised, then renamed over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fallow.base.errors import WorkError

LEFTOVER = ".fallow"  # how the names of files end that are being written


def write(path: Path, *pieces: bytes | memoryview) -> None:
    """Replace a file in one step: a reader, or a crash at any moment, sees the old content or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}{LEFTOVER}")
    try:
        with open(beside, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WorkError(
            f"cannot write {path}: {error.strerror or error}; what was there before is intact, "
            f"so make room and go on with --out {path.parent} --resume"
        ) from error


def is_leftover(path: Path) -> bool:
    """Whether a process that was killed while writing left this file."""
    return path.name.startswith(".") and path.suffix == LEFTOVER


def sweep(folder: Path) -> None:
    """Remove what a process that was killed while writing left beside; only for folders that are fallow's."""
    for path in filter(is_leftover, folder.iterdir()):
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replace a file with readable JSON."""
    write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
