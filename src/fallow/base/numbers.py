"""Numbers that a user gave: one that cannot be meant is refused in a line, before anything is done."""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Any

from fallow.base.errors import RequestError

MOST = 1_000_000  # of epochs, steps, examples in a batch: a larger count is a slip of the hand
SEEDS = 1_000  # trainings of a kind in one call
LARGEST = 2**63 - 1  # a seed, and what files and tensors hold
SIDE_BY_SIDE = 8  # processes for a core


def is_whole(value: Any, least: int, most: int = MOST) -> bool:
    """Whether this is a whole number in its bounds; True is none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def is_finite(value: Any) -> bool:
    """Whether this is a number that a float holds, and no whole one that nobody counts to."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return abs(int(value)) <= LARGEST if isinstance(value, Integral) else abs(float(value)) <= sys.float_info.max


def require(fits: bool, name: str, value: object, what: str) -> None:
    """Refuse a value that does not fit; of a very long number, its size is shown.

    >>> require(False, "epochs", 10**80, "a whole number from 1")
    Traceback (most recent call last):
    fallow.base.errors.RequestError: epochs is about 2^265: it must be a whole number from 1
    """
    if not fits:
        beyond = isinstance(value, int) and abs(value) > 10**30  # Python refuses to write out thousands of digits
        shown = f"about 2^{int(value).bit_length() - 1}" if beyond else str(value)  # type: ignore[call-overload]
        raise RequestError(f"{name} is {shown if len(shown) <= 40 else shown[:20] + '…'}: it must be {what}")


def require_whole(name: str, value: Any, least: int = 1, most: int = MOST) -> None:
    """Refuse all but a whole number in its bounds.

    >>> require_whole("seeds", -1)
    Traceback (most recent call last):
    fallow.base.errors.RequestError: seeds is -1: it must be a whole number from 1 to 1000000
    """
    require(is_whole(value, least, most), name, value, f"a whole number from {least} to {most}")
