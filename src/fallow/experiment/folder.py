"""The folder of an experiment: ours alone while we work, and the same experiment when we come back."""

from __future__ import annotations

import re
import signal
import threading
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fallow.base import files
from fallow.base.errors import RequestError
from fallow.base.lock import locked
from fallow.experiment.runs import plain
from fallow.experiment.store import Store
from fallow.experiment.worker import LOCKS, RUNS, STOP, TOKEN

DATABASE, LOCK = "experiment.db", "lock"


@contextmanager
def home(folder: Path, what: str) -> Iterator[Store]:
    """Lock the folder, made if it is not there, and open its store."""
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file: --out needs a folder")
    token = folder / TOKEN
    # a process that was killed as it began left its lock at most
    strangers = [path for path in folder.glob("*") if path.name != LOCK and not files.is_leftover(path)]
    if strangers and not (token.exists() or (folder / DATABASE).is_file()):  # a lost token is written anew
        raise RequestError(f"{folder} holds other files and no {what}: choose an empty or a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"another process is at work in {folder}: wait for it, or choose another --out"
    with locked(folder / LOCK, wait=False, busy=busy):
        files.sweep(folder)
        _sign(token)
        for name in (LOCKS, RUNS):
            _make(folder / name)
        store = Store(folder / DATABASE)
        try:
            yield store
        finally:
            store.close()


def _sign(token: Path) -> None:
    """Write the token, anew if it is damaged: it only tells workers elsewhere that they see this very folder."""
    if token.is_dir():
        raise RequestError(f"{token} is a folder: delete it, and repeat the command")
    if not re.fullmatch(rb"[0-9a-f]{32}", token.read_bytes() if token.exists() else b""):
        files.write(token, uuid.uuid4().hex.encode())


def _make(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file: delete it, and repeat the command")
    folder.mkdir(exist_ok=True)


def same(store: Store, folder: Path, what: str, identity: dict[str, Any]) -> None:
    """Refuse a folder that holds an experiment of another identity."""
    mine, stored = plain(identity), store.read("identity")
    if stored is None:
        store.write("identity", mine)
        return
    if not isinstance(stored, dict):
        raise store.damaged("its identity is gone")
    for key in stored | mine:
        if stored.get(key) != mine.get(key):
            raise RequestError(
                f"{folder} holds another {what}: its {key} is {stored.get(key)!r}, not {mine.get(key)!r}; "
                "choose another --out"
            )


def say_drift(store: Store, folder: Path) -> None:
    """Say so if the runs that come now may differ in their bits from those that are there; each has one thread."""
    from fallow.core.record import drift, versions

    now = {name: version for name, version in versions().items() if name != "threads"}
    stored = store.read("versions")
    if stored is None:
        store.write("versions", now)
    elif drifted := drift(stored, now):
        warnings.warn(f"{folder} began with {drifted}: runs that come now may differ in their bits", stacklevel=2)


@contextmanager
def stoppable(folder: Path) -> Iterator[Path]:
    """A first Ctrl-C asks the workers to stop, by the file that is given; a second one does not wait for them."""
    flag = folder / STOP
    flag.unlink(missing_ok=True)
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def ask(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        flag.touch()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield flag
        asked = flag.exists()
        flag.unlink(missing_ok=True)  # not after a second Ctrl-C: a cluster's workers may not have seen it yet
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt
