"""Which method generalises best on this data, with evidence: plan → runs → store → findings → report.

>>> from fallow.comparison import Plan, compare
>>> plan = Plan(data=("digits",), methods=("ema",), seeds=2, quick=True)
>>> done = compare(plan, "comparisons/digits")  # doctest: +SKIP
>>> done.findings().sentence  # doctest: +SKIP
'On digits, no method is shown to beat long, the same compute spent plainly: …'
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.comparison.plan import Plan

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison
    from fallow.diagnose.run import Diagnosis

__all__ = ["Plan", "compare"]


def compare(
    plan: Plan,
    out: str | Path,
    *,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    diagnose: bool = False,
    began: Callable[[Comparison], None] | None = None,
    watch: Callable[[Comparison], None] | None = None,
    told: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Run what a plan lacks, and leave the verdicts, the winner's model and ``report.html`` in ``out``.

    ``diagnose`` adds to the report why: curvature, depth, margins, flatness, and whether they order the methods as
    accuracy does. ``began`` is called once before the first run, ``watch`` several times a second, ``told`` with what
    is being diagnosed and the share that is done. Killed anywhere, the same call goes on; with more methods, seeds,
    data sets or models in the plan, only what is missing runs.
    """
    from fallow.comparison.engines import check
    from fallow.comparison.run import opened, run
    from fallow.core.engine import find_device

    check(engine, address, workers)
    if engine == "local":
        find_device(device)
    with opened(plan, Path(out), device) as (comparison, store, tasks):
        if began is not None:
            began(comparison)
        run(comparison, store, tasks, engine_name=engine, address=address, workers=workers, watch=watch)
        store.write("seconds", (store.read("seconds") or 0.0) + time.monotonic() - comparison.started)
        found = _diagnose(comparison, told) if diagnose else None
        _report(comparison, store.read("seconds"), found)
    return comparison


def _report(comparison: Comparison, seconds: float, found: Diagnosis | None) -> None:
    from fallow.comparison.best import keep
    from fallow.comparison.page import About, write
    from fallow.core.record import versions

    findings = comparison.findings()
    plan = comparison.plan
    best = keep(comparison, findings.winner) if findings.winner is not None else None
    notes = [note for data in comparison.loaded.values() for note in data.notes]
    settings = {}
    if len(plan.data) == 1:
        whole = comparison.settings(plan.data[0])
        settings = {key: whole[key] for key in ("generations", "epochs", "batch_size")}
    about = About(
        title=f"fallow compare: {' and '.join(comparison.labels.values())}",
        command=f"fallow compare --plan {shlex.quote(str(comparison.folder / 'plan.toml'))} --out NEW",
        plan=plan.describe() | {"models": list(dict.fromkeys(cell.model for cell in comparison.cells))} | settings,
        versions=versions() | {"threads": 1},
        notes=list(dict.fromkeys(notes)),
        budget=plan.budget,
        seconds=seconds,
    )
    named = {cell.folder: comparison.outcomes[cell.folder] for cell in comparison.cells}
    write(comparison.folder, findings, [comparison.named(o) for o in named.values()], best, about, found)


def _diagnose(comparison: Comparison, told: Callable[[str, float], None] | None) -> Diagnosis | None:
    """A quick diagnosis of the first setting's models of the first seed, with their methods' mean accuracies."""
    from fallow.diagnose.run import diagnose
    from fallow.diagnose.subjects import subjects

    setting = comparison.findings().settings[0]
    means = {row.method: row.estimate.mean for row in setting.rows if row.estimate is not None}
    cells = [
        cell
        for cell in comparison.cells
        if (comparison.labels[cell.data], cell.model, cell.seed) == (setting.data, setting.model, comparison.plan.seed)
        and comparison.outcomes[cell.folder].reason is None
    ]
    if not cells:
        return None
    models = subjects([comparison.folder / cell.folder for cell in cells], weights=comparison.plan.score)
    for model in models:
        model.accuracy = means.get(model.method)
    return diagnose(models, quick=True, progress=told)
