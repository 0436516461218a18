"""The page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from fallow.comparison.findings import BASELINE, LEVEL, Across, Findings, Outcome, Row
from fallow.comparison.report import style, words
from fallow.comparison.report.confusion import confusion
from fallow.comparison.report.pictures import picture
from fallow.comparison.report.sections import Section, asked
from fallow.comparison.report.svg import Drawing
from fallow.evaluate.statistics import binomial_test

if TYPE_CHECKING:
    from fallow.comparison.best import Best
    from fallow.comparison.report import About
    from fallow.diagnose.run import Diagnosis

CLASSES = 20  # more would not be legible as a heat map
CONFUSIONS = 10  # lines of the table
SIGNS = {"better": "▲", "worse": "▼", "baseline": "◇", "control": "□", "failed": "×", "no evidence": "●"}


def render(
    findings: Findings,
    sections: Sequence[Section],
    outcomes: Sequence[Outcome],
    best: Best | None,
    about: About,
    diagnosis: Diagnosis | None,
) -> bytes:
    """The page as bytes."""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            findings=findings,
            sections=sections,
            best=None if best is None else _best(best, findings),
            about=about,
            facts=_facts(sections, outcomes, about),
            across=None if findings.across is None else _across(findings.across),
            why=None if diagnosis is None else _why(diagnosis),
            light=style.variables(style.LIGHT),
            dark=style.variables(style.DARK),
            figure=style.FIGURE,
            baseline=BASELINE,
        )
        .encode()
    )


def heat_map(best: Best) -> Drawing | None:
    """The confusion as a figure, where there are few enough classes."""
    return confusion(best.classes, best.confusion) if 1 < len(best.classes) <= CLASSES else None


def verdict(row: Row, control: str | None = None) -> tuple[str, str]:
    """A kind and the words for it."""
    kind = row.verdict
    if row.estimate is None:
        return ("failed", "failed") if row.failed else ("missing", "not run yet")
    if kind == "no evidence" and row.to_control is None:
        return "missing", "not tested"
    if kind == "control" and row.method == control:
        return kind, "the control"
    return kind, kind


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
        finalize=lambda value: words.clean(value) if type(value) is str else value,
    )
    chosen = (
        words.percent,
        words.points,
        words.p_value,
        words.count,
        words.duration,
        words.plain,
        words.breakable,
        words.brief,
    )
    made.filters |= {function.__name__: function for function in chosen}
    made.globals |= {"verdict": verdict, "signs": SIGNS, "asked": asked}
    return made


def _facts(sections: Sequence[Section], outcomes: Sequence[Outcome], about: About) -> list[str]:
    """The comparison in a line."""
    done = sum(o.test_accuracy is not None for o in outcomes)
    failed = sum(o.reason is not None for o in outcomes)
    total = sum(s.expected * len(s.ranking) for s in sections)
    methods = len({o.method for o in outcomes})
    seeds = len({o.seed for o in outcomes})
    facts = [
        _many(methods, "method"),
        _many(seeds, "seed"),
        f"{_many(total, 'run')}, all done" if done == total else f"{done} of {_many(total, 'run')} done",
    ]
    if len(sections) > 1:
        facts.insert(0, _many(len(sections), "setting"))
    if failed:
        facts.append(f"{failed} failed")
    equal = "equal compute in forward-backward passes" if about.budget == "passes" else f"equal {about.budget}"
    return [*facts, equal, f"{words.duration(about.seconds)} in all"]


def _many(number: int, what: str) -> str:
    return f"{words.count(number)} {what}{'' if number == 1 else 's'}"


def _best(best: Best, findings: Findings) -> dict[str, Any]:
    home = best.weights.parent
    run = home.parent if home.name == "best" else home  # a comparison answers for its best model
    images = any(len(s.described["shape"]) == 3 for s in findings.settings if s.data == best.outcome.data)
    table, names = best.confusion, best.classes
    wrong = [(table[i][j], i, j) for i in range(len(table)) for j in range(len(table)) if i != j and table[i][j]]
    wrong.sort(key=lambda found: (-found[0], found[1], found[2]))
    drawn = heat_map(best)
    return {
        "outcome": best.outcome,
        "weights": str(best.weights),
        "snippet": best.snippet,
        "predict": f"fallow predict {shlex.quote(str(run))} image.png" if images else None,
        "heat": None if drawn is None else drawn.inline(least=0.85),
        "confusions": [(names[i], names[j], number, sum(table[i])) for number, i, j in wrong[:CONFUSIONS]],
        "kinds": len(wrong),
        "wrong": sum(found[0] for found in wrong),
        "tested": sum(map(sum, table)),
        "mistakes": [(mistake, picture(mistake.image)) for mistake in best.mistakes],
    }


def _why(diagnosis: Diagnosis) -> dict[str, Any]:
    """The numbers of a diagnosis, whether they order the methods as accuracy does, and the pictures."""
    from fallow.diagnose.page import pictures

    return {
        "subjects": diagnosis.subjects,
        "numbers": diagnosis.numbers(),
        "orders": diagnosis.orders(),
        "pictures": pictures(diagnosis),
    }


def _across(across: Across) -> dict[str, Any]:
    """LW's matrix, and what so few settings can show at best."""
    pairs = len(across.methods) * (len(across.methods) - 1)
    enough = next(n for n in range(1, 99) if binomial_test(n, n) <= LEVEL)
    corrected = next(n for n in range(1, 99) if binomial_test(n, n) * max(1, pairs) <= LEVEL)
    return {
        "methods": across.methods,
        "marks": across.marks,
        "settings": across.settings,
        "tree": across.tree,
        "least": binomial_test(across.settings, across.settings),
        "enough": enough,
        "corrected": corrected,
    }
