"""Commands that are killed while they work, and commands that find another at work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest


def killed(command: Callable[[], object], module: Any, function: str, call: int) -> None:
    """Run a command in a process of its own, and kill it at this call of a function."""

    def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, function, dying(getattr(module, function), call))
            with suppress(BaseException):
                command()

    child = get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def dying(function: Callable[..., Any], call: int) -> Callable[..., Any]:
    """The function, which at one of its calls kills the process."""
    calls = []

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)

    return called


def failing(function: Callable[..., Any], error: Exception, when: Callable[..., bool]) -> Callable[..., Any]:
    """The function, which fails for some arguments."""

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        if when(*given, **named):
            raise error
        return function(*given, **named)

    return called


def ended(folder: Path) -> dict[str, int]:
    """When every run of an experiment that is done was done."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("runs/*/outcome.json")}
