"""From the outcomes of runs to verdicts: the numbers that the terminal, the report and the CSV share.

Everything here is the metric on the test split, in its own unit and direction (accuracy as a share: 0.97, not 97);
what is *chosen* (the control to compare with, the winner) is chosen on validation.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fallow.comparison.tree import Tree, grow
from fallow.evaluate.metrics import CLASSES, Metric
from fallow.evaluate.statistics import Difference, Estimate, holm, interval, paired, significance

BASELINE = "normal"  # ordinary training for the epochs of one generation
CONTROLS = ("long", "restart")  # the same compute as the methods, and nothing else
LEVEL = 0.05
ACCURACY = CLASSES["accuracy"]
EQUAL = {
    "passes": ("at equal compute", "the same compute spent plainly"),
    "steps": ("at equal steps", "the same steps spent plainly"),
}


@dataclass(frozen=True)
class Outcome:
    """What one run gave: a cell of the plan, done or failed."""

    data: str
    model: str
    method: str
    seed: int
    folder: str  # of the run, below the comparison's
    reason: str | None = None  # why it failed; None: it is done
    test: float | None = None  # the metric, on test
    val: float | None = None
    seconds: float = 0.0
    steps: int = 0
    passes: float = 0.0


@dataclass(frozen=True)
class Against:
    """A paired difference to another method, its p-value corrected by Holm over all methods that were asked."""

    method: str
    difference: Difference
    corrected: float
    higher: bool = True  # whether more is better

    @property
    def verdict(self) -> str:
        """better, worse or no evidence."""
        if self.corrected > LEVEL:
            return "no evidence"
        return "better" if (self.difference.mean > 0) == self.higher else "worse"


@dataclass
class Row:
    """One method in one setting."""

    method: str
    scores: dict[int, float]  # by seed, on test
    estimate: Estimate | None  # None: no run is done
    validation: float | None  # mean
    seconds: float | None  # mean of a run
    passes: float | None
    failed: dict[int, str] = field(default_factory=dict)  # by seed: the reason
    to_normal: Against | None = None
    to_control: Against | None = None

    @property
    def verdict(self) -> str:
        """Against the best control of equal compute; the controls themselves have none."""
        if self.method in (BASELINE, *CONTROLS):
            return "baseline" if self.method == BASELINE else "control"
        if self.estimate is None:
            return "failed" if self.failed else "no evidence"
        return "no evidence" if self.to_control is None else self.to_control.verdict


@dataclass
class Setting:
    """One data set with one model: a table of methods, the best on validation first."""

    data: str
    model: str
    described: dict[str, Any]  # Data.describe() of the first seed
    rows: list[Row]
    control: str | None  # the best control on validation
    overlap: float  # where every seed carves another test set: its size by that of the pool to train on, else 0
    budget: str = "passes"  # what is equal between the methods: "passes" or "steps"
    metric: Metric = ACCURACY

    @property
    def name(self) -> str:
        """As a heading: the data set and the model."""
        return f"{self.data} · {self.model}"

    def row(self, method: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.method == method)

    @property
    def smallest(self) -> float | None:
        """The smallest difference to the control that this experiment could have seen: the median over methods."""
        found = [
            row.to_control.difference.smallest
            for row in self.rows
            if row.to_control and row.method not in (BASELINE, *CONTROLS)
        ]
        return statistics.median(found) if found else None


@dataclass
class Across:
    """Several settings together: LW's table 3 and figure 2."""

    methods: list[str]
    marks: dict[tuple[str, str], str]  # (row, column): ★ or ○ where the column outperforms the row
    settings: int
    tree: Tree | None  # which method wins when


@dataclass
class Findings:
    """All that a comparison found."""

    settings: list[Setting]
    across: Across | None
    winner: Outcome | None  # the best run on validation, of the best method on validation

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return " ".join(_sentence(setting, len(self.settings) > 1) for setting in self.settings)


