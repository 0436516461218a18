"""Work for experiments that costs little."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, WorkError
from fallow.experiment import device, heed


def double(folder: Path, number: int) -> dict[str, Any]:
    mark(folder)
    return {"twice": 2 * number, "pair": (number, number)}


def read(folder: Path, times: int, file: str) -> int:
    mark(folder)
    return times * int(Path(file).read_text())


def report(folder: Path) -> dict[str, Any]:
    """Where and how the work is done."""
    import torch

    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    environment = os.environ.get("OMP_NUM_THREADS")
    return {"pid": os.getpid(), "deaf": blocked, "OMP": environment, "torch": torch.get_num_threads(), "on": device()}


def fail(folder: Path, how: str) -> None:
    mark(folder)
    if (folder.parents[1] / "repaired").exists():
        return
    if how == "own":
        raise WorkError("the loss became nan")
    if how == "other":
        raise KeyError("a bug\nof someone")


def resume(folder: Path) -> int:
    """Go on with what an earlier call left, unless it is damaged; the number of attempts that are still known."""
    mark(folder)
    left = folder / "state"
    if left.exists() and left.read_text() != "whole":
        raise RequestError(f"{left} cannot be read: choose another --out")
    left.write_text("whole")
    if not (folder.parents[1] / "repaired").exists():
        raise WorkError("interrupted")
    return attempts(folder)


def die(folder: Path, always: bool) -> int:
    """Kill the process."""
    mark(folder)
    if always or attempts(folder) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return attempts(folder)


def total(folder: Path, of: list[str]) -> int:
    """What other runs left, added up."""
    mark(folder)
    return sum(attempts(folder.parent / name) for name in of)


def patient(folder: Path, rounds: int) -> int:
    """Some rounds of a few milliseconds, kept one by one, so that it goes on where it was."""
    done = folder / "metrics.jsonl"
    while (count := len(done.read_text().splitlines()) if done.exists() else 0) < rounds:
        heed()
        time.sleep(0.02)
        with open(done, "a") as file:
            file.write(f"{count}\n")
    return count


def unspeakable(folder: Path) -> object:
    return object()


def mark(folder: Path) -> None:
    with open(folder / "attempts", "a") as file:
        file.write(f"{os.getpid()}\n")


def attempts(folder: Path) -> int:
    return len((folder / "attempts").read_text().splitlines())


def stubborn(folder: Path, seconds: float) -> None:
    """Does not heed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
