"""What seconds of ordinary learners reach on the same splits: rows beside the race, outside its questions."""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fallow.comparison.policy import run_name
from fallow.comparison.race import Runner
from fallow.evaluate.calibration import temperature
from fallow.experiment import Run, grid, run, values
from fallow.report.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fallow.comparison.findings import Row, Setting
    from fallow.comparison.run import Comparison
    from fallow.training.yardsticks import Yardstick

SEEDS = 4  # of which the learners see the splits: their spread is that of the splits
MOST = 16_000  # pictures that a pretrained network looks at, once for all seeds: 10 ms each; a quarter of it for a
# quick look, and of texts, which take 20 ms a sentence
PLAIN = ("majority", "mean")
LARGE = 20_000_000  # values in the training part from which on they would take minutes


@dataclass(frozen=True)
class Measured:
    """One learner on one data set, by seed."""

    data: str
    name: str
    test: list[float]  # the metric
    val: list[float]
    temperature: list[float | None]  # that validation likes, of classes
    chosen: list[dict[str, float]]  # on validation
    best: int = 0  # which of them is best on validation

    @property
    def network(self) -> str | None:
        """The pretrained network that it looks through.

        >>> Measured("d", "logistic on lite0 features", [], [], [], []).network
        'lite0'
        """
        name = self.name.removesuffix(" features")
        return None if name == self.name else name.rpartition(" ")[2]

    @property
    def mean(self) -> float:
        """On test."""
        return statistics.fmean(self.test)


def measured(comparison: Comparison, contents: Mapping[str, str], **where: Any) -> list[Measured]:
    """The yardsticks of every data set, split by split side by side, and kept with the comparison."""
    plan, metric = comparison.plan, comparison.metric.name
    seeds = range(plan.first, plan.first + min(SEEDS, plan.seeds))
    wanted: dict[tuple[str, int], Run] = {}
    for source, data in () if plan.fewshot else comparison.loaded.items():
        if not data.texts and data.describe()["sizes"]["train"] * math.prod(data.shape) > LARGE:
            continue
        few = sum(filter(None, data.sizes.values())) <= (MOST // 4 if plan.quick or data.texts else MOST)
        for seed in seeds:
            asked = {
                "data": source, "version": contents[source], "load": plan.load_options(), "seed": seed,
                "metric": metric, "pretrained": few,
            }  # fmt: skip
            name, first = (run_name(data.name, source, "yardsticks", metric, n) for n in (seed, plan.first))
            # what a pretrained network sees is kept
            after = (first,) if few and (data.pictures or data.texts) and seed > plan.first else ()
            work = "fallow.comparison.work:yardstick"
            wanted[source, seed] = Run(name, work, asked, after=after, paths={"root": os.getcwd()})
    kept = values(run(grid(wanted.values()), comparison.folder / "yardsticks", what="yardstick", **where))
    rows: dict[tuple[str, str], list[list[Any]]] = {}
    for source in comparison.loaded:
        for seed in seeds:
            found = kept[wanted[source, seed].name] if (source, seed) in wanted else {}
            for name, scores in found.items():
                rows.setdefault((comparison.labels[source], name), []).append(scores)
    learners = []
    for (label, name), scores in rows.items():
        test, val, heat, chosen = (list(column) for column in zip(*scores, strict=True))
        best = max(range(len(val)), key=lambda i: comparison.metric.worth(val[i]))
        learners.append(Measured(label, name, test, val, heat, chosen, best))
    return learners


def scores(loaded: Any, metric: str, seed: int, features: Path | None) -> dict[str, list[Any]]:
    """Of every yardstick: the metric on test and on validation, its temperature, and what validation chose.

    Where ``features`` is a folder, also on what a pretrained network makes of the data, which is kept there.
    """
    from fallow.training.yardsticks import on_pretrained, yardsticks

    found = yardsticks(loaded, metric=metric, seed=seed)
    if features is not None:
        found += on_pretrained(loaded, metric=metric, folder=features)
    return {
        each.name: [each.metrics["test"][metric], each.metrics["val"][metric], _heat(each), each.chosen]
        for each in found
    }


def _heat(each: Yardstick) -> float | None:
    y = each.outputs["val_y"]
    classes = not y.is_floating_point() and y.ndim == 1
    return temperature(each.outputs["val"], y) if classes else None


def entry(row: Measured, first: int) -> Runner:
    """A yardstick as a row of the table: what it gave on the split that it was best on by validation."""
    model = row.network or "yardstick"
    test, val = row.test[row.best], row.val[row.best]
    return Runner(row.data, model, row.name, first + row.best, "", None, test, val, 0.0, 0, 0.0)


def said(settings: Sequence[Setting], rows: Sequence[Measured]) -> list[str]:
    """A sentence for every setting in which the best network does not beat the best yardstick, by validation.

    Both on the splits that yardsticks see: a race goes on to others, which may be easier or harder. And one where no
    network at all beats the majority or the mean, which look at no example.
    """
    found = []
    for setting in settings:
        metric, here = setting.metric, [row for row in rows if row.data == setting.data]
        networks = [row for row in setting.rows if row.estimate is not None]
        if not here or not networks:
            continue
        shown, worth = Shown.of(metric), metric.worth
        where = (
            setting.data if [s.data for s in settings].count(setting.data) == 1 else f"{setting.data} ({setting.model})"
        )
        best = max(here, key=lambda row: worth(statistics.fmean(row.val)))
        strongest = max(networks, key=lambda row: worth(row.validation))
        tests = {row.method: worth(_on_same(setting, row, len(best.test))) for row in networks}
        plain = next((row for row in here if row.name in PLAIN and max(tests.values()) <= worth(row.mean)), None)
        if best is not plain and tests[strongest.method] <= worth(best.mean):
            found.append(
                f"On {where}, {strongest.method}, the best network on validation, does not beat {best.name} "
                f"({shown.full(best.mean)}), which takes seconds."
            )
        if plain is not None:
            found.append(
                f"On {where}, no network beats even the {plain.name} ({shown.full(plain.mean)}), "
                "which ignores the inputs."
            )
    return found


def _on_same(setting: Setting, row: Row, count: int) -> float | None:
    """A network's mean on test over the first so many seeds; over all of its seeds where it has none of these."""
    same = [row.scores[seed] for seed in setting.first_seeds(count) if seed in row.scores]
    return statistics.fmean(same or row.scores.values()) if row.scores else None
