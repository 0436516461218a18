"""The report of a comparison: one page to open offline, the numbers as CSV, the figures as SVG."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fallow.base import files
from fallow.comparison import tables
from fallow.comparison.confusion import confusion
from fallow.comparison.findings import LEVEL, Across, Findings, Row, Setting
from fallow.comparison.race import Runner
from fallow.comparison.sections import View, asked, section
from fallow.comparison.tuning import UNTUNED, cost
from fallow.data.targets import Target
from fallow.data.understood import wanted
from fallow.evaluate.statistics import binomial_test
from fallow.report import words
from fallow.report.page import Page, Section, environment
from fallow.report.pictures import picture
from fallow.report.pieces import figure, figures, heading, paragraph, table
from fallow.report.shown import ACCURACY, Shown
from fallow.report.svg import Drawing
from fallow.report.tags import tag

if TYPE_CHECKING:
    from fallow.comparison.best import Best
    from fallow.comparison.yardsticks import Measured
    from fallow.diagnose.run import Diagnosis

OURS = re.compile(
    r"(.+-)?(ranking|to-control|to-normal|race|cost|curves|labels|confusion|(predicted|residuals)(-\d+)?)\.svg"
)
BESIDE = {"results.csv": "every run", "summary.csv": "every method", "figures/": "SVG"}
LABELS = (
    "The control and the best method, trained again with as many steps on nested parts of the training examples: "
    "power laws are fitted to the errors, and all that fit give the forecast, up to twice the labels and no further."
)
CLASSES = 20  # more would not be legible as a heat map
CONFUSIONS = 10  # lines of the table


@dataclass(frozen=True)
class About:
    """What the report says of the comparison besides its results."""

    title: str
    command: str  # repeats it
    plan: dict[str, Any]
    versions: dict[str, Any]
    notes: list[str]  # sentences on the data: skipped, resized
    budget: str  # what is equal: "passes" or "steps"
    seconds: float  # the whole comparison
    yardsticks: Sequence[Measured] = ()
    transfers: Sequence[Section] = ()  # what features are worth on other data


def write(
    folder: Path,
    findings: Findings,
    outcomes: Sequence[Runner],
    best: Best | None,
    about: About,
    diagnosis: Diagnosis | None = None,
    shown: Shown = ACCURACY,
) -> Path:
    """Write report.html, results.csv, summary.csv and figures/ into the comparison's folder; the page's path."""
    several = len(findings.settings) > 1
    parts = [
        section(folder, setting, outcomes, f"s{i}" if several else "s", shown)
        for i, setting in enumerate(findings.settings, 1)
    ]
    drawings = {_prefix(made, several) + name: d for made in parts for name, d in made.files.items()}
    if best is not None and (heat := heat_map(best)) is not None:
        drawings["confusion"] = heat
    drawings |= best.drawings if best is not None else {}
    _write_figures(folder / "figures", drawings)
    files.write(folder / "results.csv", tables.results(outcomes, shown.name))
    files.write(folder / "summary.csv", tables.summary(findings, about.yardsticks))
    return _page(findings, parts, outcomes, best, about, diagnosis, shown).write(folder / "report.html")


def _page(
    findings: Findings,
    parts: Sequence[View],
    outcomes: Sequence[Runner],
    best: Best | None,
    about: About,
    diagnosis: Diagnosis | None,
    shown: Shown,
) -> Page:
    """The sections: those of one setting, or one for each of several; what is said of all; the best model."""
    made = environment(Path(__file__).parent)
    made.globals |= {"asked": asked, "verdict": verdict, "figure": figure, "figures": figures, "learned": learned}
    say: Any = made.get_template("page.html.j2").make_module({"about": about, "shown": shown})
    sections = []
    for i, part in enumerate(parts):
        level = 2 if len(parts) == 1 else 3
        inside = _inside(say, part, level, i == 0, shown)
        if level == 2:
            sections += inside
        else:
            about_it = tag("p", part.sentence) + tag("p", say.size(part.setting.described), ".", class_="note")
            below = [heading(3, one.title, one.anchor) + Markup("").join(one.body) for one in inside]
            sections.append(Section(part.setting.name, [about_it, *below], part.anchor))
    if findings.across is not None:
        sections.append(Section("All settings together", [say.together(_across(findings.across))], "across"))
    if about.yardsticks:
        sections.append(Section("Yardsticks", _yardsticks(about, shown), "yardsticks"))
    sections += about.transfers
    if diagnosis is not None:
        sections.append(Section("Why", _why(diagnosis), "why"))
    if best is not None:
        sections.append(Section("The best model", [say.best_model(_best(best, findings))], "best", "Best model"))
    sizes = [f"{part.setting.name}: {say.size(part.setting.described)}." for part in parts]
    return Page(
        title=about.title,
        verb="fallow compare",
        sentence=findings.sentence or "Nothing has been compared yet.",
        sections=sections,
        facts=_facts(parts, outcomes, about),
        command=about.command,
        notes=[*sizes, *about.notes],
        settings=about.plan,
        versions=about.versions,
        beside=BESIDE,
    )


def _inside(say: Any, part: View, level: int, explain: bool, shown: Shown) -> list[Section]:
    """What there is to say of one setting."""
    found = [
        Section("Ranking", [say.ranking(part, explain)], f"{part.anchor}-ranking"),
        Section("Paired differences", [say.differences(part, level, explain)], f"{part.anchor}-differences"),
    ]
    found.append(Section("Tuning", _tuned(part.setting), f"{part.anchor}-tuning"))
    if part.race:
        found.append(Section("The race", [say.race(part, explain)], f"{part.anchor}-race"))
    if part.labels and part.setting.labels:
        body = [paragraph(part.setting.forecast), paragraph(LABELS, kind="note"), figure(part.labels)]
        found.append(Section("More labels", body, f"{part.anchor}-labels"))
    if part.calibration:
        found.append(Section("Calibration", [say.calibration(part)], f"{part.anchor}-calibration"))
    if part.curves:
        found.append(Section("Learning curves", [say.curves(part)], f"{part.anchor}-curves"))
    if part.cost:
        title = words.capitalised(f"{shown.words} against cost")
        found.append(Section(title, [say.cost(part, explain)], f"{part.anchor}-cost", "Cost"))
    return found


def _prefix(made: View, several: bool) -> str:
    """The start of a file's name: the number keeps settings apart whose names are alike once they are harmless."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{made.setting.data}-{made.setting.model}").strip("-")[:60]
    return f"{made.anchor[1:]}-{name}-" if several else ""


