"""Yardsticks: what seconds of ordinary learners reach on the very same examples. Whoever trains should beat them.

===============  ==========================================================  ==============================
majority, mean   the frequencies of the classes, the mean of numbers         looks at no example
logistic, ridge  on scaled inputs, its strength chosen on validation         linear
k-NN             k of 1 to 20 chosen on validation                           by distance of scaled inputs
extra trees      300 trees (Geurts et al. 2006), up to 1,024 values          bagged, takes inputs as they are
boosted trees    histogram boosting (Ke et al. 2017), of tables              boosted, takes inputs as they are
… on words       logistic or ridge on the TF-IDF of words and pairs of them  linear, of texts
===============  ==========================================================  ==============================

``inputs`` are raw values, or what a pretrained network makes of them: of pictures lite0, which knows ImageNet's
photographs, of texts minilm, which knows English. Masks have the majority alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base import files
from fallow.core.record import RunFolder, versions
from fallow.data import Data, Examples, Files, Part, Stream, Target, stream
from fallow.data.texts import to_strings
from fallow.evaluate.metrics import NO_LABEL, Metric
from fallow.models import forest, lite0, minilm
from fallow.models.cut import HEAD
from fallow.models.features import front_features
from fallow.models.forest import Forest
from fallow.models.linear import best_of, fitted_head, standardised
from fallow.models.words import Words, spanned
from fallow.models.yardsticks import Constant, Linear, Neighbours
from fallow.problems import Labelled

Parts = dict[str, tuple[Tensor, Tensor]]  # scaled examples and answers of train, val and test
Learned = tuple[str, dict[str, float], nn.Module, dict[str, Any]]  # name, chosen, network, what else it was made with

KS = (20, 10, 5, 3, 1)
UNSEEN = 5  # the k that is taken where there is no validation to choose by
TREES, SMALL = 300, 1024  # trees of a forest, and the most values an example has that a forest is grown on
SEEN = 16  # pixels a side from which on a network that knows photographs may see something
MOST = 1 << 28  # values of all examples that are still held in memory at once


@dataclass(frozen=True)
class Yardstick:
    """A learner of a few seconds, judged as every network is.

    ``outputs`` hold ``val``, ``val_y``, ``test``, ``test_y`` in a network's terms: ``target.decode`` gives predictions
    (of classes they are log-probabilities). ``network`` gives them again from scaled inputs; its ``state_dict`` and
    ``kept`` are all that :func:`fallow.models.yardsticks.rebuilt` needs.
    """

    name: str
    inputs: str  # "raw", or the network whose features they are
    chosen: dict[str, float]  # on validation
    outputs: dict[str, Tensor]
    metrics: dict[str, dict[str, float]]  # of val and test
    seconds: float
    network: nn.Module
    kept: dict[str, Any]


def yardsticks(data: Data, *, metric: str | None = None, seed: int = 0) -> list[Yardstick]:
    """All that fit the data, on raw values; ``metric`` chooses on validation, and ``seed`` grows the forests.

    >>> from fallow.data import load
    >>> [each.name for each in yardsticks(load("digits", train=50))]
    ['majority', 'logistic', 'k-NN', 'extra trees']
    """
    if data.texts:
        return [_majority(data, _answers(data)), *on_words(data, metric=metric)]
    if data.target.kind == "dense" or not _fits(data):
        return [_majority(data, _answers(data))]
    parts = _all(data)
    found = on_features(parts, data.target, metric=metric, seed=seed, table=len(data.shape) == 1)
    return [_majority(data, {name: y for name, (_, y) in parts.items()}), *found]


def on_features(
    parts: Parts, target: Target, *, inputs: str = "raw", metric: str | None = None, seed: int = 0, table: bool = False
) -> list[Yardstick]:
    """The learners that look at examples: linear, neighbours, and forests where there are few values."""
    judge = target.metric(metric)
    parts = {name: (x.flatten(1).float(), y) for name, (x, y) in parts.items()}
    learners: list[Callable[[], Learned]] = [partial(learn, parts, target, judge) for learn in (_linear, _neighbours)]
    if inputs == "raw" and parts["train"][0].shape[1] <= SMALL:
        learners += [partial(_forest, parts, target, seed, boosted) for boosted in (False, True)[: 1 + table]]
    return [_judged(learner, parts, target, inputs) for learner in learners]


def on_pretrained(data: Data, *, metric: str | None = None, folder: Path | None = None) -> list[Yardstick]:
    """Logistic regression, or ridge, on what a network that knows photographs or English makes of pictures or texts.

    None without its weights (extras: pretrained, text). What it makes of them is computed once and kept in ``folder``,
    for other splits of the same examples, too.
    """
    knows = knowing(data)
    if knows is None:
        return []
    start = time.perf_counter()
    problem = Labelled(data)
    with torch.random.fork_rng():
        network = problem.network(knows).module
    problem.freeze(network, HEAD)
    assert problem.cut is not None
    front = problem.cut.front
    held = {name: part for name, part in _parts(problem.data).items() if isinstance(part, Examples | Files)}
    parts = {name: (front_features(front, part, problem.data, folder), part.y) for name, part in held.items()}
    found = _judged(partial(_linear, parts, data.target, data.target.metric(metric)), parts, data.target, knows)
    return [replace(found, name=f"{found.name} on {knows} features", seconds=time.perf_counter() - start)]


def knowing(data: Data) -> str | None:
    """The pretrained network that may see something in the data: its name, where its weights are installed."""
    if not isinstance(data.train, Examples | Files) or data.target.kind == "dense":
        return None
    if data.texts:
        strings = isinstance(data.train, Examples) and data.train.x.dtype == torch.int8
        return "minilm" if strings and minilm.published() is not None else None
    seen = data.pictures and min(data.shape[1:]) >= SEEN
    return "lite0" if seen and lite0.published() is not None else None


def on_words(data: Data, *, metric: str | None = None, strength: float | None = None) -> list[Yardstick]:
    """Logistic regression, or ridge, on the words of texts; none of texts that are tokens already."""
    held = {name: part for name, part in _parts(data).items() if isinstance(part, Examples)}
    if "train" not in held or held["train"].x.dtype != torch.int8:
        return []
    texts = {name: to_strings(part.x) for name, part in held.items()}
    network = Words.from_texts(texts["train"])
    parts = {name: (network.tokens(texts[name]), part.y) for name, part in held.items()}

    def learner() -> Learned:
        basis = spanned(network.vectors(parts["train"][0]))
        near = {name: (torch.from_numpy(network.vectors(x) @ basis), y) for name, (x, y) in parts.items()}
        judge = data.target.metric(metric)
        head, chosen = fitted_head(near["train"], near.get("val"), data.target, judge, strength)
        learned = Words(network.terms, network.idf, head.weight @ torch.from_numpy(basis).T, head.bias)
        return f"{_named(data.target)} on words", {"strength": chosen}, learned, {"kind": "words"}

    return [_judged(learner, parts, data.target, "raw")]


def relearned(data: Data, name: str, chosen: dict[str, float], seed: int = 0) -> Yardstick:
    """A yardstick on raw values with what was chosen for it before, be there validation or not."""
    if name in ("majority", "mean"):
        return _majority(data, _answers(data))
    if name.endswith("on words"):
        return on_words(data, strength=chosen["strength"])[0]
    parts = {part: (x.flatten(1).float(), y) for part, (x, y) in _all(data).items()}
    how = (parts, data.target, data.target.metric())
    learner: Callable[[], Learned] = partial(_linear, *how, strength=chosen.get("strength"))
    if "k" in chosen:
        learner = partial(_neighbours, *how, k=int(chosen["k"]))
    elif "trees" in name:
        learner = partial(_forest, parts, data.target, seed, name.startswith("boosted"))
    return _judged(learner, parts, data.target, "raw")


def keep(found: Yardstick, data: Data, folder: Path) -> None:
    """Write a yardstick as the folder of a run, for :class:`fallow.Predictor`: its tensors, and what they are."""
    problem = Labelled(data)
    record = {"model": found.name, "method": found.name, "yardstick": found.kept, "data": problem.describe()}
    kept = RunFolder(folder)
    kept.save_weights("last", dict(found.network.named_buffers()))
    kept.save_weights("best", dict(found.network.named_buffers()))
    files.write_json(folder / "run.json", record | problem.remarks() | {"versions": versions()})


def _judged(learner: Callable[[], Learned], parts: Parts, target: Target, inputs: str) -> Yardstick:
    start = time.perf_counter()
    name, chosen, network, kept = learner()
    outputs: dict[str, Tensor] = {}
    metrics: dict[str, dict[str, float]] = {}
    for part in parts:
        if part != "train":
            x, y = parts[part]
            with torch.no_grad():
                outputs |= {part: network(x), f"{part}_y": y}
            metrics[part] = _metrics(target, outputs[part], y)
    return Yardstick(name, inputs, chosen, outputs, metrics, time.perf_counter() - start, network, kept)


def _metrics(target: Target, output: Tensor, y: Tensor) -> dict[str, float]:
    prediction, truth = target.decode(output).numpy(), y.numpy()
    return {name: metric.compute(prediction, truth) for name, metric in target.metrics.items()}


def _majority(data: Data, answers: dict[str, Tensor]) -> Yardstick:
    """The frequencies of classes or labels, the mean of numbers."""
    target, y = data.target, answers["train"]

    def learner() -> Learned:
        dense = target.kind == "dense"
        if target.kind == "numbers":
            output = torch.zeros(target.outputs)  # in deviations from the training mean
        elif target.kind == "labels":
            output = ((y.double().sum(0) + 0.5) / (len(y) + 1)).logit()
        else:
            counts = y[y != NO_LABEL].bincount(minlength=target.outputs).double()
            output = ((counts + 1 / target.outputs) / (counts.sum() + 1)).log()
        name = "mean" if target.kind == "numbers" else "majority"
        return name, {}, Constant(output, dense), {"kind": "constant", "dense": dense}

    # it looks at nothing but how many examples there are, and how large they are
    parts = {
        name: (torch.empty(len(y), 1).view(-1, *[1] * y.ndim).expand(-1, -1, *y.shape[1:]), y)
        for name, y in answers.items()
    }
    return _judged(learner, parts, target, "raw")


def _linear(parts: Parts, target: Target, metric: Metric, strength: float | None = None) -> Learned:
    """Logistic regression (of labels: one for each against the rest) or ridge, as strong as validation likes."""
    head, strength = fitted_head(parts["train"], parts.get("val"), target, metric, strength)
    return _named(target), {"strength": strength}, Linear(head.weight, head.bias), {"kind": "linear"}


def _named(target: Target) -> str:
    return "ridge" if target.kind == "numbers" else "logistic"


def _neighbours(parts: Parts, target: Target, metric: Metric, k: int | None = None) -> Learned:
    """The k nearest training examples; of all k the distances are the same."""
    x, y = parts["train"]
    ks = [k for k in KS if k <= len(x)]
    answers = functional.one_hot(y, target.outputs) if target.kind == "classes" else y
    network = Neighbours(x, standardised(target, y) if target.kind == "numbers" else answers, ks[0], target.kind)
    if k is None and "val" not in parts:
        k = min(UNSEEN, len(x))
    elif k is None:
        nearest = network.nearest(parts["val"][0], ks[0])
        k = ks[best_of([network.said(nearest, each) for each in ks], parts["val"][1], target, metric)]
    network.k = k
    return "k-NN", {"k": k}, network, {"kind": "neighbours", "k": k, "of": target.kind}


def _forest(parts: Parts, target: Target, seed: int, boosted: bool) -> Learned:
    """Trees with scikit-learn's settings but for their number; of several numbers or labels, a forest for each."""
    from sklearn import ensemble

    name = "HistGradientBoosting" if boosted else "ExtraTrees"
    kind = getattr(ensemble, name + ("Regressor" if target.kind == "numbers" else "Classifier"))
    settings = {"random_state": seed} | ({} if boosted else {"n_estimators": TREES, "n_jobs": 1})
    x, y = parts["train"]
    y = standardised(target, y) if target.kind == "numbers" else y
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # of few examples each
        forests = [kind(**settings).fit(x.numpy(), column.numpy()) for column in (y.T if y.ndim > 1 else [y])]
    nodes = (forest.boosted if boosted else forest.bagged)(forests, target.outputs, target.kind)
    kept = {"kind": "forest", "of": target.kind, "odds": boosted}
    return "boosted trees" if boosted else "extra trees", {}, Forest(target.kind, boosted, **nodes), kept


def _parts(data: Data) -> dict[str, Part]:
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return {name: part for name, part in parts.items() if part is not None}


def _all(data: Data) -> Parts:
    """All examples of all parts, scaled."""
    return {name: _whole(part, data) for name, part in _parts(data).items()}


def _fits(data: Data) -> bool:
    """Whether the examples are values that can be scaled, and few enough to be held at once."""
    x, _ = next(iter(_stream(data.train, data).ordered()))
    counts = [size or 0 for size in data.describe()["sizes"].values()]
    return x.is_floating_point() and sum(counts) * prod(data.shape) <= MOST


def _stream(part: Part, data: Data) -> Stream:
    return stream(part, data, batch_size=256, seed=0)


def _whole(part: Part, data: Data) -> tuple[Tensor, Tensor]:
    """All examples of a part, scaled, in the order in which networks are judged on them."""
    x, y = (torch.cat(tensors) for tensors in zip(*_stream(part, data).ordered(), strict=True))
    return x, y


def _answers(data: Data) -> dict[str, Tensor]:
    """The answers of every part; where examples are no values, they are passed over."""
    return {name: torch.cat([y for _, y in _stream(part, data).ordered()]) for name, part in _parts(data).items()}
