"""What a comparison shows while it runs."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from fallow.cli.display import duration, say
from fallow.cli.live import title
from fallow.comparison.minutes import trainings
from fallow.comparison.policy import races
from fallow.comparison.race import steps
from fallow.comparison.tuning import WORK as TRIAL
from fallow.comparison.tuning import said
from fallow.evaluate.race import visible
from fallow.report.shown import Shown
from fallow.report.words import many, roughly
from fallow.training import recipes

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison
    from fallow.experiment import Run

LONG = 1800.0  # seconds to the first look from which on shorter ways are named


def introduce(comparison: Comparison, workers: int | None) -> None:
    """Say what will be compared, and how long it will take so many workers on this machine (None: nobody knows)."""
    plan = comparison.plan
    for source, data in comparison.loaded.items():
        models, settings = comparison.models(source), comparison.settings(source)
        say(
            f"{comparison.labels[source]}: {data.understood(settings.get('augment', 'auto'))}; {len(plan.methods)} "
            f"methods, a race of up to {many(plan.seeds, 'seed')}"
        )
        say(recipes.said(" and ".join(models), {"batch_size": 32, "lr": 0.01, "schedule": "cosine"} | settings))
        if plan.tune:
            say(
                f"first {many(plan.tune, 'tuning trial')} per method, controls included, on validation of seeds "
                f"{plan.held[0]} and {plan.held[1]}, which are not in the race"
            )
        if plan.folds:
            say(
                f"up to {many(plan.seeds // plan.folds, 'repeat')} of {plan.folds} folds, one seed per fold: each "
                "example is a test example once per repeat"
            )
        say(_prospect(comparison, data))
        for note in data.notes:
            say(f"note: {note}")
    if workers is not None:
        say(f"this takes {estimate(comparison, workers)}")


def estimate(comparison: Comparison, workers: int) -> str:
    """The time of the runs up to the first look, trials of settings included, and of all that may come to be wanted.

    By runs that ended before, or by a few steps of the plainest method on each data set with each model.
    """
    from fallow.comparison.minutes import paces
    from fallow.comparison.policy import Speed, runs

    plan, ended = comparison.plan, comparison.state.outcomes
    whole = [
        run
        for run in runs(plan, comparison.loaded, dict.fromkeys(plan.data, ""))
        if run.arguments["seed"] >= plan.first
    ]
    rate = Speed(ended).rate
    pace = paces(plan, comparison.loaded) if rate is None else {}

    def seconds(wanted: list[Run]) -> float:
        costs = [
            run.cost * (rate or pace[run.arguments["data"], run.arguments["model"]])
            for run in wanted
            if run.name not in ended
        ]
        return max(sum(costs) / workers, max(costs, default=0.0))

    first = min(plan.looks[0], plan.seeds)
    least = seconds([run for run in whole if run.arguments["seed"] < plan.first + first])
    trials = least / first * trainings(plan.tune or 0)
    least, most = least + trials, seconds(whole) + trials
    on = f"on {many(workers, 'worker')}"
    if plan.minutes is not None and 60 * plan.minutes < most:
        return f"{roughly(60 * plan.minutes)} {on}, as asked; all {plan.seeds} seeds would take {roughly(most)}"
    said = f"{roughly(least)} {on}"
    if roughly(least) != roughly(most):
        said += f" for the first {many(first, 'seed')}, {roughly(most)} if all {plan.seeds} seeds are needed"
    return said if least < LONG or plan.quick else f"{said}; --minutes 30 makes it fit, --quick is a first look"


def _prospect(comparison: Comparison, data: Any) -> str:
    """What the race will be able to see."""
    plan = comparison.plan
    metric = comparison.metric
    race = plan.rules(metric).race(plan.methods, (), steps(data, metric), data.overlap, metric)
    if plan.seeds < race.looks[0]:
        return f"nothing can be judged before {race.looks[0]} seeds"
    last = max(k for k in race.looks if k <= plan.seeds)
    seen = visible(last, race.looks, race.overlap, level=race.level / max(1, len(race.methods)))
    within = "" if plan.minutes is None else f"in {plan.minutes:g} minutes, "
    return (
        f"{within}{many(last, 'seed')} will detect, with 80 % power, a true difference of {seen:.1f} standard "
        "deviations (of the paired differences between seeds)"
    )


def line(comparison: Comparison, run: Run) -> str:
    """A run that ended, in words."""
    found, shown = comparison.named(comparison.entry(run)), Shown.of(comparison.metric)
    what = f"{found.data} {found.model} {found.method} seed {found.seed}"
    if run.work == TRIAL:
        training = {key: run.arguments["settings"].get(key) for key in ("lr", "weight_decay")}
        on_trial = {key: value for key, value in (run.arguments.get("own", {}) | training).items() if value is not None}
        what += f" trial ({said(on_trial) or 'as given'})"
    if "keep" in run.arguments["load"]:
        what += f" on {run.arguments['load']['keep']} labels"
    score = f"validation {shown.full(found.val, 2)}" if run.work == TRIAL else f"test {shown.full(found.test, 2)}"
    return f"{what}: {f'failed: {found.reason}' if found.reason else score} in {found.seconds:.1f} s"


def table(comparison: Comparison) -> Any:
    """A row for every method."""
    from rich.table import Table
    from rich.text import Text

    entries, progress = comparison.entries, comparison.state.progress
    shown = Table(title=title(comparison.state), title_justify="left", box=None)
    shown.add_column("method")
    metric = Shown.of(comparison.metric)
    for name in ("seeds", "running", f"test {metric.words} so far", "time per run"):
        shown.add_column(name, justify="right")
    for source in comparison.plan.data:
        if len(comparison.plan.data) > 1:
            shown.add_row(Text(comparison.labels[source], "bold"))  # no text from the data is markup
        for method in comparison.plan.methods:
            asked = [
                run
                for run in comparison.state.runs.values()
                if (run.arguments["data"], run.arguments["method"]) == (source, method)
            ]
            names = [run.name for run in asked if races(run)]
            trials = sum(run.work == TRIAL for run in asked)
            tried = sum(run.work == TRIAL and run.name in comparison.state.outcomes for run in asked)
            found = [entries[name] for name in names if name in entries]
            scores = [o.test for o in found if o.test is not None]
            failed = sum(o.reason is not None for o in found)
            shown.add_row(
                Text(method),
                f"{len(scores)}/{len(names)}" + (f" ({failed} failed)" if failed else "")
                if names
                else f"trial {tried}/{trials}",
                " ".join(f"{100 * progress[run.name]:.0f} %" for run in asked if progress.get(run.name)),
                metric.full(statistics.fmean(scores), 2) if scores else "",
                duration(statistics.fmean(o.seconds for o in found)) if found else "",
            )
    return shown
