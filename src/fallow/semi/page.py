"""``semi.html``: a study in one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from fallow.core.record import versions
from fallow.data import FOREIGN
from fallow.report import words
from fallow.report.charts import Axis, Line, lines, spanned
from fallow.report.page import Page, Section
from fallow.report.pieces import Column, figures, paragraph, table
from fallow.report.svg import Drawing
from fallow.report.tags import tag
from fallow.semi.figures import histogram, taken
from fallow.semi.look import CLASSES, LookedRow, picked
from fallow.semi.study import Study, command
from fallow.semi.training import CONFIDENCE, FIXMATCH, FROZEN, SUPERVISED, Trained


def write(study: Study) -> Path:
    """Write ``semi.html`` into the study's folder; its path."""
    described = study.data.describe()
    sizes = described["sizes"]
    sections = [Section("Trainings", _trainings(study))]
    if study.controlled:
        sections.append(Section("Does the network help, or only the labels that it learned from?", _controls(study)))
    drawn = [_learning(study), _pseudo_labels(study.main), *_weights(study)]
    sections.append(Section("Training curves", [figures(drawn)]))
    if study.main.weights is not None:
        hidden = max(0, len(described["classes"]) - CLASSES)
        more = [paragraph(f"{hidden} more classes are not shown.", kind="note")] if hidden else []
        trusted = [trust(picked(study.data, study.main)), *more]
        sections.append(Section("Which images it trusts", trusted))
    page = Page(
        title=f"{described['name']}: {sizes['train']} labels",
        verb="fallow semi",
        sentence=sentence(study),
        sections=sections,
        facts=[
            words.many(sizes["train"], "label"), words.many(sizes["val"], "validation label"),
            words.many(sizes["unlabelled"], "unlabelled image"), words.many(sizes["test"], "test image"),
        ],
        command=command(study.plan, study.controlled),
        notes=study.data.notes,
        settings={key: value for key, value in study.plan.describe().items() if value not in (None, "")},
        versions=versions(),
        beside={"study.json": "every number"},
    )  # fmt: skip
    return page.write(study.folder / "semi.html")


def sentence(study: Study) -> str:
    """What came out, in words."""
    main, base = study.main, study.outcomes.get(SUPERVISED)
    if main.test is None:
        return "There are no test labels to measure its accuracy."
    said = f"{study.plan.kind} reaches {words.percent(main.test)} % on the test images"
    if base is not None and base is not main and base.test is not None:
        said += f", {words.points(main.test - base.test)} points compared with the labels alone"
    frozen, without = study.outcomes.get(CONFIDENCE + FROZEN), study.outcomes.get(FIXMATCH)
    if frozen is not None and without is not None and frozen.test is not None and without.test is not None:
        said += (
            f". A fresh classifier with the frozen network: {words.percent(frozen.test)} %, "
            f"{words.points(frozen.test - without.test)} points compared with one without"
        )
    if main.weights is not None and main.auroc is not None:
        said += f". The weights tell the data's own images from foreign ones with an AUROC of {main.auroc:.2f}"
    return said + "."


def doubt(study: Study) -> str:
    """What a difference with one seed is worth, and what would say more; "" where there is none."""
    if study.plan.labels is None or study.plan.kind == SUPERVISED:
        return ""
    return (
        "One seed is an anecdote: fallow compare DATA --train N --methods "
        f"{study.plan.kind} repeats it over several, against ordinary training of equal compute."
    )


def _learning(study: Study) -> Drawing | None:
    """Validation accuracy against the baseline's."""
    curves = [Line(study.plan.kind, taken(study.main.history, "val_accuracy", 100))]
    base = study.outcomes.get(SUPERVISED)
    if base is not None and base is not study.main:
        curves.append(Line(SUPERVISED, taken(base.history, "val_accuracy", 100), "quiet"))
    if study.plan.kind == CONFIDENCE and FIXMATCH in study.outcomes:
        curves.append(Line(FIXMATCH, taken(study.outcomes[FIXMATCH].history, "val_accuracy", 100), "worse"))
    return lines("Accuracy on validation, %", curves)


