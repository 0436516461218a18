"""The numbers as CSV, to full precision: one line a run, one line a method."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fallow.comparison.findings import Against, Findings, Row, Setting
from fallow.comparison.race import Runner
from fallow.comparison.yardsticks import Measured
from fallow.evaluate.score import key_of
from fallow.report.words import clean

# seconds come last: they alone differ when the same comparison runs again
RESULTS = (
    "data", "model", "method", "seed", "status", "reason", "test", "val", "train", "passes", "steps",
    "folder", "seconds",
)  # fmt: skip
AGAINST = ("to", "difference", "low", "high", "p", "p_holm", "smallest", "verdict")
CALIBRATION = ("ece", "log_loss", "scaled_ece", "scaled_log_loss")
SUMMARY = (
    "data", "model", "method", "verdict", "exploratory", "advice", "stopped",
    "seeds", "failed", "mean", "low", "high", "validation", "training", *CALIBRATION,
    *(f"{name}_{key}" for name in ("normal", "control") for key in AGAINST),
    "settings", "trials", "trial_passes", "passes", "trial_seconds", "seconds",
)  # fmt: skip


def results(outcomes: Sequence[Runner], metric: str) -> bytes:
    """One line a run, in an order that does not depend on which was done first."""
    ordered = sorted(outcomes, key=lambda o: (o.data, o.model, o.method, o.seed))
    return _csv(
        [key_of(name, metric) if name in ("test", "val", "train") else name for name in RESULTS],
        (
            (
                o.data, o.model, o.method, o.seed, _status(o), o.reason, o.test, o.val,
                o.training[-1] if o.training else None, float(o.passes), o.steps, o.folder, float(o.seconds),
            )
            for o in ordered
        ),
    )  # fmt: skip


def summary(findings: Findings, learners: Sequence[Measured] = ()) -> bytes:
    """One line a method and setting, the best on validation first; then the ensembles, and the yardsticks."""
    lines = [line for setting in findings.settings for line in (*_rows(setting), *_ensembles(setting))]
    return _csv(SUMMARY, [*lines, *map(_yardstick, learners)])


def _rows(setting: Setting) -> list[tuple[Any, ...]]:
    return [
            (
                setting.data, setting.model, row.method, row.verdict, *_standing(row), len(row.scores), len(row.failed),
                *(row.estimate or (None, None, None)), row.validation, row.training,
                *(row.calibration or (None,) * len(CALIBRATION)),
                *_against(row.to_normal), *_against(row.to_control), *_tuned(row), row.passes,
                row.tuned.seconds if row.tuned else None, row.seconds,
            )
            for row in setting.rows
    ]  # fmt: skip


def _ensembles(setting: Setting) -> Iterator[tuple[Any, ...]]:
    for each in setting.ensembles:
        where = {"data": setting.data, "model": setting.model, "method": each.name, "verdict": "ensemble"}
        calibrated = each.calibration._asdict() if each.calibration else {}
        yield _line(where | {"seeds": each.networks, "mean": each.test} | calibrated)


def _yardstick(learner: Measured) -> tuple[Any, ...]:
    what = {"data": learner.data, "method": learner.name, "verdict": "yardstick"}
    return _line(what | {"seeds": len(learner.test), "mean": learner.mean, "validation": statistics.fmean(learner.val)})


def _line(known: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(known.get(name) for name in SUMMARY)


def _status(outcome: Runner) -> str:
    if outcome.reason is not None:
        return "failed"
    return "done" if outcome.test is not None else "missing"


def _standing(row: Row) -> tuple[Any, ...]:
    place = row.standing
    return (int(row.exploratory), *((place.advice, place.stopped) if place is not None else (None, None)))


def _tuned(row: Row) -> tuple[Any, ...]:
    return (row.tuned.words(), row.tuned.trials, float(row.tuned.passes)) if row.tuned else ("untuned", 0, 0.0)


def _against(found: Against | None) -> tuple[Any, ...]:
    if found is None:
        return (None,) * len(AGAINST)
    d = found.difference
    return (found.method, d.mean, d.low, d.high, d.p, found.corrected, d.smallest, found.verdict)


def _csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_field(value) for value in line] for line in lines)
    return out.getvalue().encode()


def _field(value: Any) -> str:
    """Text from the data that a spreadsheet would run as a formula is quoted; numbers are as exact as they are.

    >>> _field("=1+1"), _field(-0.1), _field(None)
    ("'=1+1", '-0.1', '')
    """
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(float(value) if isinstance(value, float) else int(value))
    text = clean(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
