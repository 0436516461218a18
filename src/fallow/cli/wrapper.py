"""What every verb does alike: threads, Ctrl-C, a folder of its own, and the answer as text or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, Stopped
from fallow.base.files import dumps
from fallow.base.names import slug

SAME = "the same command resumes it"
AGAIN = "the same command with --out {folder} --resume resumes it"


@contextmanager
def working(folder: Path, *, threads: int | None = None, resumes: str = SAME) -> Iterator[None]:
    """Inside, the work is done; a Ctrl-C ends it with a line that says how to resume it."""
    if threads is not None:
        most = os.cpu_count() or 1
        if not 1 <= threads <= most:
            raise RequestError(f"threads is {threads}: give 1 to {most}, as many as there are cores")
        import torch

        torch.set_num_threads(threads)
    try:
        yield
    except KeyboardInterrupt:
        kept = f": {resumes.format(folder=folder)}" if folder.exists() and any(folder.iterdir()) else ""
        raise Stopped(f"stopped{kept}") from None


def answer(found: dict[str, Any], as_json: bool, report: Callable[[], None]) -> None:
    """Print the result: one JSON object, or what a person reads."""
    if as_json:
        print(dumps(found))
    else:
        report()


def needs_out(resume: bool, out: Path | None) -> None:
    """Refuse to resume nobody knows what."""
    if resume and out is None:
        raise RequestError("--resume needs --out: the folder of the run to resume")


def free_folder(data: str, method: str, seed: int, kind: str = "") -> Path:
    """The next free folder in runs/, named after what runs there."""
    from fallow.data import folder_name

    stem = f"{kind}{folder_name(data)}-{slug(method)}-seed{seed}"
    for number in range(1, sys.maxsize):
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            return folder
    raise AssertionError("unreachable")
