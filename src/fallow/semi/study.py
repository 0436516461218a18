"""A study: the method, its baseline and its controls, in one folder that any interruption leaves whole."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fallow.base import files
from fallow.base.errors import WorkError
from fallow.core.engine import find_device
from fallow.data import Data
from fallow.experiment import check, epochs_done, grid, run
from fallow.semi import training
from fallow.semi.plan import StudyPlan, gather
from fallow.semi.training import CONFIDENCE, FROZEN, ROWS, SUPERVISED, Trained, outcome, runs
from fallow.training.prepare import prepare


@dataclass
class Study:
    """What came out, by the name of the training."""

    plan: StudyPlan
    data: Data
    outcomes: dict[str, Trained]
    folder: Path
    failed: dict[str, str]  # the reasons

    @property
    def main(self) -> Trained:
        """The method that was asked for."""
        return self.outcomes[self.plan.kind]

    def controls(self) -> list[dict[str, Any]]:
        """A row for each source of weights: accuracy joint and frozen, AUROC."""
        rows = []
        for row, (joint, frozen) in ROWS.items():
            pair = [None if name is None else self.outcomes.get(name) for name in (joint, frozen)]
            if any(pair):
                told = next((o.auroc for o in reversed(pair) if o is not None and o.auroc is not None), None)
                tests = [None if o is None else o.test for o in pair]
                rows.append({"weights": row, "joint": tests[0], "frozen": tests[1], "auroc": told})
        return rows

    @property
    def controlled(self) -> bool:
        """Whether the controls were trained too."""
        return CONFIDENCE + FROZEN in self.outcomes

    def describe(self) -> dict[str, Any]:
        """As plain values: what ``study.json`` holds."""
        found: dict[str, Any] = {
            "plan": self.plan.describe(),
            "data": self.data.describe(),
            "trainings": {name: outcome.describe() for name, outcome in self.outcomes.items()},
            "failed": self.failed,
        }
        return found | ({"controls": self.controls()} if self.controlled else {})


def study(
    plan: StudyPlan,
    folder: Path,
    *,
    baseline: bool = True,
    controls: bool = False,
    told: Callable[[str], None] | None = None,
    **how: Any,
) -> Study:
    """Train, side by side where there are cores, and write ``study.json`` and ``semi.html`` into the folder.

    Interrupted, the same call resumes it. ``told`` hears what was understood of the data. ``how`` is for
    :func:`fallow.experiment.run`: ``engine``, ``address``, ``workers``, ``device``, ``watch``.
    """
    check(how.get("engine", "local"), how.get("address"), how.get("workers"))
    if how.get("engine", "local") == "local":
        find_device(how.get("device", "auto"))
    data = gather(plan)
    with torch.random.fork_rng():
        ready = prepare(plan.model, data, plan.chosen(), **plan.settings())  # refuses what is wrong before all else
    if told is not None:
        told(ready.problem.understood(ready.settings))
    names = [SUPERVISED, plan.kind] if baseline and plan.kind != SUPERVISED else [plan.kind]
    trainings = runs(plan, training.controls(plan) if controls else names)
    found = run(
        grid(trainings.values()), folder, identity=plan.how() | {f"data's {k}": v for k, v in data.describe().items()},
        progress=lambda run, at: epochs_done(at, plan.epochs), what="study", **how,
    )  # fmt: skip
    failed = {name: reason for name, one in trainings.items() if (reason := found[one.name].reason) is not None}
    if plan.kind in failed:
        raise WorkError(f"{plan.kind} failed: {failed[plan.kind]}")
    outcomes = {
        name: outcome(name, folder / "runs" / one.name, found[one.name].value)
        for name, one in trainings.items()
        if name not in failed
    }
    done = Study(plan, data, outcomes, folder, failed)
    files.write_json(folder / "study.json", done.describe())

    from fallow.semi.page import write

    write(done)
    return done


def command(plan: StudyPlan, controls: bool) -> str:
    """What to type for the same study."""
    words = ["fallow", "semi", plan.data]
    defaults = StudyPlan(plan.data, labels=1)
    for key, value in plan.describe().items():
        if key != "data" and value is not None and (key == "method" or value != getattr(defaults, key)):
            words += [f"--{key.strip('_').replace('_', '-')}", str(value)]
    return shlex.join([*words, *["--controls"] * controls])
