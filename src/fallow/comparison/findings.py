"""From the outcomes of runs to verdicts: the numbers that the terminal, the report and the CSV share.

Everything here is the metric on the test split, in its own unit and direction (accuracy as a share: 0.97, not 97);
what is *chosen* (the control to show differences to, the winner) is chosen on validation. Verdicts are against all
controls of equal compute, by :mod:`fallow.evaluate.allocation`: they hold however often one looked.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fallow.comparison.ensemble import Ensemble
from fallow.comparison.labels import LabelCurves
from fallow.comparison.race import ACCURACY, BASELINE, Rules, Runner, plain
from fallow.comparison.tree import Tree, grow
from fallow.comparison.tuning import TunedRunner
from fallow.evaluate.allocation import Race, Standing, differences, standings
from fallow.evaluate.calibration import Calibration
from fallow.evaluate.metrics import Metric
from fallow.evaluate.race import repeated_interval, sequential_p, visible
from fallow.evaluate.relearning import failed_generation
from fallow.evaluate.statistics import Difference, Estimate, interval, level_means, significance
from fallow.report.words import listed, number

LEVEL = 0.05
LEAST = 5  # settings, below which the exact binomial test cannot reach 5 % and a tree would only repeat the table
EQUAL = {
    "passes": ("at equal compute", "ordinary training of equal compute"),
    "steps": ("at equal steps", "ordinary training of equal steps"),
}


@dataclass(frozen=True)
class Against:
    """A paired difference to another runner with its repeated interval, and what is said of it."""

    method: str
    difference: Difference  # its p is sequential, of this pair alone
    corrected: float | None  # the p-value of the verdict, by Holm over the family; None: it is no question
    verdict: str = "undecided"


class Unlearned(NamedTuple):
    """A run of which a generation ended with a lower training score than the first."""

    generation: int
    score: float
    first: float


@dataclass
class Row:
    """One method in one setting."""

    method: str
    scores: dict[int, float]  # by seed, on test
    estimate: Estimate | None  # None: no run is done
    seconds: float | None  # mean of a run
    passes: float | None
    failed: dict[int, str] = field(default_factory=dict)  # by seed: the reason
    training: float | None = None  # mean at the end, on training examples
    unlearned: list[Unlearned] = field(default_factory=list)  # runs that did not learn again what they forgot
    standing: Standing | None = None  # in the race; None: it is a control, or there is none to judge by
    exploratory: bool = False  # it came after a look, and the guarantee does not cover it
    to_normal: Against | None = None
    to_control: Against | None = None
    tuned: TunedRunner | None = None  # None: it runs with the settings that it was asked for
    calibration: Calibration | None = None  # means over the runs; None: answers are no classes, or none was kept
    validations: dict[int, float] = field(default_factory=dict)  # by seed
    validation: float | None = None  # their mean, as if all rows had run on all seeds

    @property
    def verdict(self) -> str:
        """Against the controls of equal compute; the controls themselves have none."""
        if plain(self.method):
            return "baseline" if self.method == BASELINE else "control"
        if self.estimate is None and self.failed:
            return "failed"
        return "undecided" if self.standing is None else self.standing.verdict

    @property
    def judged(self) -> str:
        """The verdict, and whether it is an exploratory one."""
        return f"{self.verdict} (exploratory)" if self.exploratory else self.verdict

    @property
    def relearning(self) -> str:
        """What to say where generations ended with fewer training examples right than the first; else nothing."""
        if not self.unlearned:
            return ""
        worst = min(self.unlearned, key=lambda run: run.score - run.first)
        return (
            f"{self.method} did not relearn in {len(self.unlearned)} of {len(self.scores)} runs: generation "
            f"{worst.generation} ended at {100 * worst.score:.1f} % on training examples, the first at "
            f"{100 * worst.first:.1f} %; its verdict says nothing about forgetting"
        )


@dataclass
class Setting:
    """One data set with one model: a table of methods, the best on validation first."""

    data: str
    model: str
    described: dict[str, Any]  # Data.describe() of the first seed
    rows: list[Row]
    control: str | None  # the best control on validation
    race: Race
    budget: str = "passes"  # what is equal between the methods: "passes" or "steps"
    metric: Metric = ACCURACY
    labels: LabelCurves | None = None  # what more of them would bring
    ensembles: list[Ensemble] = field(default_factory=list)  # of the control and the best method on validation

    @property
    def name(self) -> str:
        """As a heading: the data set and the model."""
        return f"{self.data} · {self.model}"

    @property
    def advice(self) -> list[str]:
        """What would decide what is undecided, each sentence once, with the methods that it is about."""
        methods: dict[str, list[str]] = {}
        for row in self.rows:
            if row.standing is not None and row.standing.advice:
                methods.setdefault(row.standing.advice, []).append(row.method)
        return [f"{listed(names)} ({sentence})" for sentence, names in methods.items()]

    @property
    def forecast(self) -> str:
        """What more labels would bring, in words; "" where that is not known."""
        better = [row.method for row in self.rows if row.verdict == "better"]
        return "" if self.labels is None else self.labels.sentence(better)

    @property
    def overlap(self) -> float:
        """Where every seed carves another test set: its size by that of the pool to train on, else 0."""
        return self.race.overlap

    def first_seeds(self, count: int) -> list[int]:
        """The first so many seeds that raced."""
        return sorted({seed for row in self.rows for seed in (*row.scores, *row.failed)})[:count]

    def row(self, method: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.method == method)

    @property
    def smallest(self) -> list[float]:
        """The smallest difference that would likely have been seen of each method that is undecided, in order."""
        return sorted(
            row.to_control.difference.smallest
            for row in self.rows
            if row.to_control and row.verdict == "undecided" and not plain(row.method)
        )


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
    winner: Runner | None  # the best run on validation, of the best method on validation
    beaten: list[str] = field(default_factory=list)  # sentences on settings where a yardstick is not beaten

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, and in another that a yardstick is not beaten, where none is."""
        return " ".join([*(_sentence(setting, len(self.settings) > 1) for setting in self.settings), *self.beaten])


