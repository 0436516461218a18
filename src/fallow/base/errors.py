"""Errors are part of the interface: one line, what is wrong, what would be right."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from difflib import get_close_matches

from fallow.base.names import visible


class FallowError(Exception):
    """The base of every error that fallow raises on purpose; ``str(error)`` is one line."""

    exit_code = 1


class RequestError(FallowError, ValueError):
    """The request was wrong: nothing was done, and the line says what would be right (exit code 2)."""

    exit_code = 2


class WorkError(FallowError, RuntimeError):
    """The work itself failed (a diverging loss, a full disk): what was done so far is kept (exit code 1)."""

    exit_code = 1


class Stopped(FallowError):
    """The user stopped the work: what was done so far is kept (exit code 130, as shells have it)."""

    exit_code = 130


def plain_warnings() -> None:
    """Show warnings as notes of one line each: whoever types a command need not see where in the code they are."""
    warnings.formatwarning = lambda message, *_, **__: f"note: {visible(str(message))}\n"


def first_line(error: BaseException) -> str:
    r"""The first line of another library's message: fallow's errors are one line.

    >>> first_line(KeyError()), first_line(ValueError("wrong shape\nand much more"))
    ('KeyError', 'wrong shape')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def unknown(what: str, name: str, known: Iterable[str]) -> RequestError:
    """An error for a mistyped name, with the nearest known ones.

    >>> str(unknown("method", "sael", ["seal", "llf"]))
    "unknown method 'sael': did you mean 'seal'? (known: llf, seal)"
    """
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names[:24]) + (", …" if len(names) > 24 else "")
    return RequestError(f"unknown {what} {name!r}{hint} (known: {listed})")
