"""The runs of a table: done side by side, kept in the table's folder, and found again when the command is repeated.

A table's own file says which runs it wants, what the paper has, and what a column means.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from fallow.base.errors import RequestError, WorkError, unknown
from fallow.base.files import digest, expanded
from fallow.base.numbers import SEEDS, require_whole
from fallow.core.record import versions
from fallow.data import load
from fallow.data.content import together
from fallow.experiment import Run, check, grid, run
from fallow.reproduce import TABLES
from fallow.reproduce.table import Table

Key = tuple[Any, ...]  # what a value is of, the seed last: ("LW", 3)
Found = tuple[dict[Key, Any], list[Any]]  # values by key, and the seeds of which none is missing


def reproduce(
    name: str, folder: Path, *, seeds: int | None = None, seed: int = 0, data_dir: Path | None = None, **how: Any
) -> Table:
    """One of the papers' tables; its runs are kept in the folder, where the same call resumes them.

    ``seed`` is the first of so many ``seeds``. ``how`` is for :func:`fallow.experiment.run`: ``engine``, ``address``,
    ``workers``, ``watch``.
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    if seeds is not None:
        require_whole("seeds", seeds, 1, SEEDS)
    require_whole("seed", seed, 0)
    check(how.get("engine", "local"), how.get("address"), how.get("workers"))
    module = import_module(f"fallow.reproduce.{TABLES[name].module}")
    data_dir = None if data_dir is None else expanded(data_dir).resolve()  # workers may stand elsewhere
    family = getattr(module, "FAMILY", name)  # tables that share their trainings may share a folder
    each = Runs(folder, data_dir, {"table": family, "fallow": versions()["fallow"]} | constants(module), how)
    table: Table = module.run(name, range(seed, seed + (seeds or module.SEEDS)), data_dir, each)
    table.remarks = [said.replace(f"{data_dir}{os.sep}", "") for said in table.remarks]  # names, not where they are
    table.failed, table.seconds = each.failed, round(each.seconds, 1)
    table.measured = f"fallow {versions()['fallow']}"
    return table


@dataclass
class Runs:
    """What does the runs that a table asks for."""

    folder: Path
    data_dir: Path | None
    identity: dict[str, Any]
    how: dict[str, Any]
    failed: dict[str, str] = field(default_factory=dict)  # the reasons, by the run's name
    seconds: float = 0.0  # of all runs, those that an earlier call did included

    def __call__(self, work: Callable[..., Any], jobs: Mapping[Key, Sequence[Any]]) -> Found:
        """``work(folder, *arguments)`` for the arguments of every job; see :meth:`all`."""
        names = list(signature(work).parameters)[1:]
        runs = {}
        for key, arguments in jobs.items():
            given = dict(zip(names, arguments, strict=True))
            paths = {name: value for name, value in given.items() if self._theirs(value)}
            plain = {name: value for name, value in given.items() if name not in paths}
            runs[key] = Run(named(key), f"{work.__module__}:{work.__name__}", plain, paths=paths)
        return self.all(runs)

    def all(self, runs: Mapping[Key, Run]) -> Found:
        """The values by key, and the seeds of which no run failed: with these alone, rows can be paired."""
        used = {Path(path) for run in runs.values() for path in run.paths.values() if self._theirs(path)}
        for path in sorted(used):
            if not path.exists():
                raise RequestError(f"{path} is not there: --data-dir is a folder with {path.name} in it")
        identity = self.identity | {f"{path.name}'s digest": _content(path) for path in sorted(used)}
        found = run(grid(runs.values()), self.folder, identity=identity, device="cpu", what="table", **self.how)
        self.seconds = sum(outcome.seconds for outcome in found.values())
        self.failed = {name: outcome.reason for name, outcome in found.items() if outcome.reason is not None}
        at = {key: found[run.name].value for key, run in runs.items() if run.name not in self.failed}
        seeds = list(dict.fromkeys(key[-1] for key in runs))
        whole = [seed for seed in seeds if all(key in at for key in runs if key[-1] == seed)]
        if not whole:
            name, reason = next(iter(self.failed.items()))
            raise WorkError(f"{len(self.failed)} of {len(runs)} runs failed, too many for a table, {name}: {reason}")
        return at, whole

    def _theirs(self, value: Any) -> bool:
        """Whether this is a file of the user's data: what is in it counts, not where it is."""
        return isinstance(value, str) and self.data_dir is not None and Path(value).is_relative_to(self.data_dir)


def _content(path: Path) -> str:
    """What identifies a file, or a folder: a network with its weights, or one of images by what is seen of them."""
    if path.is_file():
        return digest(path)
    if not (path / "config.json").is_file():
        return load(path).content()
    return together(
        *(piece for file in sorted(path.rglob("*")) if file.is_file() for piece in (file.name, digest(file)))
    )


def named(key: Key) -> str:
    """A key as the name of a run.

    >>> named(("CG (3), guarded", 100, 0))
    'CG-3-guarded-100-0'
    """
    return "-".join(re.sub(r"[^\w.+]+", "-", str(part)).strip("-") for part in key)


def constants(module: ModuleType) -> dict[str, Any]:
    """What a table's file sets in capitals: whoever changes a size there has another table."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        try:
            found |= {name: json.loads(json.dumps(value))} if name.isupper() and name != "SEEDS" else {}
        except TypeError:  # solvers, functions
            continue
    return found
