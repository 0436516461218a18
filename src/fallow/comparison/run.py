"""Carry out a plan: what is missing runs, side by side; killed anywhere, the same call resumes it."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fallow.base import files, notebook
from fallow.base.errors import RequestError
from fallow.comparison.ensemble import complete
from fallow.comparison.findings import Findings, find
from fallow.comparison.labels import LabelCurves
from fallow.comparison.plan import METHODS, TASKS, UNEVEN, Plan
from fallow.comparison.policy import entry, learned, races, runs, tuned
from fallow.comparison.race import Runner, plain, steps
from fallow.comparison.recipes import with_recipes
from fallow.comparison.winner import Taken
from fallow.comparison.work import absolute, read
from fallow.comparison.yardsticks import Measured, said
from fallow.comparison.yardsticks import entry as entry_of
from fallow.data import Examples, Files
from fallow.data.leaks import uneven
from fallow.data.normalise import spaced
from fallow.evaluate.metrics import LOSS, Metric
from fallow.experiment import Experiment, Run, State, opened
from fallow.problems import as_problem
from fallow.report.shown import Shown
from fallow.transfers.transfer import Transfer

FEW = 64  # examples on which trainings behind frozen layers are tried before the first run


@dataclass(repr=False)
class Comparison:
    """A comparison as it stands, for the terminal and the report."""

    folder: Path
    plan: Plan
    loaded: dict[str, Any]  # source → Data, of the first seed
    state: State = field(default_factory=State)
    yardsticks: list[Measured] = field(default_factory=list)  # what ordinary learners reach on the same splits
    taken: Taken | None = None  # the winner as it is kept
    transfers: dict[str, Transfer] = field(default_factory=dict)  # by setting: what features are worth on other data

    def __repr__(self) -> str:
        data, done = " and ".join(self.labels.values()), len(self.entries)
        methods, seeds = len(self.plan.methods), self.plan.seeds
        return (
            f"Comparison({data}: {methods} methods × {seeds} seeds, {done} of {len(self.runs)} runs done; "
            f"{self.folder / 'report.html'})"
        )

    def _repr_html_(self) -> str:
        """A row for every method in every setting, and the verdict."""
        findings, shown = self.findings(), Shown.of(self.metric)
        head = ["data", "model", "method", "seeds", f"test {shown.words}", "95 % interval", "verdict"]
        rows = [
            [
                setting.data, setting.model, row.method, str(len(row.scores)),
                shown.full(row.estimate.mean) if row.estimate else "",
                shown.interval(row.estimate) if row.estimate else "",
                row.verdict,
            ]
            for setting in findings.settings
            for row in setting.rows
        ]  # fmt: skip
        return notebook.table(findings.sentence, head, rows)

    def keep_plan(self, plan: Plan, experiment: Experiment) -> None:
        """Compare by this plan from now on, and whenever the comparison is resumed."""
        self.plan = plan
        experiment.store.write("plan", plan.describe())
        files.write(self.folder / "plan.toml", plan.toml().encode())

    @property
    def runs(self) -> list[Run]:
        """Every run of the race, in the order of the plan: it decides between equals, not who ended first."""
        found = [run for run in self.state.runs.values() if races(run)]
        return sorted(found, key=self._place)

    def _place(self, run: Run) -> tuple[int, int, int, int]:
        asked, plan = run.arguments, self.plan
        source, model = asked["data"], asked["model"]
        models = self.models(source)
        return plan.data.index(source), models.index(model), plan.methods.index(asked["method"]), asked["seed"]

    @property
    def entries(self) -> dict[str, Runner]:
        """What the runs gave that ended, by name, in the order of the plan."""
        ended = self.state.outcomes
        return {run.name: self.entry(run) for run in self.runs if run.name in ended}

    def entry(self, run: Run) -> Runner:
        """What a run gave, by the epoch that counts."""
        return entry(self.state.outcomes[run.name], self.plan.score, self.metric)

    @property
    def metric(self) -> Metric:
        """What judges: the one that was asked for, or the target's own."""
        return as_problem(next(iter(self.loaded.values())), metric=self.plan.settings.get("metric")).metric or LOSS

    @property
    def labels(self) -> dict[str, str]:
        """Source → the name to show: the data's own, or the source itself where two have the same."""
        names = [data.name for data in self.loaded.values()]
        return {s: data.name if names.count(data.name) == 1 else s for s, data in self.loaded.items()}

    def named(self, entry: Runner) -> Runner:
        """An entry with the name of its data to show."""
        return dataclasses.replace(entry, data=self.labels[entry.data])

    def first(self, source: str) -> list[Run]:
        """The runs of the first seed on a data set, wanted by now or not."""
        possible = runs(dataclasses.replace(self.plan, seeds=1), self.loaded, dict.fromkeys(self.plan.data, ""))
        return [run for run in possible if run.arguments["data"] == source]

    def models(self, source: str) -> list[str]:
        """The models of a data set."""
        plan = self.plan
        return [self.loaded[source].model] if plan.fewshot and not plan.models else plan.models_of(source)

    def settings(self, source: str) -> dict[str, Any]:
        """The settings of the training of a data set's first model, before it is tuned."""
        plan = self.plan
        return TASKS | plan.settings if plan.fewshot else plan.recipe(source, self.models(source)[0])

    def source_of(self, entry: Runner) -> str:
        """The source of the data of an entry, named or not."""
        return next(source for source, label in self.labels.items() if entry.data in (source, label))

    def _winner(self, found: Findings) -> Runner | None:
        """The best row on validation, of networks and of yardsticks; these two on the seeds that yardsticks see."""
        network, worth = found.winner, self.metric.worth
        rows = [row for row in self.yardsticks if network is not None and row.data == network.data]
        if network is None or not rows:
            return network
        best = max(rows, key=lambda row: worth(statistics.fmean(row.val)))
        setting = next(s for s in found.settings if (s.data, s.model) == (network.data, network.model))
        seen, row = setting.first_seeds(len(best.val)), setting.row(network.method)
        same = [row.validations[seed] for seed in seen if seed in row.validations]
        beaten = worth(statistics.fmean(best.val)) > worth(statistics.fmean(same) if same else row.validation)
        return entry_of(best, self.plan.first) if beaten else network

    def findings(self) -> Findings:
        """The verdicts on what is done so far."""
        labels = self.labels
        named = [self.named(entry) for entry in self.entries.values()]
        described = {
            labels[source]: data.describe() | {"steps": steps(data, self.metric)}
            for source, data in self.loaded.items()
        }
        overlaps = {labels[source]: data.overlap for source, data in self.loaded.items()}
        found = find(named, described, overlaps, self.plan.budget, self.metric, self.plan.rules(self.metric))
        if self.plan.tune:
            chosen = tuned(self.plan, self.loaded, self.state.outcomes, self.metric)
            by_label = {(labels[source], model): here for (source, model), here in chosen.items()}
            for setting in found.settings:
                for row in setting.rows:
                    row.tuned = by_label[setting.data, setting.model].get(row.method)
        if self.plan.labels:
            curves = learned(self.plan, self.loaded, self.state.outcomes, self.metric)
            shown = {(labels[source], model): here for (source, model), here in curves.items()}
            for setting in found.settings:
                setting.labels = shown[setting.data, setting.model]
        found.beaten = said(found.settings, self.yardsticks)
        found.winner = self._winner(found)
        sources = {label: source for source, label in labels.items()}
        for setting in found.settings:
            if not self.plan.fewshot:
                target = self.loaded[sources[setting.data]].target
                complete(setting, named, target, self.folder, self.plan)
        return found