def find(
    outcomes: Sequence[Runner],
    described: dict[str, dict[str, Any]],
    overlaps: dict[str, float],
    budget: str = "passes",
    metric: Metric = ACCURACY,
    rules: Rules = Rules(),  # noqa: B008
) -> Findings:
    """Judge the outcomes; ``described`` and ``overlaps`` tell of each data set what ``Data`` says of itself.

    Where ``described`` has ``steps``, scores on test move by these, else by an example.
    """
    settings = []
    for data, model in dict.fromkeys((outcome.data, outcome.model) for outcome in outcomes):
        here = [o for o in outcomes if (o.data, o.model) == (data, model)]
        settings.append(judge(here, described[data], overlaps[data], budget, metric, rules))
    return Findings(settings, _across(settings) if len(settings) > 1 else None, _winner(settings, outcomes))


def judge(
    outcomes: Sequence[Runner],
    described: dict[str, Any],
    overlap: float,
    budget: str = "passes",
    metric: Metric = ACCURACY,
    rules: Rules = Rules(),  # noqa: B008
) -> Setting:
    """One setting: every method with its interval, its differences and its verdict."""
    names = list(dict.fromkeys(outcome.method for outcome in outcomes))
    steps = described.get("steps", described["sizes"]["test"])
    race = rules.race(names, outcomes, steps, overlap, metric)
    rows = [_row(name, [o for o in outcomes if o.method == name], race, metric) for name in names]
    validated = level_means({row.method: row.validations for row in rows if row.validations})
    for row in rows:
        row.validation = validated.get(row.method)
    controls = [row for row in rows if row.method in race.controls and row.validation is not None]
    control = max(controls, key=lambda row: metric.worth(row.validation)).method if controls else None
    scores = rules.scores(outcomes, metric)
    places = standings(race, scores) if race.controls else {}
    for row in rows:
        row.standing = _in_direction(places.get(row.method), metric)
        if control is not None and row.method != control:
            row.to_control = _against(race, scores, row.method, control, row.standing, metric)
    if BASELINE in scores:
        alone = dataclasses.replace(race, controls=(BASELINE,))
        usual = standings(alone, scores)
        for row in rows:
            if row.method != BASELINE:
                row.to_normal = _against(alone, scores, row.method, BASELINE, usual.get(row.method), metric)
    rows.sort(key=lambda row: -metric.worth(row.validation))
    return Setting(outcomes[0].data, outcomes[0].model, described, rows, control, race, budget, metric)