def _write_figures(folder: Path, drawings: dict[str, Drawing]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        files.write(folder / f"{name}.svg", drawing.file())
    for path in folder.iterdir():  # of an earlier report that had more to show
        if OURS.fullmatch(path.name) and path.stem not in drawings:
            path.unlink()


def heat_map(best: Best) -> Drawing | None:
    """The confusion as a figure, where there are few enough classes."""
    return confusion(best.classes, best.confusion) if best.confusion and 1 < len(best.classes) <= CLASSES else None


def verdict(row: Row, control: str | None = None) -> tuple[str, str]:
    """A kind and the words for it."""
    kind = row.verdict
    if row.estimate is None:
        return ("failed", "failed") if row.failed else ("missing", "not run yet")
    if kind == "undecided" and row.to_control is None:
        return "missing", "not tested"
    if kind == "control" and row.method == control:
        return kind, "the control"
    return kind, row.judged


def _facts(sections: Sequence[View], outcomes: Sequence[Runner], about: About) -> list[str]:
    """The comparison in a line."""
    done = sum(o.test is not None for o in outcomes)
    failed = sum(o.reason is not None for o in outcomes)
    total = len(outcomes)  # a race that is over has run all that it wanted
    methods = len({o.method for o in outcomes})
    seeds = len({o.seed for o in outcomes})
    facts = [
        words.many(methods, "method"),
        words.many(seeds, "seed"),
        f"{words.many(total, 'run')}, all done" if done == total else f"{done} of {words.many(total, 'run')} done",
    ]
    if len(sections) > 1:
        facts.insert(0, words.many(len(sections), "setting"))
    if failed:
        facts.append(f"{failed} failed")
    equal = "equal compute in forward-backward passes" if about.budget == "passes" else f"equal {about.budget}"
    return [*facts, equal, f"{words.duration(about.seconds)} in all"]


def _best(best: Best, findings: Findings) -> dict[str, Any]:
    home = best.weights.parent
    run = home.parent if home.name == "best" else home  # a comparison answers for its best model
    shapes = [s.described["shape"] for s in findings.settings if s.data == best.outcome.data]
    example = "image.png" if any(len(shape) == 3 for shape in shapes) else "new.csv" if best.table else None
    counts, names = best.confusion, best.classes
    wrong = [(counts[i][j], i, j) for i in range(len(counts)) for j in range(len(counts)) if i != j and counts[i][j]]
    wrong.sort(key=lambda found: (-found[0], found[1], found[2]))
    return {
        "outcome": best.outcome,
        "said": best.said,
        "weights": str(best.weights),
        "snippet": best.snippet,
        "predict": f"fallow predict {shlex.quote(str(run))} {example}" if example else None,
        "looks": best.looks,
        "heat": heat_map(best),
        "confusions": [
            (
                words.brief(names[i], 60),
                words.breakable(words.brief(names[j], 60)),
                words.count(times),
                f"{words.percent(times / sum(counts[i]))} %",
            )
            for times, i, j in wrong[:CONFUSIONS]
        ],
        "kinds": len(wrong),
        "wrong": sum(found[0] for found in wrong),
        "tested": sum(map(sum, counts)),
        "mistakes": [(mistake, picture(mistake.image)) for mistake in best.mistakes],
    }


def _tuned(setting: Setting) -> list[Markup]:
    """What every runner races with, and what it cost to choose."""
    chosen = [(row, row.tuned) for row in setting.rows if row.tuned is not None]
    if not chosen:
        return [paragraph(words.capitalised(UNTUNED) + ".")]
    note = words.capitalised(cost([tuned for _, tuned in chosen], max(tuned.trials for _, tuned in chosen)))
    rows = [
        [row.method, tuned.words(), str(tuned.trials), words.count(tuned.passes), words.duration(tuned.seconds)]
        for row, tuned in chosen
    ]
    caption = f"{setting.name}: the hyperparameters that each runner uses in the race."
    return [paragraph(f"{note}."), table(caption, ["Runner", ("Chosen", ""), "Trials", "Passes", "Time"], rows)]


def _yardsticks(about: About, shown: Shown) -> list[Markup]:
    """Ordinary learners on the same splits."""
    rows = [
        [row.data, row.name, shown.value(row.mean), " ".join(shown.value(value) for value in row.test)]
        for row in about.yardsticks
    ]
    caption = f"Test {shown.words}{shown.unit}: the mean, and by seed."
    note = "Ordinary learners on the same splits, which take seconds; they are not part of the race."
    return [paragraph(note), table(caption, ["Data", ("Learner", ""), "Test", ("By seed", "")], rows)]


def _why(diagnosis: Diagnosis) -> list[Markup]:
    """The numbers of a diagnosis, whether they order the methods as their tests do, and the pictures."""
    from fallow.diagnose.page import numbers, pictures

    quick = tag(
        "p", "A quick look at the models of the first seed, on part of the examples; ",
        tag("code", "fallow diagnose"), " measures them in full. The test results are means over all seeds.",
    )  # fmt: skip
    return [quick, *numbers(diagnosis), *pictures(diagnosis)]


def learned(described: dict[str, Any]) -> str:
    """What is learned of a data set that `Data.describe` tells of."""
    return wanted(Target.of(described["target"]))


def _across(across: Across) -> dict[str, Any]:
    """LW's matrix, and what so few settings can show at best."""
    pairs = len(across.methods) * (len(across.methods) - 1)
    enough = next(n for n in range(1, 99) if binomial_test(n, n) <= LEVEL)
    corrected = next(n for n in range(1, 99) if binomial_test(n, n) * max(1, pairs) <= LEVEL)
    return {
        "columns": [("Row / column", ""), *((method, "") for method in across.methods)],
        "rows": [
            [row, *("–" if row == column else across.marks.get((row, column), "") for column in across.methods)]
            for row in across.methods
        ],
        "settings": across.settings,
        "tree": across.tree,
        "least": binomial_test(across.settings, across.settings),
        "enough": enough,
        "corrected": corrected,
    }
