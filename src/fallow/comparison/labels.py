"""What would more labels bring? The control and the best method again, on 25, 50 and 75 % of the training examples.

The parts are nested, stratified, and of the first four seeds that raced; all of the labels are the race itself. The
steps of a training are those of the race, so that sizes differ in their labels and in nothing else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fallow.comparison.race import BASELINE, Runner, plain
from fallow.evaluate.labels import FURTHEST, LearningCurve, curve, worth
from fallow.evaluate.metrics import Metric
from fallow.evaluate.statistics import Estimate, level_means
from fallow.experiment import Run
from fallow.report.charts import Axis, Line, lines
from fallow.report.shown import Shown
from fallow.report.svg import Drawing

SHARES = (0.25, 0.5, 0.75)
SEEDS = 4  # the first that raced
POINTS = 25  # at which a curve is drawn
AXIS = Axis("labels", "log")


@dataclass(frozen=True)
class Learned:
    """The errors of one method by the number of labels."""

    method: str
    labels: list[int]
    scores: list[list[float]]  # the metric on test, by size and seed
    twice: Estimate  # the metric at twice the labels, with its 90 % interval
    curve: LearningCurve


@dataclass(frozen=True)
class LabelCurves:
    """What labels are worth in one setting."""

    metric: Metric
    control: Learned
    best: Learned | None  # of the methods; None: there are only controls
    worth: float | None  # labels with which the control would be as good as the best method; None: beyond twice

    def sentence(self, better: Collection[str]) -> str:
        """In words; what a method saves may be chance unless it is one of those shown to be ``better``."""
        shown, most = Shown.of(self.metric), self.control.labels[-1]
        said = [f"With twice the labels ({2 * most:,}), {_forecast(self.control, shown)}"]
        if self.best is not None:
            said.append(_forecast(self.best, shown))
            doubt = "" if self.best.method in better else ", which may be chance"
            if self.worth is None:
                said.append(f"{self.best.method} is worth more than doubling the labels{doubt}")
            elif self.worth > most:
                more = f"{round(self.worth - most):,}"
                said.append(f"{self.best.method} is worth about {more} labels to {self.control.method}{doubt}")
            else:
                said.append(f"{self.best.method} saves no labels")
        return "; ".join(said) + "."

    def drawing(self, title: str) -> Drawing | None:
        """The curves up to twice the labels with their 90 % intervals, and what was measured."""
        shown, drawn, measured = Shown.of(self.metric), list[Line](), list[tuple[float, float]]()
        for found, kind in ((self.best, "plain"), (self.control, "quiet")):
            if found is None:
                continue
            sizes = np.geomspace(found.labels[0], FURTHEST * found.labels[-1], POINTS)
            said = [_value(self.metric, found.curve.at(min(n, FURTHEST * found.labels[-1]))) for n in sizes]
            by = shown.factor
            points = [(float(n), by * each.mean) for n, each in zip(sizes, said, strict=True)]
            band = [(by * (each.low or 0.0), by * (each.high or 0.0)) for each in said]
            measured += [(float(n), by * float(np.mean(v))) for n, v in zip(found.labels, found.scores, strict=True)]
            drawn.append(Line(found.method, points, kind, band))
        return lines(title, [Line("measured", measured, "points"), *drawn], AXIS, Axis(shown.axis("test")))


def wanted(cell: Mapping[tuple[str, int], Run], examples: int, runners: Sequence[str], seeds: int) -> list[Run]:
    """The runs on parts of the training examples, of so many, for the runners that are compared."""
    return [
        part(cell[runner, seed], round(share * examples), examples)
        for seed in range(min(SEEDS, seeds))
        for share in SHARES
        for runner in runners
    ]


def part(run: Run, labels: int, examples: int) -> Run:
    """A run on so many of the training examples, with as many steps."""
    asked = run.arguments
    settings = asked["settings"]
    whole, fewer = (-(-n // settings["batch_size"]) for n in (examples, labels))  # steps of an epoch
    settings = settings | {"epochs": max(1, round(settings["epochs"] * whole / fewer))}
    arguments = asked | {"settings": settings, "load": asked["load"] | {"keep": labels}}
    return dataclasses.replace(run, name=f"{run.name}-labels{labels}", arguments=arguments)


def runners(entries: Sequence[Runner], metric: Metric) -> list[str]:
    """The best control and the best method by their means on validation, as in the table: as if all had all seeds."""
    values: dict[str, dict[int, float]] = {}
    for entry in entries:
        if entry.val is not None and math.isfinite(entry.val):
            values.setdefault(entry.method, {})[entry.seed] = entry.val
    known = level_means(values)
    means = {entry.method: metric.worth(known.get(entry.method)) for entry in entries}
    ranked = sorted(means, key=lambda name: (-means[name], name))  # whoever ended first
    controls = [name for name in ranked if plain(name) and name != BASELINE]
    methods = [name for name in ranked if not plain(name)]
    return [*controls[:1], *methods[:1]]


def learned(
    found: Sequence[str], parts: Mapping[tuple[str, int, int], float | None], examples: int, metric: Metric
) -> LabelCurves | None:
    """The curves of these runners; ``parts`` has the metric on test by runner, labels and seed.

    None: too few ended, or the control makes no errors.
    """
    made = [each for each in (_learned(name, parts, examples, metric) for name in found) if each is not None]
    if not made or made[0].method != found[0]:
        return None
    control, best = made[0], made[1] if len(made) > 1 else None
    gap = _gap(metric)
    gain = None if best is None else worth(gap(np.array(best.scores[-1])), control.labels, control.curve)
    return LabelCurves(metric, control, best, gain)


def _learned(
    name: str, parts: Mapping[tuple[str, int, int], float | None], examples: int, metric: Metric
) -> Learned | None:
    sizes = [*(round(share * examples) for share in SHARES), examples]
    seeds = sorted({seed for runner, _, seed in parts if runner == name})
    whole = [seed for seed in seeds if all(parts.get((name, size, seed)) is not None for size in sizes)]
    if len(whole) < 2:
        return None
    scores = [[float(parts[name, size, seed] or 0.0) for seed in whole] for size in sizes]
    errors = _gap(metric)(np.array(scores))
    if not errors[-1].any():  # none is left that could fall
        return None
    fitted = curve(sizes, errors)
    return Learned(name, sizes, scores, _value(metric, fitted.at(FURTHEST * examples)), fitted)


def _gap(metric: Metric) -> Callable[[np.ndarray], np.ndarray]:
    """From the metric to an error that falls towards 0."""
    return (lambda value: metric.bounds[1] - value) if metric.higher else (lambda value: value)


def _value(metric: Metric, error: Estimate) -> Estimate:
    """From an error with its interval to the metric."""
    if not metric.higher:
        return error
    top = metric.bounds[1]
    assert error.low is not None
    assert error.high is not None
    return Estimate(top - error.mean, max(metric.bounds[0], top - error.high), top - error.low)


def _forecast(found: Learned, shown: Shown) -> str:
    now, then = float(np.mean(found.scores[-1])), found.twice
    assert then.low is not None
    assert then.high is not None
    return (
        f"{found.method} would go from {shown.full(now)} to about {shown.full(then.mean)} "
        f"({shown.value(then.low)} to {shown.value(then.high)} with 90 % confidence)"
    )
