"""The winner's model: its weights, how to load them, and what it still gets wrong on the test split."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from markupsafe import Markup
from torch import Tensor
from torch.nn import functional

from fallow.base import files
from fallow.comparison.answered import answered
from fallow.comparison.race import Runner
from fallow.comparison.slices import slices
from fallow.comparison.winner import Taken
from fallow.core.record import RunFolder
from fallow.data.examples import Examples, Files
from fallow.data.texts import to_strings
from fallow.report.shown import Shown
from fallow.report.svg import Drawing
from fallow.training.predict import Predictor

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison

SHOWN = 24  # mistakes in the report
MOST = 20_000  # test examples that are looked at for the confusion

SNIPPET = """from fallow import Predictor
model = Predictor({folder!r})
print(model({examples}))  # {kind}"""

FEWSHOT = "fallow fewshot {} --model '{}' --method '{}' --weights {}/best.safetensors"


@dataclass
class Mistake:
    """A test example that the best model gets wrong."""

    image: np.ndarray | None  # uint8 C×H×W, as it was given; None where an example is no image
    true: str
    predicted: str
    confidence: float
    text: str = ""  # where the example is one, or several


@dataclass
class Best:
    """The model that a comparison leaves behind."""

    outcome: Runner
    weights: Path
    snippet: str  # lines that load it
    classes: list[str]
    confusion: list[list[int]]  # rows: the true class
    mistakes: list[Mistake]  # the surest first
    said: list[str] = field(default_factory=list)  # what was done to it after it was chosen
    looks: list[Markup] = field(default_factory=list)  # at its errors, where answers are no classes
    drawings: dict[str, Drawing] = field(default_factory=dict)  # of them, by the names of their files
    table: bool = False  # whether it takes files of rows


def keep(comparison: Comparison, taken: Taken) -> Best:
    """Copy the winner's record and weights to ``best/``, with its temperature, and look at its mistakes."""
    home, winner = comparison.folder / "best", taken.entry
    record = RunFolder(taken.folder).record()
    weights = (taken.folder / f"{taken.weights}.safetensors").read_bytes()
    files.remove(home)  # a copy, whatever has become of it
    home.mkdir()
    files.write_json(home / "run.json", record | {"temperature": taken.temperature, "labels": taken.labels})
    files.write(home / "best.safetensors", weights)
    if comparison.plan.fewshot:
        start = FEWSHOT.format(comparison.source_of(winner), winner.model, winner.method, home)
        return Best(winner, home / "best.safetensors", start, [], [], [])
    predictor = Predictor(home, model=winner.model if "yardstick" not in record else None)  # this very command names it
    made = Best(
        winner, home / "best.safetensors", "", predictor.classes, [], [], taken.said(Shown.of(comparison.metric))
    )
    x, y = _test(comparison, winner)
    if predictor.target.kind == "dense":
        made.looks = slices(predictor, x, y)
    else:
        output = predictor.logits(x).float() / (predictor.temperature or 1)
        made.looks, made.drawings = answered(predictor.target, output, y)
        if predictor.target.kind == "classes":
            made.confusion, made.mistakes = _mistakes(predictor.classes, output, x, y)
    array = f"an array of {'×'.join(map(str, ('N', *predictor.shape)))}"
    examples, kind = ('["image.png"]', f"or {array}") if predictor.pictures else ("x", array)
    if predictor.texts:
        one = '"a text"' if predictor.shape[0] == 1 else '["a text", "another"]'
        examples, kind = f"numpy.array([{one}])", "or files: .csv, .npz, .txt with one example per line"
    if predictor.table is not None:
        made.table, examples, kind = True, '"new.csv"', "rows with the columns of the training data"
    made.snippet = SNIPPET.format(folder=str(comparison.folder), examples=examples, kind=kind)
    return made


def _mistakes(names: list[str], output: Tensor, x: Tensor, y: Tensor) -> tuple[list[list[int]], list[Mistake]]:
    confidence, found = functional.softmax(output, 1).max(1)
    classes = len(names)
    confusion = torch.bincount(y * classes + found, minlength=classes * classes).view(classes, classes)
    wrong = (found != y).nonzero().flatten()
    wrong = wrong[confidence[wrong].argsort(descending=True, stable=True)][:SHOWN]
    texts = [" / ".join(pair) for pair in to_strings(x[wrong])] if x.dtype == torch.int8 else None
    images = x[wrong] if x.ndim == 4 and x.shape[1] in (1, 3) else None
    if images is not None and images.dtype != torch.uint8:
        low, high = x.min(), x.max()
        images = ((images - low) / (high - low).clamp_min(1e-12) * 255).round().to(torch.uint8)
    mistakes = [
        Mistake(
            None if images is None else images[i].numpy(),
            names[int(y[w])],
            names[int(found[w])],
            float(confidence[w]),
            "" if texts is None else texts[i],
        )
        for i, w in enumerate(wrong.tolist())
    ]
    return confusion.tolist(), mistakes


def _test(comparison: Comparison, winner: Runner) -> tuple[Tensor, Tensor]:
    """The winner's own test split: every seed may have another."""
    from fallow.comparison.work import read

    part = read(comparison.source_of(winner), winner.seed, comparison.plan.load_options()).test
    assert isinstance(part, Examples | Files)
    most = MOST if isinstance(part, Examples) else MOST // 10  # files have to be decoded
    few = torch.linspace(0, len(part) - 1, min(len(part), most)).long()  # evenly: they may be sorted by class
    if isinstance(part, Examples):
        return part.x[few], part.y[few]
    return torch.stack([part[i][0] for i in few.tolist()]), part.y[few]
