"""What is learned: a problem brings the streams, the network that fits, the losses, the metrics, and its record."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from fallow.base.errors import RequestError
from fallow.data import Data, load
from fallow.data.environments import Environment
from fallow.data.tasks import Tasks
from fallow.problems.control import Control
from fallow.problems.fewshot import FewShot
from fallow.problems.labelled import Labelled
from fallow.problems.problem import Network, Problem
from fallow.problems.semi import SemiLabelled

__all__ = ["Control", "FewShot", "Labelled", "Network", "Problem", "SemiLabelled", "as_problem"]


@singledispatch
def as_problem(
    data: Any, *, metric: str | None = None, loss: str | None = None, train: int | None = None, **how: Any
) -> Problem:
    """The problem that data pose; ``train`` and ``how`` are options of :func:`fallow.data.load`.

    This is the one door: whatever a user has passes through it, and nothing behind it asks what the data are.
    """
    how = {"train": train} | how
    given = [name for name, value in how.items() if name != "seed" and value is not None]
    if isinstance(data, Data) and given:
        raise RequestError(f"this Data is loaded and split already: give {given[0]} to fallow.data.load instead")
    loaded = load(data, **how)
    return (Labelled if loaded.unlabelled is None else SemiLabelled)(loaded, metric, loss)


@as_problem.register
def _(data: Environment, *, metric: str | None = None, **how: Any) -> Problem:
    return Control(data, metric)


@as_problem.register
def _(data: Tasks, *, metric: str | None = None, loss: str | None = None, **how: Any) -> Problem:
    if loss is not None:
        raise RequestError(f"loss={loss} is for masks, and these are tasks: leave it out")
    return FewShot(data, metric)
