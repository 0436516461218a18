"""Which method generalises best on this data, with evidence: plan → runs → findings → report.

>>> from fallow import compare
>>> done = compare("digits", methods="ema", seeds=2, quick=True)  # doctest: +SKIP
>>> done.findings().sentence  # doctest: +SKIP
'On digits, no method is shown to beat long, ordinary training of equal compute: …'
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallow.base.errors import FallowError, RequestError, WorkError, first_line
from fallow.comparison.plan import METHODS, QUICK_SEEDS, SEEDS, Plan, default_folder, split_names
from fallow.core.method import Method

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison
    from fallow.diagnose.run import Diagnosis
    from fallow.experiment import State

__all__ = ["Plan", "compare", "execute"]

Names = str | Sequence[str]


def compare(
    data: Names | Path | tuple[Any, ...],
    methods: Names | Method = METHODS,
    *,
    models: Names = (),
    seeds: int | None = None,
    seed: int = 0,
    looks: Sequence[int] = (),
    same: float | None = None,
    prove_worse: bool = False,
    minutes: float | None = None,
    exploratory: Sequence[str] = (),
    tune: int = 0,
    folds: int = 0,
    labels: bool = False,
    refit: bool = True,
    quick: bool = False,
    budget: str = "passes",
    score: str = "last",
    train: int | None = None,
    val: float = 0.2,
    size: int | None = None,
    strict: bool = False,
    as_: str | None = None,
    groups: str | None = None,
    target: str | None = None,
    drop: str | None = None,
    weights: str | Path | None = None,
    tasks: dict[str, Any] | None = None,
    generations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    metric: str | None = None,
    settings: dict[str, Any] | None = None,
    out: str | Path | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    diagnose: bool = False,
    transfer_to: Names = (),
    watch: Callable[[State], None] | None = None,
) -> Comparison:
    """Compare methods on data at equal compute, and say with statistics which helps.

    Interrupted, the same call resumes it; asked for more methods or seeds, it runs what is missing.

    Parameters
    ----------
    data : bundled names or paths, one or more; or arrays, (x, y), or (train, test) or (train, val, test) of such pairs,
        which are kept in the folder as arrays.npz.
    methods, models : names with settings, in a list or in one text: ``"llf,seal:scale=0.1"``. The controls belong to
        every comparison; without models, one that fits the data.
    seeds, seed : the most that may be spent on a method (20; 4 with ``quick``), and the first of them.
    looks : at how many seeds methods are judged, frozen before the first run; by default 4, 5, 6, 8 … ``seeds``.
    same : a difference up to this is none in practice, in points for a share, else in the metric's unit.
    prove_worse : losers run on until they are proved to be worse; otherwise they run no more.
    minutes : so many seeds as this time allows, by the measured speed, and no run that would end after it.
    exploratory : methods that were not asked about from the start; those that a later call adds are so by themselves.
    tune : so many trials of settings for each runner, the controls included, on two seeds that then do not race.
    folds : so many seeds are the folds of one partition, so that each example is a test example in one of them.
    refit : once everything is chosen, the winner that is kept learns from all labels, validation included.
    labels : what would more labels bring? The control and the best method also train on 25, 50 and 75 % of them.
    quick : a first look, with a quarter of the epochs.
    budget : what is equal between the methods, "passes" (forward-backward) or "steps".
    score : which epoch counts, the "last", or the "best" on validation.
    train, val, size, strict, as_, groups, target, drop : how the data are loaded, see :func:`fallow.data.load`.
    weights : a file of pretrained weights from which every method starts.
    tasks : options of :func:`fallow.data.tasks.load.load_tasks` (ways, shots …), for methods that learn from tasks.
    generations, epochs, batch_size, lr : of the training; what is not given follows from the data.
    metric : what judges and chooses; by default the target's own, accuracy for classes, RMSE for numbers.
    settings : other settings of the training, see :class:`fallow.Settings`.
    out : the folder of the comparison, by default comparisons/NAME, or comparisons/NAME-quick.
    engine, address, workers, device : where the runs work, see :func:`fallow.experiment.run`.
    diagnose : the report says why, too.
    transfer_to : other data; every method's features are probed on them, with a verdict against the control.
    watch : called with the experiment's state several times a second.

    """
    from fallow.comparison.memory import NAME, in_memory, keep

    given = in_memory(data)
    own = {"generations": generations, "epochs": epochs, "batch_size": batch_size, "lr": lr, "metric": metric}
    plan = Plan(
        data=(NAME,) if given else tuple(map(str, (data,) if isinstance(data, str | Path) else data)),
        methods=_names(methods),
        models=_names(models),
        seeds=seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS,
        seed=seed,
        looks=tuple(looks),
        same=same,
        prove_worse=prove_worse,
        minutes=minutes,
        exploratory=tuple(exploratory),
        tune=tune,
        folds=folds,
        labels=labels,
        refit=refit,
        quick=quick,
        budget=budget,
        score=score,
        train=train,
        val=val,
        size=size,
        strict=strict,
        as_=as_,
        groups=groups,
        target=target,
        drop=drop,
        weights=str(weights) if weights is not None else None,
        tasks=tasks or {},
        settings=own | (settings or {}),
    )
    where = Path(out) if out is not None else default_folder(plan)
    if given:
        plan = dataclasses.replace(plan, data=(keep(data, plan, where),))
    return execute(
        plan, where, engine=engine, address=address, workers=workers, device=device, diagnose=diagnose,
        transfer_to=(transfer_to,) if isinstance(transfer_to, str) else transfer_to, watch=watch,
    )  # fmt: skip


def _names(given: Names | Method) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(split_names(given))
    several = (given,) if isinstance(given, Method) else tuple(given)
    if any(not isinstance(one, str | Method) for one in several):
        raise RequestError("models are compared by name, as every run makes its own: write a factory, 'module:factory'")
    return tuple(map(str, several))


def execute(
    plan: Plan,
    out: str | Path,
    *,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    diagnose: bool = False,
    transfer_to: Sequence[str] = (),
    began: Callable[[Comparison], None] | None = None,
    told: Callable[[str], None] | None = None,
    watch: Callable[[State], None] | None = None,
    diagnosing: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Run what a plan lacks, and leave the verdicts, the winner's model and ``report.html`` in ``out``.

    ``diagnose`` adds to the report why: curvature, depth, margins, flatness, and whether they order the methods as
    accuracy does; ``transfer_to`` what the methods' features are worth on other data. ``began`` is called once before
    the first run, ``told`` with what trials chose, ``watch`` several times a second, ``diagnosing`` with what is being
    diagnosed and the share that is done. Killed anywhere, the same call goes on; with more methods, seeds, data sets or
    models in the plan, only what is missing runs.
    """
    import joblib

    from fallow.comparison.minutes import paces, within
    from fallow.comparison.policy import epochs, policy
    from fallow.comparison.recipes import with_trials
    from fallow.comparison.run import begun
    from fallow.comparison.transfer import check as check_targets
    from fallow.comparison.transfer import transferred
    from fallow.comparison.winner import take
    from fallow.comparison.yardsticks import measured
    from fallow.core.engine import find_device
    from fallow.experiment import check, epochs_done

    check(engine, address, workers)
    check_targets(transfer_to)
    slots = workers or joblib.cpu_count()
    if engine == "local":
        find_device(device)
    with begun(plan, Path(out)) as (comparison, experiment):
        _refuse_looks(comparison, diagnose, bool(transfer_to))
        if comparison.plan.minutes is not None and not experiment.store.records():
            now = comparison.plan
            comparison.keep_plan(within(now, comparison.loaded, slots, paces(now, comparison.loaded)), experiment)
        if began is not None:
            began(comparison)
        where: dict[str, Any] = {"engine": engine, "address": address, "workers": workers, "device": device}
        contents = experiment.store.read("data")
        settled, said = with_trials(comparison.plan, contents, comparison.loaded, comparison.folder, **where)
        if said:
            experiment.store.write("trials", (experiment.store.read("trials") or {}) | said)
            comparison.keep_plan(settled, experiment)
        for source, words in (experiment.store.read("trials") or {}).items():
            comparison.loaded[source].notes.append(words)
            if told is not None:
                told(words)
        experiment.run(
            policy(comparison.plan, comparison.loaded, contents, comparison.metric, slots),
            **where,
            watch=watch,
            progress=lambda run, folder: epochs_done(folder, epochs(run)),
        )
        seconds = (experiment.store.read("seconds") or 0.0) + comparison.state.seconds()
        experiment.store.write("seconds", seconds)
        comparison.yardsticks = measured(comparison, contents, **where)
        comparison.taken = take(comparison, experiment, engine=engine, address=address, workers=workers, device=device)
        if transfer_to:
            comparison.transfers = transferred(comparison, transfer_to, **where)
        found = _diagnose(comparison, diagnosing) if diagnose else None
        _report(comparison, seconds, found)
    return comparison