def find(
    outcomes: Sequence[Outcome],
    described: dict[str, dict[str, Any]],
    overlaps: dict[str, float],
    budget: str = "passes",
    metric: Metric = ACCURACY,
) -> Findings:
    """Judge the outcomes; ``described`` and ``overlaps`` tell of each data set what ``Data`` says of itself."""
    pairs = dict.fromkeys((outcome.data, outcome.model) for outcome in outcomes)
    settings = [
        judge([o for o in outcomes if (o.data, o.model) == pair], described[pair[0]], overlaps[pair[0]], budget, metric)
        for pair in pairs
    ]
    return Findings(settings, _across(settings) if len(settings) > 1 else None, _winner(settings, outcomes))


def judge(
    outcomes: Sequence[Outcome],
    described: dict[str, Any],
    overlap: float,
    budget: str = "passes",
    metric: Metric = ACCURACY,
) -> Setting:
    """One setting: every method with its interval, its differences and its verdict."""
    names = list(dict.fromkeys(outcome.method for outcome in outcomes))
    grain = 1 / described["sizes"]["test"] if metric.name == ACCURACY.name else 0.0
    rows = [_row(name, [o for o in outcomes if o.method == name], overlap, grain, metric) for name in names]
    by_name = {row.method: row for row in rows}
    controls = [row for row in rows if row.method in CONTROLS and row.validation is not None]
    control = max(controls, key=lambda row: metric.worth(row.validation)) if controls else None
    asked = [row for row in rows if row.method not in (BASELINE, *CONTROLS)]
    for reference, attribute in ((by_name.get(BASELINE), "to_normal"), (control, "to_control")):
        if reference is None:
            continue
        judged = [row for row in rows if row is not reference]
        found = [_pair(row, reference, overlap, grain, len(asked)) for row in judged]
        corrected = _correct(judged, found, asked)
        for row, difference, p in zip(judged, found, corrected, strict=True):
            if difference is not None:
                setattr(row, attribute, Against(reference.method, difference, p, metric.higher))
    rows.sort(key=lambda row: -metric.worth(row.validation))
    chosen = control.method if control else None
    return Setting(outcomes[0].data, outcomes[0].model, described, rows, chosen, overlap, budget, metric)


def _row(method: str, outcomes: list[Outcome], overlap: float, grain: float, metric: Metric) -> Row:
    done = sorted((o for o in outcomes if o.test is not None), key=lambda o: o.seed)
    scores = {o.seed: o.test for o in done if o.test is not None}
    validated = [o.val for o in done if o.val is not None]
    return Row(
        method=method,
        scores=scores,
        estimate=_clipped(interval(list(scores.values()), overlap=overlap, grain=grain), metric) if done else None,
        validation=statistics.fmean(validated) if validated else None,
        seconds=statistics.fmean(o.seconds for o in done) if done else None,
        passes=statistics.fmean(o.passes for o in done) if done else None,
        failed={o.seed: o.reason for o in outcomes if o.reason is not None},
    )


def _clipped(found: Estimate, metric: Metric) -> Estimate:
    """No metric is outside its bounds, whatever Student's distribution says of a few values."""
    if found.low is None or found.high is None:
        return found
    return Estimate(found.mean, max(metric.bounds[0], found.low), min(metric.bounds[1], found.high))


def _pair(row: Row, reference: Row, overlap: float, grain: float, questions: int) -> Difference | None:
    """On the seeds that both have finished."""
    seeds = [seed for seed in row.scores if seed in reference.scores]
    ours, theirs = ([r.scores[seed] for seed in seeds] for r in (row, reference))
    return paired(ours, theirs, overlap=overlap, grain=grain, level=LEVEL, questions=max(1, questions))


def _correct(judged: list[Row], found: list[Difference | None], asked: list[Row]) -> list[float]:
    """Holm's correction over the methods that were asked; the controls are no question, and stay as they are."""
    family = [i for i, row in enumerate(judged) if row in asked and found[i] is not None]
    corrected = [difference.p if difference is not None else 1.0 for difference in found]
    for i, p in zip(family, holm([corrected[i] for i in family]), strict=True):
        corrected[i] = p
    return corrected


