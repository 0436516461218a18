"""What an experiment consists of: runs, their outcomes, and a policy that says which runs are wanted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fallow.base.errors import WorkError

HOME = "fallow."  # where work comes from: no name out of a file or a flag makes a worker import anything else
NAME = re.compile(r"(?!\.\.?$)[\w.+=,@-]{1,240}")


@dataclass(frozen=True)
class Run:
    """One piece of work: ``function(folder, **arguments, **paths)`` in a worker, in a folder of its own.

    ``after`` names runs that must be done first; what they left is in ``folder.parent / name``.
    """

    name: str  # unique in its experiment, and the name of its folder
    work: str  # "fallow.module:function"
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)  # plain values, as JSON has them
    cost: float = 1.0  # relative to the others: for the time left, and long ones start first
    after: tuple[str, ...] = ()
    paths: dict[str, str] = field(default_factory=dict, hash=False)  # arguments too, that decide nothing but where

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a run: letters, digits and . + = , @ - _ can")
        if not self.work.startswith(HOME) or ":" not in self.work:
            raise ValueError(f"{self.work!r} is no work: it must be a function of fallow, as {HOME}module:function")
        object.__setattr__(self, "arguments", plain(self.arguments))


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a value, or with the reason why it failed."""

    run: Run
    value: Any = None
    reason: str | None = None
    seconds: float = 0.0  # since it was last begun


Outcomes = Mapping[str, Outcome]  # by the run's name, in the order in which they ended
Policy = Callable[[Outcomes], Sequence[Run]]  # pure: the same outcomes, the same runs


def grid(runs: Iterable[Run]) -> Policy:
    """The policy that always wants the same runs."""
    fixed = tuple(runs)
    return lambda outcomes: fixed


def values(outcomes: Outcomes) -> dict[str, Any]:
    """What every run gave, by name; an error if one failed."""
    failed = [outcome for outcome in outcomes.values() if outcome.reason is not None]
    if failed:
        first = failed[0]
        raise WorkError(f"{len(failed)} of {len(outcomes)} runs failed, first {first.run.name}: {first.reason}")
    return {name: outcome.value for name, outcome in outcomes.items()}


def identity(run: Run, others: Mapping[str, Run]) -> str:
    """A digest of all that decides what a run gives: its work, its arguments, and the runs it comes after."""
    before = [identity(others[name], others) for name in run.after]
    return hashlib.sha256(json.dumps([run.work, run.arguments, before], sort_keys=True).encode()).hexdigest()


def plain(value: Any) -> Any:
    """A value as it comes back from a file: lists for tuples, text for keys."""
    return json.loads(json.dumps(value))
