"""The default generators of torch, numpy and random, lent to code that draws from them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from types import TracebackType

import numpy as np
import torch

_States = tuple[list[torch.Tensor], dict[str, object], tuple[object, ...]]


class Randomness:
    """Inside ``with``, the default generators (of the CPU) follow a stream of their own, unseen outside.

    A user's Dataset draws its crops from the default generators, and so does dropout between two batches.
    Kept apart, a run that resumes draws the same crops. A DataLoader may have generators of its own: ``others``.

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

    def __init__(self, seed: int, others: Iterable[torch.Generator] = ()) -> None:
        self._others = list(others)
        outside = self._states()
        reseed(seed)
        for other in self._others:
            other.manual_seed(seed)
        self._inside = self._states()
        self._restore(outside)

    def __enter__(self) -> None:
        self._outside = self._states()
        self._restore(self._inside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = self._states()
        self._restore(self._outside)

    def _states(self) -> _States:
        held = [generator.get_state() for generator in (torch.default_generator, *self._others)]
        return held, np.random.get_state(legacy=False), random.getstate()

    def _restore(self, states: _States) -> None:
        for generator, state in zip((torch.default_generator, *self._others), states[0], strict=True):
            generator.set_state(state)
        np.random.set_state(states[1])
        random.setstate(states[2])


def reseed(seed: int) -> None:
    """Seed the default generators; those of accelerators stay as they are, no data set draws from them."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