def _winner(settings: list[Setting], outcomes: Sequence[Outcome]) -> Outcome | None:
    """Of the first data set: the best method by its mean on validation, and its best run on validation."""
    if not settings:
        return None
    first = [s for s in settings if s.data == settings[0].data and s.rows and s.rows[0].validation is not None]
    if not first:
        return None
    setting = max(first, key=lambda s: s.metric.worth(s.rows[0].validation))
    runs = [
        o
        for o in outcomes
        if (o.data, o.model, o.method) == (setting.data, setting.model, setting.rows[0].method) and o.val is not None
    ]
    return max(runs, key=lambda o: (setting.metric.worth(o.val), -o.seed))


def _across(settings: list[Setting]) -> Across:
    """LW's table 3: an observation is a setting, its mean over seeds; methods that are missing in one are left out."""
    common = [
        row.method
        for row in settings[0].rows
        if all(any(r.method == row.method and r.estimate for r in s.rows) for s in settings)
    ]

    def mean(setting: Setting, method: str) -> float:
        estimate = setting.row(method).estimate
        assert estimate is not None
        return setting.metric.worth(estimate.mean)

    marks = significance({method: [mean(s, method) for s in settings] for method in common}, LEVEL)
    contestants = [method for method in common if method != BASELINE]
    tree = None
    if contestants:
        winners = [max(contestants, key=lambda method, s=s: mean(s, method)) for s in settings]  # type: ignore[misc]
        tree = grow([_design(s) for s in settings], winners)
    return Across(common, marks, len(settings), tree)


def _design(setting: Setting) -> dict[str, float]:
    """What the decision tree may ask of a setting."""
    shape, sizes = setting.described["shape"], setting.described["sizes"]
    classes = len(setting.described["classes"])
    return {
        "training examples": sizes["train"],
        "classes": classes,
        "examples per class": sizes["train"] / classes,
        "channels": shape[0] if len(shape) > 1 else 1,
        "pixels or features": float(shape[-1] * shape[-2] if len(shape) > 2 else shape[-1]),
        f"the model is {setting.model}": 1.0,
    }


def _sentence(setting: Setting, several: bool) -> str:
    where = f"On {setting.data} ({setting.model}), " if several else f"On {setting.data}, "
    if setting.control is None:
        return where + "there is no verdict yet: no control of equal compute has finished."
    groups: dict[str, list[Row]] = {}
    for row in setting.rows:
        groups.setdefault(row.verdict, []).append(row)
    better, worse = groups.get("better", []), groups.get("worse", [])
    unclear, failed = groups.get("no evidence", []), groups.get("failed", [])
    equal, plainly = EQUAL[setting.budget]
    pieces = []
    if better:
        best = [f"{row.method} ({_gain(row, setting.metric)})" for row in better]
        pieces.append(f"{_list(best)} {_verb(best, 'beats', 'beat')} {setting.control} {equal}")
    else:
        seen = " (one seed cannot tell)" if unclear else ""
        if (smallest := setting.smallest) is not None:
            seen = f" (a difference below {_size(setting.metric, smallest)} would likely go unseen)"
        pieces.append(f"no method is shown to beat {setting.control}, {plainly}{seen}")
    if worse:
        names = [row.method for row in worse]
        pieces.append(f"{_list(names)} {_verb(names, 'is', 'are')} worse")
    if better and unclear:
        pieces.append(f"there is no evidence for {_list([row.method for row in unclear])}")
    if failed:
        pieces.append(f"{_list([row.method for row in failed])} failed")
    return where + "; ".join(pieces) + "."


def _gain(row: Row, metric: Metric) -> str:
    assert row.to_control is not None
    mean = row.to_control.difference.mean
    return f"{'+' if mean > 0 else '-'}{_size(metric, abs(mean))}"


def _size(metric: Metric, difference: float) -> str:
    return f"{100 * difference:.1f} points" if metric.share else f"{difference:.3g}"


def _verb(names: list[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