def _refuse_looks(comparison: Comparison, diagnose: bool, transfer: bool) -> None:
    """Refuse, before anything is trained, what would fail once everything is."""
    from fallow.diagnose.subjects import unmeasured

    texts = [source for source, data in comparison.loaded.items() if getattr(data, "texts", False)]
    first, data = next(iter(comparison.loaded.items()))  # whose networks are diagnosed
    kind = "tasks" if comparison.plan.fewshot else data.target.kind
    if diagnose and (why := unmeasured(kind, first in texts)):
        raise RequestError(f"{first} {why}: leave diagnose out")
    if transfer and texts:
        raise RequestError(f"{texts[0]} holds texts, whose features are not transferred: leave transfer_to out")


def _report(comparison: Comparison, seconds: float, found: Diagnosis | None) -> None:
    from fallow.comparison.best import keep
    from fallow.comparison.page import About, write
    from fallow.comparison.transfer import sections
    from fallow.core.record import versions
    from fallow.report.shown import Shown

    findings = comparison.findings()
    plan, taken, best, lost = comparison.plan, comparison.taken, None, None
    try:
        best = keep(comparison, taken) if taken is not None else None
    except (FallowError, OSError) as error:  # the rest is worth a report
        lost = error
    notes = [note for data in comparison.loaded.values() for note in data.notes]
    models = (run.arguments["model"] for run in comparison.runs)
    settings = {}
    if len(plan.data) == 1:
        whole = comparison.settings(plan.data[0])
        settings = {key: whole[key] for key in ("generations", "epochs", "batch_size")}
    about = About(
        title=f"fallow compare: {' and '.join(comparison.labels.values())}",
        command=f"fallow compare --plan {shlex.quote(str(comparison.folder / 'plan.toml'))} --out NEW",
        plan=plan.describe() | {"models": list(dict.fromkeys(models))} | settings,
        versions=versions() | {"threads": 1},
        notes=list(dict.fromkeys(notes)),
        budget=plan.budget,
        seconds=seconds,
        yardsticks=comparison.yardsticks,
        transfers=sections(comparison.transfers),
    )
    named = [comparison.named(entry) for entry in comparison.entries.values()]
    write(comparison.folder, findings, named, best, about, found, Shown.of(comparison.metric))
    if lost is not None and taken is not None:
        run = taken.folder
        raise WorkError(
            f"the best model cannot be kept ({first_line(lost)}): delete {run}, and the same command trains it again"
        ) from lost


def _diagnose(comparison: Comparison, told: Callable[[str, float], None] | None) -> Diagnosis | None:
    """A quick diagnosis of the first setting's models of the first seed, with their methods' mean accuracies."""
    from fallow.diagnose.run import diagnose
    from fallow.diagnose.subjects import subjects

    setting = comparison.findings().settings[0]
    means = {row.method: row.estimate.mean for row in setting.rows if row.estimate is not None}
    done = [o for o in map(comparison.named, comparison.entries.values()) if o.reason is None]
    wanted = (setting.data, setting.model, comparison.plan.first)
    first = [comparison.folder / o.folder for o in done if (o.data, o.model, o.seed) == wanted]
    if not first:
        return None
    models = subjects(first, weights=comparison.plan.score, trusted=comparison.plan.models)
    for model in models:
        model.accuracy = means.get(model.method)
    return diagnose(models, quick=True, progress=told)
