"""Every diagnosis of a subject by name, with what it costs a small model, and how to read its picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fallow.base.errors import RequestError
from fallow.diagnose.depth import prediction_depth
from fallow.diagnose.flatness import flatness
from fallow.diagnose.margin import margins
from fallow.diagnose.noise import noise
from fallow.diagnose.slices import slices
from fallow.diagnose.spectrum import spectrum
from fallow.diagnose.subjects import Subject
from fallow.diagnose.weights import weight_size

QUICK = 256  # examples


@dataclass(frozen=True)
class Measure:
    """One diagnosis: a name, a sentence on its picture, and the work."""

    title: str
    reading: str
    work: Callable[[Subject, bool], Any]  # (subject, quick) → a record with describe()


def _some(pair: tuple[Any, Any], quick: bool) -> tuple[Any, Any]:
    x, y = pair
    return (x[:: max(1, len(x) // QUICK)], y[:: max(1, len(y) // QUICK)]) if quick else (x, y)


def _spectrum(subject: Subject, quick: bool) -> Any:
    x, y = _some(subject.train, quick)
    options = {"steps": 60, "probes": 3, "probe_steps": 24, "top": 3} if quick else {"steps": 200, "probes": 6}
    return spectrum(subject.model, subject.loss, x, y, batch_size=max(32, len(x) // 4), **options)  # type: ignore[arg-type]


def _depth(subject: Subject, quick: bool) -> Any:
    return prediction_depth(subject.model, _some(subject.train, quick), _some(subject.test, quick))


def _margins(subject: Subject, quick: bool) -> Any:
    if subject.target.kind != "classes":
        raise RequestError(f"classes have margins, {subject.target.kind} have none")
    return margins(subject.model, *_some(subject.train, quick))


def _noise(subject: Subject, quick: bool) -> Any:
    return noise(subject.model, subject.loss, *_some(subject.train, quick), draws=3 if quick else 10)


def _flatness(subject: Subject, quick: bool) -> Any:
    return flatness(subject.model, subject.loss, *_some(subject.train, True), probes=4 if quick else 10)


def _slices(subject: Subject, quick: bool) -> Any:
    return slices(subject.model, subject.loss, *_some(subject.train, quick), points=11 if quick else 21)


MEASURES: dict[str, Measure] = {
    "spectrum": Measure(
        "Curvature of the loss",
        "The density of the Hessian's eigenvalues on training data: mass far to the right is sharp curvature, mass "
        "left of 0 are directions in which the loss still falls; the bulk at 0 is flat.",
        _spectrum,
    ),
    "depth": Measure(
        "Prediction depth",
        "How often nearest neighbours in the output of each block know the class (of numbers: the share of their "
        "variance that neighbours explain): the earlier a curve is high, the shallower the layers in which the network "
        "has made up its mind.",
        _depth,
    ),
    "margins": Measure(
        "Margins on training data",
        "The share of training examples below each softmax margin: a curve that stays low until 1 has wide margins, "
        "and what lies left of 0 is misclassified.",
        _margins,
    ),
    "noise": Measure(
        "Robustness to noise on the weights",
        "By how much the training loss rises when N(0, σ²) is added to every weight: the flatter the curve, the more "
        "robust the network. Networks of another weight scale are not comparable here.",
        _noise,
    ),
    "flatness": Measure(
        "Relative flatness of each layer",
        "κ of FAM for each layer, which rescaling of the layer does not change: lower is flatter; below 0 the loss is "
        "concave along the layer's weights on average.",
        _flatness,
    ),
    "slices": Measure(
        "A slice through the loss",
        "The training loss along a random direction in which every filter moves by its own norm: a wide valley changes "
        "little around 0.",
        _slices,
    ),
    "weights": Measure(
        "Size of activations and weights at the head",
        "‖Φ‖·‖W‖ of the head for one training example (LW's appendix D): smaller, at the same training "
        "accuracy, is the simpler function.",
        lambda subject, quick: weight_size(subject.model, subject.train[0]),
    ),
}
