"""What the best model makes of masks on its test split: the worst of them to look at, and each class by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from fallow.evaluate import metrics
from fallow.report.pictures import picture
from fallow.report.pieces import heading, paragraph, table
from fallow.report.tags import tag
from fallow.report.words import count, number, percent
from fallow.training.predict import Predictor

Array = NDArray[np.int64]

WORST = 8  # examples that are shown
MOST = 200  # that are looked at
AT_ONCE = 8


def slices(predictor: Predictor, x: Tensor, y: Tensor) -> list[Markup]:
    """What belongs on the page."""
    x, truth = x[:MOST], y[:MOST].numpy()
    said = torch.cat([predictor.logits(part).argmax(1) for part in x.split(AT_ONCE)]).numpy()
    said, truth = np.where(truth == metrics.NO_LABEL, 0, said), truth.clip(0)
    each = np.array([metrics.dice(said[i : i + 1], truth[i : i + 1]) for i in range(len(said))])
    rows = [
        [name, *_judged(said == label, truth == label)] for label, name in enumerate(predictor.classes) if label > 0
    ]
    body = [
        heading(3, "Class by class"),
        table(
            f"{count(len(said))} test examples; the distance is in pixels or voxels.",
            ["Class", "Test examples", "Dice in %", "IoU in %", "95 % Hausdorff distance"], rows,
        ),
    ]  # fmt: skip
    if x.ndim < 4:  # signals have no slices
        return body
    worst = np.argsort(each, kind="stable")[:WORST].tolist()
    cards = [_card(x[i].numpy(), truth[i], said[i], i, float(each[i]), len(predictor.classes)) for i in worst]
    where = ", each at the slice that holds most of the mask" if x.ndim == 5 else ""
    return [
        *body, heading(3, "Where it is worst"),
        paragraph(f"Input, true mask and predicted mask{where}; the lowest Dice first."),
        tag("ul", *cards, class_="mistakes"),
    ]  # fmt: skip


def _judged(said: NDArray[np.bool_], truth: NDArray[np.bool_]) -> list[str]:
    """One class against all others."""
    a, b = said.astype(np.int64), truth.astype(np.int64)
    there = int(truth.any(tuple(range(1, truth.ndim))).sum())
    return [count(there), percent(metrics.dice(a, b)), percent(metrics.iou(a, b)), number(metrics.hausdorff95(a, b), 3)]


def _card(x: NDArray[Any], truth: Array, said: Array, place: int, score: float, classes: int) -> Markup:
    """Three small pictures, and what they are worth."""
    if truth.ndim == 3:
        depth = int(((truth > 0) | (said > 0)).sum((1, 2)).argmax())
        x, truth, said = x[:, depth], truth[depth], said[depth]
    low, high = float(x.min()), float(x.max())
    shown = x if x.dtype == np.uint8 and high > classes else 255 * (x - low) / max(high - low, 1e-12)
    panes = {
        "input": shown.astype(np.uint8),
        "true mask": (truth[None] * (255 // (classes - 1))).astype(np.uint8),
        "predicted mask": (said[None] * (255 // (classes - 1))).astype(np.uint8),
    }
    drawn = [
        found.inline(f"{words} of test example {place}") for words, pane in panes.items() if (found := picture(pane))
    ]
    caption = tag("figcaption", f"test example {place}", Markup("<br>"), tag("b", f"Dice {percent(score)} %"))
    return tag("li", tag("figure", *drawn, caption))
