"""One run of a comparison, in whatever process of whatever machine an engine puts it.

The run's folder tells how it went, so every engine is the same to the process that waits: ``outcome.json`` is
written last, whether the run is done or has failed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fallow.base import files
from fallow.base.errors import FallowError, WorkError
from fallow.base.lock import locked
from fallow.comparison.plan import Cell

OUTCOME = "outcome.json"
STOP = "stop"  # a file in the comparison's folder that asks all workers, wherever they are, to stop
CHECKPOINT_EVERY = 10.0  # seconds
FOLLOW = 0.5  # seconds between two looks at the parent
ALONE = threading.Lock()  # a cluster may work in threads, and torch's random state belongs to the whole process


class Halted(Exception):
    """Someone asked the workers to stop."""


@dataclass(frozen=True)
class Task:
    """A cell, and what a worker must know to run it."""

    cell: Cell
    folder: Path  # of the run
    comparison: str  # the token in the comparison's folder: a machine that does not see it cannot work there
    source: str  # the data, with an absolute path
    load: tuple[tuple[str, Any], ...]  # how to load it
    version: str  # digest of the data: a worker may have loaded an older one
    weights: str | None
    device: str
    parent: int | None  # the process that waits for us, if it is on this machine and we are its child


def work(task: Task) -> None:
    """Run a cell, or what is left of it, and leave the outcome in its folder."""
    home = task.folder.parent.parent
    if _token(home) != task.comparison:
        raise WorkError(f"{home} is not there on this machine: put --out where all machines see it")
    if task.parent not in (None, os.getpid()):
        _follow(task.parent)
    with ALONE:
        if (home / STOP).exists():
            return
        task.folder.mkdir(parents=True, exist_ok=True)
        # a worker whose parent was killed may still be in here
        with locked(home / "locks" / task.folder.name, wait=True), _one_thread():
            if outcome(task.folder) is None and (record := _run(task)) is not None:
                files.write_json(task.folder / OUTCOME, record)


def outcome(folder: Path) -> dict[str, Any] | None:
    """What a worker left in a run's folder when it was done."""
    try:
        return json.loads((folder / OUTCOME).read_text("utf-8"))
    except FileNotFoundError:
        return None


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


def _run(task: Task) -> dict[str, Any] | None:
    """The record of a run, or None if it was asked to stop."""
    from fallow.training.fit import fit

    cell = task.cell
    try:
        result = fit(
            cell.model,
            _load(task.source, task.load, cell.seed, task.version),
            cell.method,
            weights=task.weights,
            out=task.folder,
            resume=(task.folder / "run.json").exists(),
            device=task.device,
            observer=lambda _: _heed(task),
            checkpoint_every=CHECKPOINT_EVERY,
            test_at_end=True,
            **cell.settings,
        )
    except Halted:
        return None
    except FallowError as error:
        return {"reason": str(error)}
    except Exception as error:  # a user's model or data may raise anything: the other runs go on
        return {"reason": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    return result.describe()


@lru_cache(maxsize=2)  # the cells of a seed come one after another
def _load(source: str, options: tuple[tuple[str, Any], ...], seed: int, version: str) -> Any:
    from fallow.data import load

    return load(source, seed=seed, **dict(options))


@lru_cache  # once in a process is enough
def _follow(parent: int) -> None:
    """A child whose parent was killed ends too, idle or not: the same command will go on from its checkpoint."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(FOLLOW)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _heed(task: Task) -> None:
    """Stop if someone asks for it."""
    if (task.folder.parent.parent / STOP).exists():
        raise Halted


def _token(home: Path) -> str:
    try:
        return (home / "token").read_text()
    except OSError:
        return ""


def absolute(source: str) -> str:
    """The source for workers that may stand elsewhere: paths become absolute."""
    from fallow.data import BUNDLED

    return source if source.partition(":")[0] in BUNDLED else str(Path(source).expanduser().resolve())
