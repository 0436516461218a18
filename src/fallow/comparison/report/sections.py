"""What the page shows of one setting: the rows of its tables, and its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from fallow.comparison.findings import BASELINE, CONTROLS, Against, Findings, Outcome, Row, Setting
from fallow.comparison.report import cost, curves, intervals, learning
from fallow.comparison.report.intervals import Bar
from fallow.comparison.report.svg import Drawing, beside
from fallow.comparison.report.words import percent, points


@dataclass
class Comparison:
    """Every method against one other."""

    to: str
    lines: list[tuple[Row, Against, Markup]]
    axis: Markup


@dataclass
class Section:
    """One setting on the page."""

    setting: Setting
    anchor: str
    sentence: str
    asked: int  # methods whose p-values were corrected together
    ranking: list[tuple[Row, Markup]]
    axis: Markup
    failures: list[tuple[str, str, str]]  # method, seeds, reason
    seeds: list[int]
    expected: int  # runs a method, so that a row with fewer is known to be incomplete
    control: Comparison | None = None
    normal: Comparison | None = None
    curves: list[Drawing] = field(default_factory=list)
    lowest: float = 0.0  # where the curves' axis begins
    cost: list[Drawing] = field(default_factory=list)
    files: dict[str, Drawing] = field(default_factory=dict)


def section(folder: Path, setting: Setting, outcomes: Sequence[Outcome], anchor: str) -> Section:
    """Draw all that belongs to a setting."""
    done = [row for row in setting.rows if row.estimate is not None]
    bars = {row.method: _bar(row) for row in done}
    scale = intervals.column(list(bars.values())) if bars else None
    drawn = dict(zip(bars, intervals.rows(list(bars.values()), scale, None), strict=True)) if scale else {}
    seeds = sorted({seed for row in setting.rows for seed in (*row.accuracy, *row.failed)})
    made = Section(
        setting=setting,
        anchor=anchor,
        sentence=Findings([setting], None, None).sentence,
        asked=sum(asked(row) and row.to_control is not None for row in setting.rows),
        ranking=[(row, drawn.get(row.method, Markup(""))) for row in setting.rows],
        axis=intervals.axis(scale, differences=False) if scale else Markup(""),
        failures=_failures(setting),
        seeds=seeds,
        expected=max([len(seeds), *(len(row.accuracy) + len(row.failed) for row in setting.rows)]),
    )
    if not bars:
        return made
    says = "Mean test accuracy with 95 % interval: " + "; ".join(f"{b.label} {b.words}" for b in bars.values())
    made.files["ranking"] = intervals.forest(list(bars.values()), f"{setting.name}: test accuracy", says)
    made.control = _comparison(made, "control", [(row, row.to_control) for row in done])
    made.normal = _comparison(made, "normal", [(row, row.to_normal) for row in done])
    made.cost = [
        cost.passes(list(bars.values()), [row.passes or 0.0 for row in done]),
        cost.time(list(bars.values()), [row.seconds or 0.0 for row in done]),
    ]
    made.files["cost"] = beside(
        made.cost,
        2,
        f"{setting.name}: test accuracy against cost",
        " ".join(drawing.says + "." for drawing in made.cost),
    )
    _learning(made, folder, [o for o in outcomes if (o.data, o.model) == (setting.data, setting.model)])
    return made


def asked(row: Row) -> bool:
    """Whether the row is a method that was asked about, no baseline and no control."""
    return row.method not in (BASELINE, *CONTROLS)


def _bar(row: Row) -> Bar:
    assert row.estimate is not None
    mean, low, high = row.estimate
    seeds = list(row.accuracy.values())
    words = f"{percent(mean)} %" + (f" ({percent(low)} to {percent(high)})" if low is not None else "")
    return Bar(row.method, mean, low, high, seeds if len(seeds) > 1 else [], row.verdict, words)


def _comparison(made: Section, name: str, found: list[tuple[Row, Against | None]]) -> Comparison | None:
    pairs = [(row, against) for row, against in found if against is not None]
    if not pairs:
        return None
    reference = made.setting.row(pairs[0][1].method)
    bars = []
    for row, against in pairs:
        d = against.difference
        seeds = [row.accuracy[seed] - reference.accuracy[seed] for seed in row.accuracy if seed in reference.accuracy]
        words = f"{points(d.mean)} ({points(d.low)} to {points(d.high)})"
        bars.append(
            Bar(row.method, d.mean, d.low, d.high, seeds, against.verdict if asked(row) else row.verdict, words)
        )
    scale = intervals.column(bars, 0.0)
    head = f"{made.setting.name}: difference to {reference.method}"
    says = f"Difference to {reference.method} in points, 95 % interval: " + "; ".join(
        f"{b.label} {b.words}" for b in bars
    )
    made.files[f"to-{name}"] = intervals.forest(bars, head, says, zero=0.0)
    lines = [(row, a, drawn) for (row, a), drawn in zip(pairs, intervals.rows(bars, scale, 0.0), strict=True)]
    return Comparison(reference.method, lines, intervals.axis(scale, differences=True))


def _learning(made: Section, folder: Path, outcomes: Sequence[Outcome]) -> None:
    found = {
        row.method: curve
        for row in made.setting.rows
        if (curve := curves.read(folder, [o for o in outcomes if o.method == row.method]))
    }
    if not found:
        return
    control = made.setting.control
    beaten = (control, found[control]) if control is not None and control in found else None
    shown = learning.limits(list(found.values()))
    last = max(curve.edges[-1] for curve in found.values())
    made.lowest = shown[0]
    made.curves = [
        learning.panel(name, curve, None if name == control else beaten, shown, last) for name, curve in found.items()
    ]
    made.files["curves"] = beside(
        made.curves,
        3,
        f"{made.setting.name}: validation accuracy in %, control dashed",
        " ".join(drawing.says + "." for drawing in made.curves),
    )


def _failures(setting: Setting) -> list[tuple[str, str, str]]:
    """Seeds of a method that failed for the same reason are one line."""
    lines = []
    for row in setting.rows:
        for reason in dict.fromkeys(row.failed.values()):
            seeds = [str(seed) for seed, why in sorted(row.failed.items()) if why == reason]
            lines.append((row.method, ", ".join(seeds), reason))
    return lines
