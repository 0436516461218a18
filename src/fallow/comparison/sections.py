"""What the page shows of one setting: the rows of its tables, and its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from fallow.comparison import cost, curves
from fallow.comparison.findings import Against, Findings, Row, Setting
from fallow.comparison.race import Runner, plain
from fallow.comparison.track import track
from fallow.report import intervals
from fallow.report.charts import Axis, Line, lines
from fallow.report.intervals import Bar
from fallow.report.shown import Shown
from fallow.report.svg import Drawing, beside
from fallow.report.words import percent


@dataclass
class Differences:
    """Every method against one other."""

    to: str
    lines: list[tuple[Row, Against, Markup]]
    axis: Markup


@dataclass
class View:
    """One setting on the page."""

    setting: Setting
    anchor: str
    sentence: str
    asked: int  # methods whose p-values were corrected together
    ranking: list[tuple[Row, Markup]]
    axis: Markup
    failures: list[tuple[str, str, str]]  # method, seeds, reason
    seeds: list[int]
    every: tuple[list[str], list[list[str]]]  # the table of all runs: its columns and rows
    expected: int  # runs a method, so that a row with fewer is known to be incomplete
    calibration: list[list[str]]  # the rows of its table
    race: Drawing | None = None
    labels: Drawing | None = None
    control: Differences | None = None
    normal: Differences | None = None
    curves: list[Drawing] = field(default_factory=list)
    cut: str = ""  # what the curves' axis leaves out, in words
    cost: list[Drawing] = field(default_factory=list)
    files: dict[str, Drawing] = field(default_factory=dict)


def section(folder: Path, setting: Setting, outcomes: Sequence[Runner], anchor: str, shown: Shown) -> View:
    """Draw all that belongs to a setting."""
    done = [row for row in setting.rows if row.estimate is not None]
    bars = {row.method: _bar(row, shown) for row in done}
    scale = intervals.column(list(bars.values()), shown) if bars else None
    drawn = dict(zip(bars, intervals.rows(list(bars.values()), scale, None), strict=True)) if scale else {}
    seeds = sorted({seed for row in setting.rows for seed in (*row.scores, *row.failed)})
    made = View(
        setting=setting,
        anchor=anchor,
        sentence=Findings([setting], None, None).sentence,
        asked=len(setting.race.methods),
        ranking=[(row, drawn.get(row.method, Markup(""))) for row in setting.rows],
        axis=intervals.axis(scale, shown, differences=False) if scale else Markup(""),
        failures=_failures(setting),
        seeds=seeds,
        every=(["Method", *(f"Seed {seed}" for seed in seeds)], [_every(row, seeds, shown) for row in setting.rows]),
        calibration=_calibration(setting),
        expected=max([len(seeds), *(len(row.scores) + len(row.failed) for row in setting.rows)]),
    )
    if not bars:
        return made
    test, found = shown.axis("test"), list(bars.values())
    says = f"Mean {test} with 95 % interval: " + "; ".join(f"{b.label} {b.words}" for b in found)
    made.files["ranking"] = intervals.forest(found, f"{setting.name}: test {shown.words}", test, says, shown=shown)
    made.race = made.files["race"] = track(setting)
    if setting.labels is not None:
        drawn_labels = setting.labels.drawing(f"{setting.name}: {shown.axis('test')} by labels")
        assert drawn_labels is not None
        made.labels = made.files["labels"] = drawn_labels
    made.control = _comparison(made, "control", [(row, row.to_control) for row in done], shown)
    made.normal = _comparison(made, "normal", [(row, row.to_normal) for row in done], shown)
    made.cost = [
        cost.passes(found, [row.passes or 0.0 for row in done], shown),
        cost.time(found, [row.seconds or 0.0 for row in done], shown),
    ]
    made.files["cost"] = _together(made.cost, 2, f"{setting.name}: test {shown.words} against cost")
    _learning(made, folder, [o for o in outcomes if (o.data, o.model) == (setting.data, setting.model)], shown)
    return made


def asked(row: Row) -> bool:
    """Whether the row is a method that was asked about, no baseline and no control."""
    return not plain(row.method)


def _every(row: Row, seeds: Sequence[int], shown: Shown) -> list[str]:
    return [row.method, *("failed" if seed in row.failed else shown.value(row.scores.get(seed)) for seed in seeds)]


def _bar(row: Row, shown: Shown) -> Bar:
    assert row.estimate is not None
    mean, low, high = row.estimate
    seeds = list(row.scores.values())
    words = shown.full(mean) + (f" ({shown.value(low)} to {shown.value(high)})" if low is not None else "")
    return Bar(row.method, mean, low, high, seeds if len(seeds) > 1 else [], row.verdict, f"{words}, {row.verdict}")


def _comparison(made: View, name: str, found: list[tuple[Row, Against | None]], shown: Shown) -> Differences | None:
    pairs = [(row, against) for row, against in found if against is not None]
    if not pairs:
        return None
    reference = made.setting.row(pairs[0][1].method)
    bars = []
    for row, against in pairs:
        d = against.difference
        seeds = [row.scores[seed] - reference.scores[seed] for seed in row.scores if seed in reference.scores]
        mean, low, high = (shown.difference(v) for v in (d.mean, d.low, d.high))
        kind = against.verdict if asked(row) else row.verdict
        bars.append(Bar(row.method, d.mean, d.low, d.high, seeds, kind, f"{mean} ({low} to {high}), {kind}"))
    scale = intervals.column(bars, shown, 0.0)
    head = f"{made.setting.name}: difference to {reference.method}"
    says = f"Difference to {reference.method} in {shown.points}, repeated 95 % interval: " + "; ".join(
        f"{b.label} {b.words}" for b in bars
    )
    made.files[f"to-{name}"] = intervals.forest(bars, head, shown.points, says, shown=shown, zero=0.0)
    lines = [(row, a, drawn) for (row, a), drawn in zip(pairs, intervals.rows(bars, scale, 0.0), strict=True)]
    return Differences(reference.method, lines, intervals.axis(scale, shown, differences=True))


def _learning(made: View, folder: Path, outcomes: Sequence[Runner], shown: Shown) -> None:
    """Small multiples: one panel a method, the mean over seeds, all of them as a band, the control dashed."""
    found = {
        row.method: curve
        for row in made.setting.rows
        if (curve := curves.read(folder, [o for o in outcomes if o.method == row.method], shown.name))
    }
    if not found:
        return
    control = made.setting.control
    low, high = (shown.factor * end for end in curves.limits(list(found.values()), shown))
    if shown.higher and low > 0:
        made.cut = f"The axis starts at {shown.full(low / shown.factor, 0)}; lower values are cut off."
    elif not shown.higher:
        made.cut = f"The axis ends at {shown.full(high / shown.factor, 0)}; higher values are cut off."
    epochs = Axis("epoch", counts=True, limits=(0, max(curve.edges[-1] for curve in found.values())))
    for name, curve in found.items():
        drawn = [_line(name, curve, shown)]
        if control in found and name != control:
            drawn.append(_line(str(control), found[str(control)], shown)._replace(kind="quiet", band=None))
        panel = lines(
            name, drawn, epochs, Axis(limits=(low, high)), size=(320.0, 184.0), edges=curve.edges, named=False
        )
        assert panel is not None
        made.curves.append(panel)
    title = f"{made.setting.name}: {shown.axis('validation')}, control dashed"
    made.files["curves"] = _together(made.curves, 3, title)


def _line(name: str, curve: curves.Curve, shown: Shown) -> Line:
    by = shown.factor
    band = [(by * point.low, by * point.high) for point in curve.points] if curve.seeds > 1 else None
    return Line(name, [(point.epoch, by * point.mean) for point in curve.points], "plain", band)


def _together(drawings: Sequence[Drawing], columns: int, title: str) -> Drawing:
    return beside(drawings, columns, title, " ".join(drawing.says + "." for drawing in drawings))


def _calibration(setting: Setting) -> list[list[str]]:
    named = [
        *((row.method, row.calibration) for row in setting.rows),
        *((e.name, e.calibration) for e in setting.ensembles),
    ]
    return [
        [name, percent(found.ece), percent(found.scaled_ece), f"{found.log_loss:.3f}", f"{found.scaled_log_loss:.3f}"]
        for name, found in named
        if found is not None
    ]


def _failures(setting: Setting) -> list[tuple[str, str, str]]:
    """Seeds of a method that failed for the same reason are one line."""
    lines = []
    for row in setting.rows:
        for reason in dict.fromkeys(row.failed.values()):
            seeds = [str(seed) for seed, why in sorted(row.failed.items()) if why == reason]
            lines.append((row.method, ", ".join(seeds), reason))
    return lines
