"""A study: the method, its baseline and its controls, in one folder that any interruption leaves whole."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

from fallow.base import files
from fallow.core.record import RunFolder
from fallow.data import Data
from fallow.semi.plan import Plan, gather
from fallow.semi.training import (
    CONFIDENCE,
    CONSTANT,
    FIXMATCH,
    FROZEN,
    MORE,
    ORACLE,
    SHUFFLED,
    SUPERVISED,
    UNTRAINED,
    ZERO,
    Outcome,
    chains,
    train,
)

ROWS = {  # of the table of controls: the training with C in the making, and the one with C as it was kept
    "confidence network": (CONFIDENCE, CONFIDENCE + FROZEN),
    CONSTANT: (CONSTANT, CONSTANT + FROZEN),
    SHUFFLED: (SHUFFLED, SHUFFLED + FROZEN),
    ZERO: (ZERO, None),
    UNTRAINED: (None, UNTRAINED),
    ORACLE: (None, ORACLE),
    "none: FixMatch": (FIXMATCH + MORE, FIXMATCH),
    "none: supervised": (SUPERVISED + MORE, SUPERVISED),
}


@dataclass
class Study:
    """What came out, by the name of the training."""

    plan: Plan
    data: Data
    outcomes: dict[str, Outcome]
    folder: Path

    @property
    def main(self) -> Outcome:
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
        }
        return found | ({"controls": self.controls()} if self.controlled else {})


def study(
    plan: Plan,
    folder: Path,
    *,
    resume: bool = False,
    baseline: bool = True,
    controls: bool = False,
    workers: int | None = None,
    device: str = "auto",
    observer: Callable[[Any], None] | None = None,
    told: Callable[[str, float], None] = lambda words, done: None,
) -> Study:
    """Train, and write ``study.json`` and ``semi.html`` into the folder.

    The trainings come one after another, shown by the ``observer``; with ``controls`` they run side by side, each in
    one thread, where there is no GPU, and ``told`` hears of every one that is done.
    """
    data = gather(plan)
    plan.chosen()  # refuses settings that are wrong before a folder is made
    RunFolder(folder).open({"semi": plan.describe(), "data": data.describe()}, resume, notes=data.notes)
    outcomes: dict[str, Outcome] = {}
    if controls:
        work = chains(plan)
        together = workers or (1 if device.startswith("cuda") or torch.cuda.is_available() else os.cpu_count() or 1)
        threads = 1 if together > 1 else None
        jobs = (
            delayed(train)(plan, names, folder, resume=resume, threads=threads, device=device) for names in work
        )  # fmt: skip
        count = sum(map(len, work))
        told(f"0 of {count} trainings done", 0.0)
        for found in Parallel(n_jobs=together, return_as="generator_unordered")(jobs):
            outcomes |= {outcome.name: outcome for outcome in found}
            told(f"{len(outcomes)} of {count} trainings done", len(outcomes) / count)
        outcomes = {name: outcomes[name] for names in work for name in names}
    else:
        names = [SUPERVISED, plan.kind] if baseline and plan.kind != SUPERVISED else [plan.kind]
        for name in names:
            told(name, 0.0)
            found = train(plan, [name], folder, resume=resume, data=data, device=device, observer=observer)
            outcomes[name] = found[0]
    done = Study(plan, data, outcomes, folder)
    files.write_json(folder / "study.json", done.describe())

    from fallow.semi.page import write

    write(done)
    return done


def command(plan: Plan, controls: bool) -> str:
    """What to type for the same study."""
    words = ["fallow", "semi", plan.data]
    defaults = Plan(plan.data, labels=1)
    for key, value in plan.describe().items():
        if key != "data" and value is not None and (key == "method" or value != getattr(defaults, key)):
            words += [f"--{key.replace('_', '-')}", str(value)]
    return shlex.join([*words, *["--controls"] * controls])
