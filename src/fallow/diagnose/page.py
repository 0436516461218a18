"""``diagnosis.html``: the numbers and pictures of a diagnosis in one file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from fallow.base import files
from fallow.core.record import versions
from fallow.diagnose.figures import draw
from fallow.diagnose.measures import MEASURES, QUICK
from fallow.diagnose.run import Diagnosis
from fallow.report.page import Page, Section
from fallow.report.pieces import figure, heading, paragraph, table
from fallow.report.shown import ACCURACY, Shown
from fallow.report.words import MINUS, duration, listed, many, number, p_value

BESIDE = {"diagnosis.json": "every number", "figures/": "SVG"}


def write(folder: Path, found: Diagnosis, command: str = "", shown: Shown = ACCURACY) -> Path:
    """Write diagnosis.json, figures/*.svg and diagnosis.html; the path of the last."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    files.write_json(folder / "diagnosis.json", found.describe())
    sections = [Section("The numbers", numbers(found, shown))]
    for name in (name for name in MEASURES if name in found.records or name in found.failures):
        sections.append(Section(MEASURES[name].title, _body(name, found), name))
        if name in found.records:
            drawing = draw(name, MEASURES[name].title, found.records[name])
            files.write(folder / "figures" / f"{name}.svg", drawing.file())
    examples = max(len(subject.train[0]) for subject in found.subjects)
    pace = "a quick look, on part of the examples" if found.quick else f"{many(examples, 'training example')}"
    page = Page(
        title="Why these models generalise as they do",
        verb="fallow diagnose",
        sentence=sentence(found, shown),
        sections=sections,
        facts=[many(len(found.subjects), "model"), pace, duration(found.seconds)],
        command=command,
        settings={subject.name: subject.folder for subject in found.subjects},
        versions=versions(),
        beside=BESIDE,
    )
    return page.write(folder / "diagnosis.html")


def sentence(found: Diagnosis, shown: Shown = ACCURACY) -> str:
    """What stands out: the measure that orders the models best, or what tells two of them apart."""
    orders, measured = found.orders(), found.numbers()
    if orders:
        title, (rho, p) = max(orders.items(), key=lambda item: abs(item[1][0]))
        clear = p * len(orders) <= 0.05  # Bonferroni's: as many questions as measures
        models = f"{len(found.subjects)} models"
        if clear:
            way = "as" if rho > 0 else "the other way round than"
            said = f"The {title} orders the {models} {way} their test {shown.words} does"
            return f"{said} (ρ = {_rho(rho)}, p = {p_value(p)})."
        return (
            f"No measure is shown to order these {models} as their test {shown.words} does: the nearest "
            f"is the {title} (ρ = {_rho(rho)}, p = {p_value(p)}, one of {len(orders)} questions)."
        )
    if len(found.subjects) == 2 and None not in (accuracies := [s.accuracy for s in found.subjects]):
        better, worse = sorted(found.subjects, key=lambda s: (s.accuracy or 0.0) * (-1 if shown.higher else 1))
        both = {title: by for title, by in measured.items() if {better.name, worse.name} <= by.keys()}
        more = [title for title, by in both.items() if by[better.name] > by[worse.name]]
        less = [title for title, by in both.items() if by[better.name] < by[worse.name]]
        told = [
            f"its {listed(titles)} {'is' if len(titles) == 1 else 'are'} {way}"
            for titles, way in ((less, "lower"), (more, "higher"))
            if titles
        ]
        if accuracies[0] != accuracies[1]:
            return (
                f"{better.name} does better on test than {worse.name} ({shown.full(better.accuracy)} against "
                f"{shown.full(worse.accuracy)}); {', and '.join(told)}."
            )
    first = found.subjects[0].name
    told = [f"{title} {number(by[first], 3)}" for title, by in measured.items() if first in by]
    return f"{first}: {listed(told[:4])}." if told else "What could be measured is below."


def numbers(found: Diagnosis, shown: Shown = ACCURACY) -> list[Markup]:
    """Every number of every model, and whether it orders them as the test does."""
    measured, orders = found.numbers(), found.orders()
    test = ["test " + shown.words, *(shown.full(s.accuracy) for s in found.subjects), "", ""]
    rows = [test] + [
        [
            title,
            *(number(by.get(subject.name)) for subject in found.subjects),
            *((_rho(orders[title][0]), p_value(orders[title][1])) if title in orders else ("", "")),
        ]
        for title, by in measured.items()
    ]
    caption = "Measured on training examples, prediction depth on test examples."
    if not orders:
        rows = [row[:-2] for row in rows]
        return [table(caption, ["Measure", *(s.name for s in found.subjects)], rows)]
    return [
        table(
            f"{caption} Spearman’s ρ near +1 or −1: the measure orders the models as their test {shown.words} does, "
            "or the other way round.",
            ["Measure", *(s.name for s in found.subjects), "ρ", "p"],
            rows,
        ),
        paragraph(
            f"{len(orders)} measures are {len(orders)} questions: one p below 0.05 among them is no discovery.",
            kind="note",
        ),
    ]


def _rho(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)


def pictures(found: Diagnosis) -> list[Markup]:
    """Title, how to read it, and the figure of every measure, below a heading of level 2."""
    return [
        heading(3, MEASURES[name].title)
        + paragraph(MEASURES[name].reading)
        + figure(draw(name, MEASURES[name].title, records))
        for name, records in found.records.items()
    ]


def _body(name: str, found: Diagnosis) -> list[Markup]:
    records, failures = found.records.get(name, {}), found.failures.get(name, {})
    drawn = [figure(draw(name, MEASURES[name].title, records))] if records else []
    failed = [paragraph(f"{who} could not be measured: {why}", kind="note") for who, why in failures.items()]
    remark = _remark(name, records)
    return [paragraph(MEASURES[name].reading), *drawn, *failed, *([paragraph(remark, kind="note")] if remark else [])]


def _remark(name: str, records: dict[str, Any]) -> str:
    """How it was measured."""
    if not records:
        return ""
    first = next(iter(records.values()))
    if name == "spectrum":
        late = [who for who, record in records.items() if not record.converged]
        doubt = f" Not converged for {', '.join(late)}." if late else ""
        return (
            f"Lanczos with {first.steps} products for both ends of the first; {first.probes} probes of "
            f"{first.probe_steps} steps for density, trace and mass; {first.examples} examples, "
            f"{first.mode} mode.{doubt}"
        )
    if name == "depth":
        return (
            f"{first.k} neighbours among {first.train_points} training examples, {first.distance} distance, "
            f"pooling {first.pooling}, normalisation {first.normalisation}."
        )
    if name == "flatness":
        count = sum(not layer.exact for layer in first.layers.values())
        how = f"; {count} of {len(first.layers)} layers of the first by {first.probes} probes" if count else ""
        return f"On {QUICK} to {2 * QUICK} training examples at most{how}."
    if name == "noise":
        return f"{first.draws} draws for every σ, the same for every model; bands are one standard deviation."
    return ""