def _pseudo_labels(main: Trained) -> Drawing | None:
    """How many pseudo-labels count, and how many of these are right."""
    curves = [
        Line("share of all", taken(main.history, "confident", 100)),
        Line("right", taken(main.history, "confident_right", 100), "quiet"),
    ]
    if any(row.get("confident_foreign") for row in main.history):
        curves.append(Line("foreign", taken(main.history, "confident_foreign", 100), "worse"))
    return lines("Pseudo-labels above the threshold, %", curves, y=Axis(limits=(0.0, 100.0)))


def _weights(study: Study) -> list[Drawing | None]:
    """Mean and deviation over the training, plain and augmented (thesis, figure 5.1), and the histogram (5.3)."""
    main = study.main
    if main.weights is None:
        return []
    assert study.data.unlabelled is not None
    drawn = []
    for name, key in (("original", "weight"), ("augmented", "weight_weak")):
        mean, deviation = (taken(main.history, f"{key}_{what}") for what in ("mean", "std"))
        around = [(value - spread, value + spread) for (_, value), (_, spread) in zip(mean, deviation, strict=True)]
        drawn.append(Line(name, mean, band=around))
    limits = Axis(limits=spanned(drawn) if all(one.points for one in drawn) else None)
    foreign = study.data.unlabelled.y.numpy() == FOREIGN
    panels = [lines(f"Weights of {one.name} images, mean ± deviation", [one], y=limits) for one in drawn]
    told = lines("AUROC of the weights", [Line("AUROC", taken(main.history, "auroc"))], y=Axis(limits=(0.0, 1.0)))
    return [*panels, told, histogram(np.asarray(main.weights)[~foreign], np.asarray(main.weights)[foreign])]


def _trainings(study: Study) -> list[Markup]:
    rows = [
        [
            name, words.percent(o.test), words.percent(o.val), words.percent(o.train), _auroc(o.auroc),
            words.duration(o.seconds),
        ]
        for name, o in study.outcomes.items()
    ] + [[name, f"failed: {reason}", "–", "–", "–", "–"] for name, reason in study.failed.items()]  # fmt: skip
    caption = (
        "Accuracy in % after the last epoch; AUROC of the learned weights or, without weights, of the classifier’s own "
        "confidence."
    )
    found = [table(caption, ["Trained", "Test", "Validation", "Training", "AUROC", "Time"], rows)]
    if said := doubt(study):
        found.append(paragraph(said, kind="note"))
    if study.main.ran_away:
        found.append(
            paragraph(
                "The confidence weights diverged: the meta-updates ended, and the weights with the lowest validation "
                "loss were used from then on."
            )
        )
    return found


def _controls(study: Study) -> list[Markup]:
    rows = [
        [row["weights"], words.percent(row["joint"]), words.percent(row["frozen"]), _auroc(row["auroc"])]
        for row in study.controls()
    ]
    return [
        paragraph(
            tag("b", "Joint"),
            ": the classifier that was trained while the weights were learned; it has seen the validation labels "
            "through them, and so is compared with trainings that simply train on these labels too. ",
            tag("b", "Frozen"),
            ": a fresh classifier, trained on the labels alone, with the weights that were kept. Learned weights "
            "are worth something only if they beat every control in their column.",
        ),
        table(
            "Test accuracy in %; AUROC between the data's own and foreign images.",
            ["Weights from", "Joint", "Frozen", "AUROC"],
            rows,
        ),
        paragraph(
            "Where there are no weights, “joint” means that the validation labels are training labels too, and the "
            "AUROC is that of the classifier's own confidence. One seed is an anecdote: ",
            tag("code", "fallow reproduce semi-ood"),
            " repeats it over several.",
            kind="note",
        ),
    ]


def trust(rows: Sequence[LookedRow]) -> Markup:
    """The images of every class with the highest, the median and the lowest weight."""
    read = (
        "The unlabelled images of each class with the highest, the median and the lowest weight. An image of unknown "
        "class is listed under the class that the model predicts."
    )
    cells = [
        [row.name, words.count(row.images)]
        + [p.picture.inline(f"{row.name}, weight {p.weight:.2f}") + tag("span", f"{p.weight:.2f}") for p in row.picks]
        for row in rows
    ]
    columns: list[Column] = ["Class", "Images", ("Highest", "pick"), ("Median", "pick"), ("Lowest", "pick")]
    return paragraph(read) + table("Unlabelled images by weight.", columns, cells)


def _auroc(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
