"""The verdict table on standard output: what a comparison found, and where its report is."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fallow.comparison.transfer import columns
from fallow.comparison.tuning import UNTUNED, cost
from fallow.report.shown import Shown
from fallow.report.words import many

if TYPE_CHECKING:
    from fallow.comparison.findings import Across, Against, Findings, Row, Setting
    from fallow.comparison.run import Comparison
    from fallow.evaluate.calibration import Calibration

HEAD = ("method", "seeds", "test {metric}", "95 % interval", "vs normal", "vs {control}", "p (Holm)", "detectable",
        "ECE", "log-loss", "passes", "time", "verdict")  # fmt: skip
CALIBRATED = HEAD.index("ECE")  # and the column after it, where answers are classes
REASONS = 5  # of failures, in the terminal


def verdicts(comparison: Comparison, findings: Findings) -> None:
    """Print the tables, the sentence and the paths."""
    for setting in findings.settings:
        print(f"\n{setting.name}")
        _print(setting, comparison)
        for row in setting.rows:
            if row.relearning:
                print(f"note: {row.relearning}")
        _tuning(setting, comparison.plan.tune)
        if setting.labels is not None:
            print(setting.forecast)
        elif comparison.plan.labels:
            print("What more labels would bring cannot be said: too few runs ended, or no error on test is left.")
    if findings.across is not None and findings.across.methods:
        _across(findings.across)
    print(f"\n{findings.sentence}")
    _failures(comparison)
    if findings.winner is not None:
        print(f"best model: {comparison.folder / 'best' / 'best.safetensors'} ({findings.winner.method})")
        for sentence in comparison.taken.said(Shown.of(comparison.metric)) if comparison.taken else ():
            print(f"  {sentence}")
        if comparison.loaded[comparison.source_of(findings.winner)].pictures:
            print(f"  fallow predict {shlex.quote(str(comparison.folder))} image.png")
    print(f"report: {comparison.folder / 'report.html'}")


def _tuning(setting: Setting, trials: int) -> None:
    """The settings that were chosen, and what they cost."""
    if not trials:
        print(UNTUNED)
        return
    print(cost([row.tuned for row in setting.rows if row.tuned], trials) + ":")
    width = max(len(row.method) for row in setting.rows)
    for row in setting.rows:
        print(f"  {row.method.ljust(width)}  {row.tuned.words() if row.tuned else 'not tuned'}")


def _failures(comparison: Comparison) -> None:
    """Why runs failed, each reason once."""
    seeds: dict[tuple[str, str, str, str], list[int]] = {}
    for found in map(comparison.named, comparison.entries.values()):
        if found.reason is not None:
            seeds.setdefault((found.data, found.model, found.method, found.reason), []).append(found.seed)
    for (data, model, method, reason), which in list(seeds.items())[:REASONS]:
        numbers = ", ".join(map(str, sorted(which)))
        print(f"failed: {method} on {data} ({model}), seed{'s' * (len(which) > 1)} {numbers}: {reason}")
    if len(seeds) > REASONS:
        rest = sum(map(len, list(seeds.values())[REASONS:]))
        print(f"… and {many(rest, 'more run')} failed: see {comparison.folder / 'results.csv'}")


def _print(setting: Setting, comparison: Comparison) -> None:
    control = setting.control or "control"
    shown = Shown.of(setting.metric)
    head = tuple(text.format(control=control, metric=shown.words) for text in HEAD)
    rows = [head, *(_row(row, comparison.plan.seeds, shown) for row in setting.rows)]
    for each in setting.ensembles:
        test = shown.full(each.test, 2)
        rows.append(
            (each.name, str(each.networks), test, *[""] * 5, *_calibrated(each.calibration), "", "", "ensemble")
        )
    for learner in comparison.yardsticks:
        if learner.data == setting.data:
            mean = shown.full(learner.mean, 2)
            rows.append((learner.name, str(len(learner.test)), mean, *[""] * (len(HEAD) - 4), "yardstick"))
    found = comparison.transfers.get(setting.name)
    for name in columns(found, setting.rows[0].method):  # before the verdict
        cells = [columns(found, row[0]).get(name, "") for row in rows[1:]]
        rows = [(*row[:-1], cell, row[-1]) for row, cell in zip(rows, (name, *cells), strict=True)]
    if not any(row[CALIBRATED] for row in rows[1:]):
        rows = [row[:CALIBRATED] + row[CALIBRATED + 2 :] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            text.ljust(width) if i in (0, len(rows[0]) - 1) else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    for sentence in setting.advice:
        print(f"undecided: {sentence}")


def _row(row: Row, seeds: int, shown: Shown) -> tuple[str, ...]:
    mean = low_high = ""
    if row.estimate is not None:
        mean, low_high = shown.full(row.estimate.mean, 2), shown.interval(row.estimate)
    against = row.to_control
    return (
        row.method,
        f"{len(row.scores)}/{seeds}",
        mean,
        low_high,
        _difference(row.to_normal, shown),
        _difference(against, shown),
        f"{against.corrected:.3f}" if against and against.corrected is not None else "",
        shown.size(against.difference.smallest) if against else "",
        *_calibrated(row.calibration),
        f"{row.passes:.0f}" if row.passes is not None else "",
        f"{row.seconds:.1f} s" if row.seconds is not None else "",
        row.judged,
    )


def _calibrated(found: Calibration | None) -> tuple[str, str]:
    """Calibration error and log-loss, as they are and after temperature scaling on validation."""
    if found is None:
        return "", ""
    return (
        f"{100 * found.ece:.1f} → {100 * found.scaled_ece:.1f}",
        f"{found.log_loss:.3f} → {found.scaled_log_loss:.3f}",
    )


def _difference(against: Against | None, shown: Shown) -> str:
    if against is None:
        return ""
    d = against.difference
    return f"{shown.difference(d.mean, 2)} ({shown.difference(d.low)} to {shown.difference(d.high)})"


def _across(across: Across) -> None:
    print(f"\nOver {across.settings} settings: does the column outperform the row? ★ exact binomial test at 5 %, "
          "○ after Holm's correction too")  # fmt: skip
    if across.settings < 5:
        print("(with fewer than five settings, the exact test cannot reach 5 %)")
    width = max(map(len, across.methods))
    print(" " * width, *across.methods)
    for row in across.methods:
        marks = (across.marks.get((row, column), "").center(len(column)) for column in across.methods)
        print(row.ljust(width), *marks)
    if across.tree is not None:
        print("\nWhich method wins when (a decision tree over the settings):")
        print(across.tree)
