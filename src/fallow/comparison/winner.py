"""What a user takes home: the best row of all on validation, taught all labels once everything is chosen.

The row is a method with a network, or a yardstick. Where it learned from the training part alone, it is trained again
on training and validation together, as a run of the experiment, with all that validation had chosen; the judged one is
kept where that is not wanted, or cannot be.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.comparison.policy import settled
from fallow.core.record import RunFolder
from fallow.evaluate.calibration import temperature
from fallow.experiment import Experiment, Run

if TYPE_CHECKING:
    from fallow.comparison.race import Runner
    from fallow.comparison.run import Comparison
    from fallow.comparison.yardsticks import Measured
    from fallow.report.shown import Shown

NAME = "winner"  # of the run


@dataclass(frozen=True)
class Taken:
    """The winner as it is kept."""

    entry: Runner  # the judged row; of a yardstick, made up from what it measured
    folder: Path  # of the run that is kept
    weights: str  # "last" or "best", in it
    temperature: float | None = None  # by which logits are divided, as validation likes it; None: no classes
    labels: int | None = None  # that it was taught in the end; None: it is the judged one
    test: float | None = None  # of that one
    notes: list[str] = field(default_factory=list)

    def said(self, shown: Shown) -> list[str]:
        """What was done to it after it was chosen."""
        found = list(self.notes)
        if self.labels is not None:
            tested = "" if self.test is None else f"; {shown.words} on test {shown.full(self.test)}"
            found.append(
                f"Once everything was chosen, it was trained again on all {self.labels:,} labels, validation included"
                f"{tested} (--no-refit keeps the model of the race)."
            )
        if self.temperature is not None:
            found.append(
                f"Its probabilities are calibrated on validation: logits are divided by {self.temperature:.3g}."
            )
        return found

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {"labels": self.labels, "test": self.test, "temperature": self.temperature}


def take(comparison: Comparison, experiment: Experiment, **where: Any) -> Taken | None:
    """Train the winner again on all labels, if the plan wants it, and say what is to be kept."""
    findings, plan = comparison.findings(), comparison.plan
    entry = findings.winner
    if entry is None or plan.fewshot:
        return None if entry is None else Taken(entry, comparison.folder / entry.folder, plan.score)
    learner = next((row for row in comparison.yardsticks if (row.data, row.name) == (entry.data, entry.method)), None)
    judged = None if learner is not None else comparison.folder / entry.folder
    heat = learner.temperature[learner.best] if learner is not None else _heat(judged, plan.score)  # type: ignore[arg-type]
    notes = []
    whole = plan.refit and (judged is None or plan.score == "last")
    if plan.refit and not whole:
        notes.append("It was not trained again on all labels: only validation could say for how long.")
    if whole or judged is None:
        run = _run(comparison, entry, learner, whole)
        experiment.run(lambda ended: [run], **where)
        outcome = comparison.state.outcomes[NAME]
        if outcome.reason is None:
            labels = outcome.value["labels"] if whole else None
            return Taken(entry, comparison.folder / "runs" / NAME, "last", heat, labels, outcome.value["test"], notes)
        notes.append(f"It could not be trained on all labels ({outcome.reason}): the model of the race is kept.")
        if judged is None:
            return None
    assert judged is not None
    return Taken(entry, judged, plan.score, heat, notes=notes)


def _heat(judged: Path, score: str) -> float | None:
    """The temperature that validation likes; None where answers are no classes, or outputs were not kept."""
    found = RunFolder(judged).outputs()
    if f"val_{score}" not in found or found["val_y"].is_floating_point() or found["val_y"].ndim != 1:
        return None
    return temperature(found[f"val_{score}"], found["val_y"])


def _run(comparison: Comparison, entry: Runner, learner: Measured | None, whole: bool) -> Run:
    plan, source = comparison.plan, comparison.source_of(entry)
    common = {
        "data": source, "version": comparison.loaded[source].content(), "load": plan.load_options(), "seed": entry.seed,
        "whole": whole, "metric": comparison.metric.name,
    }  # fmt: skip
    paths = {"root": os.getcwd()}
    if learner is not None and learner.network is None:
        chosen = {"model": entry.model, "name": learner.name, "chosen": learner.chosen[learner.best]}
        return Run(NAME, "fallow.comparison.work:learn", common | chosen, paths=paths)
    if learner is not None:
        strength = learner.chosen[learner.best]["strength"]
        how: dict[str, Any] = {"method": f"probe:strength={strength}", "weights": None, "settings": {}}
        return Run(NAME, "fallow.comparison.work:again", common | how | {"model": learner.network}, paths=paths)
    folder = comparison.folder / entry.folder
    record = RunFolder(folder).record()
    settings = {key: value for key, value in record["settings"].items() if key not in ("seed", "patience", "metric")}
    method = str(settled(record["method"], RunFolder(folder).history()))
    race = comparison.state.runs[folder.name]
    how = {"method": method, "weights": plan.weights, "settings": settings, "model": entry.model}
    return Run(NAME, "fallow.comparison.work:again", common | how, race.cost, paths=paths)