@contextmanager
def begun(plan: Plan, folder: Path) -> Iterator[tuple[Comparison, Experiment]]:
    """A comparison in its folder; nothing is written before the request is known to be right."""
    loaded = _loaded(plan)
    plan = with_recipes(plan, loaded)
    versions = {source: data.content() for source, data in loaded.items()}
    plan = _checked(_entered(plan, loaded), loaded, versions, folder)
    with opened(folder, "comparison") as experiment:
        store = experiment.store
        stored = store.read("plan")
        if stored is not None:
            plan = plan.merged(stored, folder, looked=bool(store.records()))
            loaded = _loaded(plan, loaded)
            plan = with_recipes(plan, loaded)
        _check_unchanged(experiment, plan, {source: data.content() for source, data in loaded.items()})
        comparison = Comparison(folder, plan, loaded, experiment.state)
        comparison.keep_plan(plan, experiment)
        yield comparison, experiment


def _loaded(plan: Plan, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The data sets of a plan, of its first seed, with what there is to say of them."""
    known, metric = known or {}, plan.settings.get("metric")
    return {
        s: known.get(s) or as_problem(read(s, plan.first, plan.load_options()), metric=metric).data for s in plan.data
    }


def _entered(plan: Plan, loaded: dict[str, Any]) -> Plan:
    """The methods that nobody named: where the classes are uneven, what evens them out is among them."""
    if _contestants(plan) != set(METHODS) or plan.settings.get("metric") is not None:
        return plan
    classes = {source: data.classes for source, data in loaded.items() if data.target.kind == "classes"}
    ys = {source: getattr(loaded[source].train, "y", None) for source in classes}
    if not any(isinstance(y, Tensor) and uneven(y, classes[source]) for source, y in ys.items()):
        return plan
    return dataclasses.replace(plan, methods=(*plan.methods, UNEVEN))


def _contestants(plan: Plan) -> set[str]:
    return {method for method in plan.methods if not plain(method)}


def _checked(plan: Plan, loaded: dict[str, Any], versions: dict[str, str], folder: Path) -> Plan:
    """What would fail in every run is refused before the first; where nobody named the methods, it is left out."""
    from fallow.training.prepare import prepare

    for source in loaded:
        if folder.resolve().is_relative_to(absolute(source, os.getcwd())):
            raise RequestError(f"{folder} is inside the data {source}: choose another --out")
    if plan.labels and (plan.seeds < 2 or plan.fewshot):
        raise RequestError("labels needs labelled examples and 2 seeds or more, to tell how far a curve can be trusted")
    kinds = {data.target.kind: source for source, data in loaded.items()}
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise RequestError(f"{first} has {one} and {second} {other}: compare data sets of one kind of target at a time")
    for data in loaded.values():
        data.target.metric(plan.settings.get("metric"))  # refuses one that it does not have
    fine: set[str] = set()
    refusals: dict[str, RequestError] = {}
    for run in runs(dataclasses.replace(plan, seeds=1, tune=0), loaded, versions):
        asked = run.arguments
        method, settings = asked["method"], asked["settings"]
        if settings.get("augment") == "try":  # what is to be tried fits, whatever it will be
            settings = settings | {"augment": "auto"}
        if method in fine and method != plan.methods[0]:
            continue
        try:
            with torch.random.fork_rng():
                prepare(
                    asked["model"], few(loaded[asked["data"]], settings), method, weights=plan.weights,
                    device="cpu", workers=0, seed=asked["seed"], **settings,
                )  # fmt: skip
            fine.add(method)
        except RequestError as error:
            if method == plan.methods[0]:
                raise
            refusals.setdefault(method, error)
    contestants = _contestants(plan)
    if contestants and not contestants & fine:  # one that fits another data set, or is one of many, fails there
        raise next(iter(refusals.values()))
    if contestants - {UNEVEN} != set(METHODS) or contestants <= fine:
        return plan
    for source, data in loaded.items():
        said = [f"{method} is left out: {error}." for method, error in refusals.items() if method not in fine]
        loaded[source] = dataclasses.replace(data, notes=[*data.notes, *said])
    return dataclasses.replace(plan, methods=tuple(m for m in plan.methods if m in fine or plain(m)))


def few(data: Any, settings: dict[str, Any]) -> Any:
    """Some examples of every part, enough to see whether a training begins, where frozen layers would look at all."""
    if settings.get("freeze") is None:
        return data
    parts = {
        name: part for name in ("train", "val", "test") if isinstance(part := getattr(data, name), Examples | Files)
    }
    some = {name: part.subset(torch.tensor(spaced(len(part), FEW))) for name, part in parts.items()}
    return dataclasses.replace(data, **some)


def _check_unchanged(experiment: Experiment, plan: Plan, versions: dict[str, str]) -> None:
    """The data, or the file of pretrained weights, may have changed since the comparison began."""
    from fallow.base.files import digest

    store, folder = experiment.store, experiment.folder
    weights = digest(Path(plan.weights)) if plan.weights else None
    if store.read("plan") is None:
        store.write("weights", weights)
    elif store.read("weights") != weights:
        raise RequestError(f"{folder} holds a comparison that began from other weights: choose another --out")
    known = store.read("data") or {}
    for source, found in versions.items():
        if known.setdefault(source, found) != found:
            raise RequestError(f"{source} has changed since the comparison in {folder} began: choose another --out")
    store.write("data", known)


def describe(comparison: Comparison, findings: Findings) -> dict[str, Any]:
    """Everything as plain values, for ``--json``."""
    rows = [
        {
            "data": setting.data, "model": setting.model, "method": row.method, "verdict": row.verdict,
            "exploratory": row.exploratory,
            "tuned": dataclasses.asdict(row.tuned) if row.tuned else None,
            "race": dataclasses.asdict(row.standing) if row.standing else None,
            findings.settings[0].metric.name: {str(seed): value for seed, value in row.scores.items()},
            "mean": row.estimate.mean if row.estimate else None,
            "interval": [row.estimate.low, row.estimate.high] if row.estimate else None,
            "calibration": row.calibration._asdict() if row.calibration else None,
            "validation": row.validation, "training": row.training, "relearning": row.relearning,
            "passes": row.passes, "seconds": row.seconds,
            "failed": {str(seed): reason for seed, reason in row.failed.items()},
            **{
                key: None if against is None else {
                    "method": against.method, **against.difference._asdict(), "corrected_p": against.corrected,
                }
                for key, against in (("to_normal", row.to_normal), ("to_control", row.to_control))
            },
        }
        for setting in findings.settings
        for row in setting.rows
    ]  # fmt: skip
    across = None
    if findings.across is not None:
        across = {
            "settings": findings.across.settings,
            "beats": [[column, row, mark] for (row, column), mark in findings.across.marks.items() if mark],
            "tree": str(findings.across.tree) if findings.across.tree else None,
        }
    return json.loads(
        json.dumps(
            {
                "sentence": findings.sentence,
                "metric": comparison.metric.name,
                "out": str(comparison.folder),
                "plan": comparison.plan.describe(),
                "rows": rows,
                "yardsticks": [dataclasses.asdict(row) for row in comparison.yardsticks],
                "ensembles": [
                    {"data": setting.data, "model": setting.model, **each._asdict()}
                    | {"calibration": each.calibration._asdict() if each.calibration else None}
                    for setting in findings.settings
                    for each in setting.ensembles
                ],
                "transfer": {name: each.describe() for name, each in comparison.transfers.items()},
                "labels": [
                    {
                        "data": setting.data,
                        "model": setting.model,
                        **_curves(setting.labels),
                        "sentence": setting.forecast,
                    }
                    for setting in findings.settings
                    if setting.labels is not None
                ],
                "across": across,
                "winner": dataclasses.asdict(findings.winner) if findings.winner else None,
                "kept": comparison.taken.describe() if comparison.taken else None,
            }
        )
    )


def _curves(found: LabelCurves) -> dict[str, Any]:
    """What labels are worth, as plain values."""
    both = {
        key: {"method": each.method, "labels": each.labels, "scores": each.scores, "twice": each.twice._asdict()}
        for key, each in (("control", found.control), ("best", found.best))
        if each is not None
    }
    return both | {"worth": found.worth}