def _row(method: str, outcomes: list[Runner], race: Race, metric: Metric) -> Row:
    done = sorted((o for o in outcomes if o.test is not None), key=lambda o: o.seed)
    scores = {o.seed: o.test for o in done if o.test is not None}
    mean = interval(list(scores.values()), overlap=race.overlap, grain=race.grain) if done else None
    validated = {o.seed: o.val for o in done if o.val is not None and math.isfinite(o.val)}
    ends = [o.training[-1] for o in done if o.training and o.training[-1] is not None]
    return Row(
        method=method,
        scores=scores,
        estimate=_clipped(mean, metric) if mean is not None else None,
        seconds=statistics.fmean(o.seconds for o in done) if done else None,
        passes=statistics.fmean(o.passes for o in done) if done else None,
        failed={o.seed: o.reason for o in outcomes if o.reason is not None},
        training=statistics.fmean(ends) if ends else None,
        unlearned=[run for run in (_unlearned(o, metric) for o in done) if run is not None],
        exploratory=method in race.exploratory,
        validations=validated,
    )


def _unlearned(run: Runner, metric: Metric) -> Unlearned | None:
    generation = failed_generation(run.training, metric)
    if generation is None:
        return None
    score, first = run.training[generation - 1], next(end for end in run.training if end is not None)
    assert score is not None
    return Unlearned(generation, score, first)


def _clipped(found: Estimate, metric: Metric) -> Estimate:
    """No metric is outside its bounds, whatever Student's distribution says of a few values."""
    if found.low is None or found.high is None:
        return found
    return Estimate(found.mean, max(metric.bounds[0], found.low), min(metric.bounds[1], found.high))


def _in_direction(place: Standing | None, metric: Metric) -> Standing | None:
    """A standing with its differences in the metric's own direction: a race takes larger for better."""
    if place is None:
        return place
    return dataclasses.replace(place, against={name: _turned(d, metric) for name, d in place.against.items()})


def _turned(difference: Estimate, metric: Metric) -> Estimate:
    mean, low, high = difference
    if low is not None and high is not None:
        low, high = _possible(low, high, metric)
    if metric.higher:
        return Estimate(mean, low, high)
    return Estimate(-mean, _minus(high), _minus(low))


def _possible(low: float, high: float, metric: Metric) -> tuple[float, float]:
    """No difference is larger than its metric has room for; the first looks ask for intervals that would go beyond."""
    return max(low, -_span(metric)), min(high, _span(metric))


def _minus(value: float | None) -> float | None:
    return None if value is None else -value


def _against(
    race: Race,
    scores: Mapping[str, Mapping[int, float]],
    method: str,
    other: str,
    place: Standing | None,
    metric: Metric,
) -> Against | None:
    """The difference to another runner at the last look that both reached, in the metric's own direction."""
    d = differences(dataclasses.replace(race, controls=(other,)), scores, method)[0]
    found = repeated_interval(d, race.looks, race.overlap, grain=race.grain)
    if not found.mean.size:
        return None
    mean, low, high = (float(each[-1]) for each in found)
    if not metric.higher:
        mean, low, high = -mean, -high, -low
    low, high = _possible(low, high, metric)
    p = float(sequential_p(d, race.looks, race.overlap, grain=race.grain)[-1])
    look = race.looks[found.mean.size - 1]
    spread = max(float(d[:look].std(ddof=1)), race.grain / math.sqrt(6))
    level = LEVEL / (race.questions(method) if place is not None else 1)
    smallest = min(spread * visible(look, race.looks, race.overlap, level=level), _span(metric))
    verdict = place.verdict if place is not None else "undecided"
    return Against(other, Difference(mean, low, high, p, smallest), place.p if place is not None else None, verdict)


def _span(metric: Metric) -> float:
    """The largest difference that there can be."""
    return metric.bounds[1] - metric.bounds[0]


