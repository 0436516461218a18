"""One run, in whatever process of whatever machine an engine puts it.

``outcome.json`` in the run's folder is written last, done or failed, with the identity of what was run: it is there
even if nobody waits for it any more, and it never passes for the outcome of another run.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fallow.base import files
from fallow.base.errors import FallowError, RequestError, WorkError, plain_warnings
from fallow.base.lock import locked
from fallow.experiment.runs import Run, plain

RUNS, LOCKS, TOKEN = "runs", "locks", "token.txt"  # in the experiment's folder
STOP = "stop"  # a file there that asks all workers, wherever they are, to stop
OUTCOME = "outcome.json"  # in the run's folder
FOLLOW = 0.5  # seconds between two looks at the parent
ALONE = threading.Lock()  # a cluster may work in threads, and torch's random state belongs to the whole process


class Halted(BaseException):
    """Someone asked the workers to stop."""


@dataclass(frozen=True)
class Task:
    """A run, and what a worker must know to do it."""

    run: Run
    identity: str
    home: Path  # the experiment's folder
    token: str  # what stands in it: a machine that does not see it cannot work there
    device: str  # as the user asked
    number: int  # how many runs were started before this one
    parent: int | None  # the process that waits for us, if it is on this machine and we are its child


_task: ContextVar[Task | None] = ContextVar("task", default=None)


def heed(*_: object) -> None:
    """Stop here if someone asks for it; work calls this now and then, or hands it to ``fit`` as the observer."""
    task = _task.get()
    if task is not None and (task.home / STOP).exists():
        raise Halted


def device() -> str:
    """The device for the present run: as asked, or with ``auto`` the GPUs of this machine in turn."""
    import torch

    task = _task.get()
    if task is None or task.device != "auto" or (gpus := torch.cuda.device_count()) < 2:
        return "auto" if task is None else task.device
    return f"cuda:{task.number % gpus}"


def perform(task: Task) -> dict[str, Any] | None:
    """Do a run, or what is left of it, and leave in its folder how it ended; None if it was asked to stop."""
    if _token(task.home) != task.token:
        raise WorkError(f"{task.home} is not there on this machine: put --out where all machines see it")
    if task.parent not in (None, os.getpid()):
        _follow(task.parent)
        plain_warnings()
    folder = task.home / RUNS / task.run.name
    with ALONE:
        if (task.home / STOP).exists():
            return None
        # a worker whose parent was killed may still be in here
        lock = task.home / LOCKS / task.run.name
        with locked(lock, wait=True), _one_thread(), _as_current(task):
            record = outcome(folder, task.identity)
            if record is None:
                _clear(folder, lock, task.identity)
                record = _record(task, folder)
                if record is not None:
                    files.write_json(folder / OUTCOME, record)
            return record


def outcome(folder: Path, identity: str) -> dict[str, Any] | None:
    """What a worker left in a run's folder, if it did this very run and did not fail."""
    try:
        record = json.loads((folder / OUTCOME).read_text("utf-8"))
        whole = record.keys() >= {"identity", "value", "reason", "seconds"} and isinstance(record["seconds"], float)
    except (OSError, ValueError, AttributeError):  # lost or damaged: the run is done again from its checkpoint
        return None
    return record if whole and record["identity"] == identity and record["reason"] is None else None


def _clear(folder: Path, lock: Path, identity: str) -> None:
    """Leave in the folder what this very run left there before; the lock file says whose folder it is."""
    if lock.read_bytes() != identity.encode():
        files.remove(folder)
        lock.write_text(identity)
    if not folder.is_dir():
        files.remove(folder)
        folder.mkdir(parents=True)
    files.remove(folder / OUTCOME)  # of a failure


def _record(task: Task, folder: Path) -> dict[str, Any] | None:
    value, reason, began = None, None, time.perf_counter()
    module, _, name = task.run.work.partition(":")
    left = any(folder.iterdir())
    try:
        work = partial(getattr(import_module(module), name), folder, **task.run.arguments, **task.run.paths)
        try:
            value = plain(work())
        except RequestError:  # what an earlier call left here is damaged: train it again
            if not left:
                raise
            files.remove(folder)
            folder.mkdir()
            value = plain(work())
    except Halted:
        return None
    except FallowError as error:
        reason = str(error)
    except Exception as error:  # a user's model or data may raise anything: the other runs go on
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {"identity": task.identity, "value": value, "reason": reason, "seconds": time.perf_counter() - began}


@contextmanager
def _as_current(task: Task) -> Iterator[None]:
    before = _task.set(task)
    try:
        yield
    finally:
        _task.reset(before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Workers run side by side; with one of them, this is the user's own process."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@lru_cache  # once in a process is enough
def _follow(parent: int) -> None:
    """A child whose parent was killed ends too, idle or not: the same call will go on where it was."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(FOLLOW)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _token(home: Path) -> str:
    try:
        return (home / TOKEN).read_text("ascii")
    except (OSError, ValueError):
        return ""
