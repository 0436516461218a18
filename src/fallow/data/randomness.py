"""The default generators of torch, numpy and random, lent to code that draws from them."""

from __future__ import annotations

import random
from types import TracebackType

import numpy as np
import torch


class Randomness:
    """Inside ``with``, the default generators (of the CPU) follow a stream of their own, unseen outside.

    A user's Dataset draws its crops from the default generators, and so does dropout between two batches.
    Kept apart, a run that resumes draws the same crops.

    >>> own = Randomness(seed=1)
    >>> with own:
    ...     first = torch.rand(2)
    >>> _ = torch.rand(5)
    >>> with own:
    ...     second = torch.rand(2)
    >>> again = Randomness(seed=1)
    >>> with again:
    ...     torch.equal(torch.rand(4), torch.cat([first, second]))
    True
    """

    def __init__(self, seed: int) -> None:
        outside = _states()
        reseed(seed)
        self._inside = _states()
        _restore(outside)

    def __enter__(self) -> None:
        self._outside = _states()
        _restore(self._inside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = _states()
        _restore(self._outside)


def reseed(seed: int) -> None:
    """Seed the default generators; those of accelerators stay as they are, no data set draws from them."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _states() -> tuple[torch.Tensor, dict[str, object], tuple[object, ...]]:
    return torch.default_generator.get_state(), np.random.get_state(legacy=False), random.getstate()


def _restore(states: tuple[torch.Tensor, dict[str, object], tuple[object, ...]]) -> None:
    torch.default_generator.set_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
