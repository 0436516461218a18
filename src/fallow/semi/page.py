"""``semi.html``: a study in one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from fallow.comparison.report import style, words
from fallow.data import FOREIGN
from fallow.semi.figures import Line, histogram, lines, spanned, taken
from fallow.semi.look import CLASSES, picked
from fallow.semi.study import Study, command
from fallow.semi.training import CONFIDENCE, FIXMATCH, FROZEN, SUPERVISED, Outcome


def render(study: Study) -> bytes:
    """The page as bytes."""
    main, described = study.main, study.data.describe()
    drawings = [_learning(study), _pseudo_labels(main), *_weights(study)]
    text = (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=f"{described['name']}: {described['sizes']['train']} labels",
            sentence=sentence(study),
            sizes=described["sizes"],
            study=study,
            drawings=[drawing.inline() for drawing in drawings if drawing is not None],
            controls=study.controls() if study.controlled else [],
            rows=picked(study.data, main) if main.weights is not None else [],
            hidden=max(0, len(described["classes"]) - CLASSES),
            command=command(study.plan, study.controlled),
            light=style.variables(style.LIGHT),
            dark=style.variables(style.DARK),
            figure=style.FIGURE,
        )
    )
    return text.encode()


def sentence(study: Study) -> str:
    """What came out, in words."""
    main, base = study.main, study.outcomes.get(SUPERVISED)
    if main.test is None:
        return "There are no test labels to say how well it did."
    said = f"{study.plan.kind} reaches {words.percent(main.test)} % on the test images"
    if base is not None and base is not main and base.test is not None:
        said += f", {words.points(main.test - base.test)} points against the labels alone"
    frozen, without = study.outcomes.get(CONFIDENCE + FROZEN), study.outcomes.get(FIXMATCH)
    if frozen is not None and without is not None and frozen.test is not None and without.test is not None:
        said += (
            f". A fresh classifier with the frozen network: {words.percent(frozen.test)} %, "
            f"{words.points(frozen.test - without.test)} points against one without"
        )
    if main.weights is not None and main.auroc is not None:
        said += f". The weights tell the data's own images from foreign ones with an AUROC of {main.auroc:.2f}"
    return said + "."


def _learning(study: Study) -> Any:
    """Validation accuracy against the baseline's."""
    curves = [Line(study.plan.kind, taken(study.main.history, "val_accuracy", 100))]
    base = study.outcomes.get(SUPERVISED)
    if base is not None and base is not study.main:
        curves.append(Line(SUPERVISED, taken(base.history, "val_accuracy", 100), "control"))
    if study.plan.kind == CONFIDENCE and FIXMATCH in study.outcomes:
        curves.append(Line(FIXMATCH, taken(study.outcomes[FIXMATCH].history, "val_accuracy", 100), "third"))
    return lines("Accuracy on validation, %", curves)


def _pseudo_labels(main: Outcome) -> Any:
    """How many pseudo-labels count, and how many of these are right."""
    curves = [
        Line("share of all", taken(main.history, "confident", 100)),
        Line("right", taken(main.history, "confident_right", 100), "control"),
    ]
    if any(row.get("confident_foreign") for row in main.history):
        curves.append(Line("foreign", taken(main.history, "confident_foreign", 100), "third"))
    return lines("Pseudo-labels above the threshold, %", curves, (0.0, 100.0))


def _weights(study: Study) -> list[Any]:
    """Mean and deviation over the training, plain and augmented (thesis, figure 5.1), and the histogram (5.3)."""
    main = study.main
    if main.weights is None:
        return []
    assert study.data.unlabelled is not None
    drawn = [
        Line(name, taken(main.history, f"{key}_mean"), "curve", [s for _, s in taken(main.history, f"{key}_std")])
        for name, key in (("original", "weight"), ("augmented", "weight_weak"))
    ]
    limits = spanned(drawn) if all(one.points for one in drawn) else None
    foreign = study.data.unlabelled.y.numpy() == FOREIGN
    panels = [lines(f"Weights of {one.name} images, mean ± deviation", [one], limits) for one in drawn]
    told = lines("AUROC of the weights", [Line("AUROC", taken(main.history, "auroc"))], (0.0, 1.0))
    return [*panels, told, histogram(np.asarray(main.weights)[~foreign], np.asarray(main.weights)[foreign])]


def _environment() -> jinja2.Environment:
    here = Path(__file__).parent
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([here, here.parent / "comparison" / "report"]),  # whose style it shares
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
        finalize=lambda value: words.clean(value) if type(value) is str else value,
    )
    made.filters |= {f.__name__: f for f in (words.percent, words.count, words.duration, words.plain, words.breakable)}
    return made
