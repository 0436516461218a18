"""Work for engines that imports nothing heavy, so that a process costs little."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Errand:
    """Leaves an outcome in its folder; before that it may kill its process, once or always."""

    folder: Path
    deadly: str = ""


def do(errand: Errand) -> None:
    errand.folder.mkdir(exist_ok=True)
    with open(errand.folder / "attempts", "a") as file:
        file.write(f"{os.getpid()}\n")
    if errand.deadly == "always" or (errand.deadly == "once" and attempts(errand.folder) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    found = {"deaf": blocked, "pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}
    (errand.folder / "outcome.json").write_text(json.dumps(found))


def do_once(errand: Errand) -> None:
    if not (errand.folder / "outcome.json").exists():
        do(errand)


def attempts(folder: Path) -> int:
    return len((folder / "attempts").read_text().splitlines())
