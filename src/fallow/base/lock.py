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


_HELD: dict[Path, int] = {}  # open files, until this process ends or says otherwise


def hold(path: Path, busy: str) -> None:
    """Hold the lock file ``path`` from here on; refuse with ``busy`` if another process does. Once more is once."""
    known = path.resolve()
    if known in _HELD:
        return
    file = _opened(path)
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RequestError(busy) from None
    except OSError:  # a file system without locks
        pass
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


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    except OSError as error:
        raise RequestError(f"{path} cannot be opened ({error.strerror}): delete it, or choose another --out") from error


@contextmanager
def locked(path: Path, wait: bool, busy: str = "") -> Iterator[None]:
    """Hold the lock file ``path``; if another process does, wait for it, or refuse with ``busy``."""
    file = _opened(path)
    try:
        while fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait:
                    raise RequestError(busy) from None
                time.sleep(0.1)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(file)