def _room(setting: Setting) -> float:
    """The largest difference that a user may hope for: of errors, no more than the control makes."""
    control = setting.row(setting.control).estimate if setting.control is not None else None
    if setting.metric.higher or control is None:
        return _span(setting.metric)
    return control.mean - setting.metric.bounds[0]


def _winner(settings: list[Setting], outcomes: Sequence[Runner]) -> Runner | None:
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
    """LW's table 3: an observation is a setting, its mean at the first look; methods missing in one are left out.

    All runners go to the first look. Who goes on depends on the scores, so that later means are no fair coin: who looks
    worse than a control by chance is dropped, and stays worse.
    """
    first = [at_first_look(setting) for setting in settings]
    common = [row.method for row in settings[0].rows if all(row.method in means for means in first)]
    marks = significance({method: [means[method] for means in first] for method in common}, LEVEL)
    contestants = [method for method in common if method != BASELINE]
    tree = None
    if contestants and len(settings) >= LEAST:
        winners = [max(contestants, key=means.__getitem__) for means in first]
        tree = grow([_design(s) for s in settings], winners)
    return Across(common, marks, len(settings), tree)


def at_first_look(setting: Setting) -> dict[str, float]:
    """What each method is worth on the seeds that all of them were asked for."""
    asked = setting.first_seeds(setting.race.looks[0])
    means = {row.method: [row.scores[seed] for seed in asked if seed in row.scores] for row in setting.rows}
    return {method: setting.metric.worth(statistics.fmean(here)) for method, here in means.items() if here}


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
        lost = [row.method for row in setting.rows if row.verdict == "control" and row.failed and not row.scores]
        why = f": all runs of {listed(lost)} failed" if lost else " yet: no control of equal compute has finished"
        return f"{where}there is no verdict{why}."
    groups: dict[str, list[str]] = {}
    for row in setting.rows:
        gain = f" ({_gain(row, setting.metric)})" if row.verdict == "better" else ""
        groups.setdefault(row.verdict, []).append(f"{row.method}{' (exploratory)' * row.exploratory}{gain}")
    controls, (equal, plainly) = listed(list(setting.race.controls)), EQUAL[setting.budget]
    better, open_ = groups.get("better", []), groups.get("undecided", [])
    if better:
        pieces = [f"{listed(better)} {_verb(better, 'beats', 'beat')} {controls} {equal}"]
    else:
        pieces = [f"no method is shown to beat {controls}, {plainly}"]
    if worse := groups.get("worse"):
        pieces.append(f"{listed(worse)} {_verb(worse, 'is', 'are')} worse")
    if same := groups.get("no different"):
        within = _size(setting.metric, setting.race.same)
        pieces.append(f"{listed(same)} {_verb(same, 'is', 'are')} no different (by less than {within})")
    if open_:
        pieces.append(f"{listed(open_)} {_verb(open_, 'is', 'are')} undecided ({_unseen(setting)})")
    if failed := groups.get("failed"):
        pieces.append(f"{listed(failed)} failed")
    if partly := [row for row in setting.rows if row.failed and row.verdict not in ("failed", "baseline")]:
        lost = [f"{len(row.failed)} of {len(row.scores) + len(row.failed)} runs of {row.method}" for row in partly]
        pieces.append(f"not counted: {listed(lost)}, which failed")
    return where + "; ".join(pieces) + "."


def _unseen(setting: Setting) -> str:
    """What could not have been seen of the methods that are undecided."""
    if not setting.smallest:
        return f"nothing can be judged before {setting.race.looks[0]} seeds"
    if setting.smallest[0] >= _room(setting):
        return "with so few seeds nothing can be judged"
    least, most = (_size(setting.metric, setting.smallest[end]) for end in (0, -1))
    if least == most:
        return f"a difference below {most} may go unseen"
    return f"differences below {least.removesuffix(' points')} to {most}, depending on the method, may go unseen"


def _gain(row: Row, metric: Metric) -> str:
    assert row.to_control is not None
    mean = row.to_control.difference.mean
    return f"{'+' if mean > 0 else '−'}{_size(metric, abs(mean))}"


def _size(metric: Metric, difference: float) -> str:
    return f"{100 * difference:.1f} points" if metric.share else number(difference, 3)


def _verb(names: list[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many
