"""Which networks to look through: those of runs and comparisons, and pretrained ones by name."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fallow import models
from fallow.base.errors import RequestError
from fallow.base.files import expanded
from fallow.data import Data
from fallow.data.tables import DataTable
from fallow.diagnose.subjects import finished, record_of
from fallow.models.frozen import Frozen
from fallow.models.scaled import Scaled
from fallow.problems import as_problem
from fallow.training.predict import Predictor
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order

SCORES = ("last", "best")


@dataclass(frozen=True)
class Backbone:
    """A network to look through, and the row of the table that it belongs to."""

    label: str
    source: str  # the folder of a run, or the name of a model
    weights: str | None = None  # of a run, "last" or "best"; of a model, a file
    seed: int | None = None  # of a run
    method: str = ""
    model: str = ""
    data: str = ""  # that it was trained on


def backbones(
    runs: Sequence[str | Path | Backbone], *, weights: Path | None = None, score: str = "last"
) -> list[Backbone]:
    """The networks of runs, of all methods and seeds of comparisons, and of models by name.

    Runs that differ in nothing but their seed share a row.
    """
    if score not in SCORES:
        raise RequestError(f"score is {score!r}: give last or best")
    found: list[Backbone] = []
    for given in runs:
        if isinstance(given, Backbone):
            found.append(given)
            continue
        run, folder = str(given), expanded(str(given))
        if (folder / "runs").is_dir():
            found += [_of_run(each, score) for each in finished(folder)]
        elif folder.is_dir():
            found.append(_of_run(folder, score))
        else:
            found.append(_named(run, weights))
    if not found:
        raise RequestError("there is no network to look through: give folders of runs, or names of models")
    names = [each for each in found if each.seed is None]
    if weights is not None and len(names) != 1:
        raise RequestError(f"--weights is for one model by its name, and there are {len(names)}: give just that one")
    trained = [each for each in found if each.seed is not None]
    for what in ("model", "data"):
        if len({getattr(each, what) for each in trained}) > 1:
            found = [
                replace(each, label=f"{each.label}, {getattr(each, what)}") if each.seed is not None else each
                for each in found
            ]
    found = list({(each.source, each.weights): each for each in found}.values())
    twice = [key for key, count in Counter((each.label, each.seed) for each in found).items() if count > 1]
    return [
        replace(each, label=f"{each.label} ({Path(each.source).name})") if (each.label, each.seed) in twice else each
        for each in found
    ]


def _of_run(folder: Path, score: str) -> Backbone:
    record = record_of(folder)
    method, model, data = str(record["method"]), str(record["model"]), str(record["data"]["name"])
    return Backbone(method, str(folder.resolve()), score, record["settings"]["seed"], method, model, data)


def _named(name: str, weights: Path | None) -> Backbone:
    if not (models.catalogued(name) or ":" in name):
        raise RequestError(
            f"{name} is neither a folder of fallow train or fallow compare nor a model: "
            f"{', '.join(models.MODELS)}, hf:…, timm:…, torchvision:… and module:factory are models"
        )
    return Backbone(name, name, None if weights is None else str(expanded(weights).resolve()), model=name)


def frozen(backbone: Backbone, data: Data, trusted: Collection[str] = (), size: int | None = None) -> Frozen:
    """The network without its head, for examples as ``data`` hold them.

    Pictures are scaled as those that the network was trained on; anything else by its own mean and deviation. A model
    that is not fallow's own is built only if the command names it, or ``trusted`` does where a record names it.
    """
    if backbone.seed is None:
        found = _pretrained(backbone, data, size)
    else:
        record = record_of(Path(backbone.source))
        named = record["model"] if record["model"] in trusted else None
        assert backbone.weights is not None
        run = Predictor(backbone.source, backbone.weights, named)
        _same_columns(run.table, data.table)
        if not isinstance(run.scaled, Scaled):
            raise RequestError(f"{backbone.source} reads texts, whose features are not transferred: give one of images")
        alike = run.pictures and data.pictures
        mean, std = (run.scaled.mean, run.scaled.std) if alike else _spread(data, run.shape[0])
        found = Frozen(run.model, run.shape, mean, std, run.scaled.size)
    found.fits(data.shape)
    return found


def _same_columns(trained: DataTable | None, given: DataTable | None) -> None:
    """Refuse tables whose features mean something else, however many they are."""
    if trained is None or given is None:
        return
    ours, theirs = ([(c.name, c.categories, c.gaps) for c in table.columns] for table in (trained, given))
    if ours == theirs:
        return
    names = [[name for name, _, _ in columns] for columns in (ours, theirs)]
    if (more := [name for name in names[1] if name not in names[0]]) and set(names[0]) <= set(names[1]):
        drop = f"--drop {shlex.quote(more[0])}"
        raise RequestError(f"the network was trained without the column {more[0]!r}: leave it out ({drop})")
    if names[0] != names[1]:
        raise RequestError(f"the network was trained with the columns {', '.join(names[0])}: give these, in this order")
    name = next(mine[0] for mine, other in zip(ours, theirs, strict=True) if mine != other)
    raise RequestError(f"the column {name!r} has other categories than the network was trained with, or other gaps")


def _pretrained(backbone: Backbone, data: Data, size: int | None) -> Frozen:
    if backbone.weights is not None:
        return _loaded(backbone, data)
    problem = as_problem(data)
    with torch.random.fork_rng():  # the head is drawn, and never used
        torch.manual_seed(0)
        network = problem.network(backbone.model, size).module
    if models.catalogued(backbone.model) and getattr(network, "inputs", None) is None:
        raise RequestError(f"{backbone.model} has no weights of its own: give --weights FILE, or the folder of a run")
    known = problem.data  # with the size and the scale that the network knows
    return Frozen(network, known.shape, known.mean, known.std, known.size)


def _loaded(backbone: Backbone, data: Data) -> Frozen:
    """A model with the weights of a file, all but its head; the file decides on grey or colours."""
    assert backbone.weights is not None
    lost: list[str] = []
    for channels in dict.fromkeys((data.shape[0], 3, 1) if len(data.shape) == 3 else data.shape[:1]):
        shape = (channels, *data.shape[1:])
        with torch.random.fork_rng():
            network = models.build(backbone.model, shape=shape, classes=len(data.classes), pretrained=False)
        report = models.load_weights(network, backbone.weights)
        head = head_of(network, execution_order(network, torch.zeros(2, *shape)))
        missing = [name for name in (*report.missing, *report.wrong_shape) if not name.startswith(f"{head}.")]
        if not missing:
            mean, std = _spread(data, channels)
            return Frozen(network, shape, mean, std)
        lost = min(lost or missing, missing, key=len)
    raise RequestError(f"{backbone.weights} lacks {lost[0]} of {backbone.model}: it is of another model")


def _spread(data: Data, channels: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The data's own mean and deviation, for as many channels as the network takes."""
    if data.mean is None or data.std is None or len(data.mean) == channels:
        return data.mean, data.std
    if channels == 1:
        return data.mean.mean(0, keepdim=True), data.std.mean(0, keepdim=True)
    return data.mean.expand(channels).clone(), data.std.expand(channels).clone()
