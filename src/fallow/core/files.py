"""Files that are whole or absent: written beside, synchronised, then renamed over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fallow.core.errors import WorkError


def write(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader, or a crash at any moment, sees the old content or the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WorkError(
            f"cannot write {path}: {error.strerror or error}; what was there before is intact, "
            "so make room and run the same command with --resume"
        ) from error


def sweep(folder: Path) -> None:
    """Remove what a process that was killed while writing left beside."""
    for path in folder.glob(".*.[0-9]*"):
        path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Replace a file with readable JSON."""
    write(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
