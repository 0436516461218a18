"""A lock that dies with its holder: one process at a time works in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallow.base.errors import RequestError

try:
    import fcntl
except ImportError:  # Windows: no lock, so two processes in one folder are the user's own care there
    fcntl = None  # type: ignore[assignment]


_HELD: dict[Path, int] = {}  # file descriptors, until this process ends or says otherwise


def hold(path: Path, busy: str) -> None:
    """Hold the lock file ``path`` from here on; refuse with ``busy`` if another process does. Once more is once."""
    known = path.resolve()
    if known in _HELD:
        return
    file = _opened(path)
    if not _taken(file):
        os.close(file)
        raise RequestError(busy)
    _HELD[known] = file


def let_go(path: Path) -> None:
    """Let another process have it."""
    if (file := _HELD.pop(path.resolve(), None)) is not None:
        os.close(file)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make a folder that is written now and then, and keep other processes out of it meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock", wait=False, busy=f"another process is at work in {folder}: choose another --out"):
        yield


@contextmanager
def locked(path: Path, wait: bool, busy: str = "") -> Iterator[None]:
    """Hold the lock file ``path``; if another process does, wait for it, or refuse with ``busy``."""
    file = _opened(path)
    try:
        while not _taken(file):
            if not wait:
                raise RequestError(busy)
            time.sleep(0.1)
        yield
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    except OSError as error:
        raise RequestError(f"{path} cannot be opened ({error.strerror}): delete it, or choose another --out") from error


def _taken(file: int) -> bool:
    """Whether the lock is ours now; where a file system has no locks, it is."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
