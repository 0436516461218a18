"""What to diagnose: the models of runs, with the data that they learned from."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError, first_line
from fallow.data import Data, Examples, Files, load
from fallow.data.normalise import normalise, resized
from fallow.data.targets import Numbers, Target
from fallow.evaluate.metrics import Metric
from fallow.evaluate.score import key_of
from fallow.training.predict import Predictor, check_exists

# what did not race, by the names that `fallow.comparison` gives: trials of settings, fewer labels, the winner on all
UNRACED = re.compile(r".*-trial\d+-(short|whole)|.*-labels\d+|winner")


@dataclass
class Subject:
    """A trained model, and training and test examples as it takes them."""

    name: str
    folder: Path
    model: nn.Module
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    accuracy: float | None  # on test, as the run recorded it; the metric that judged, where that is another
    method: str
    target: Target

    @property
    def loss(self) -> str:
        """What is measured: the classes' loss, or that of numbers in deviations of the training examples."""
        return "cross_entropy" if self.target.kind == "classes" else "squared_error"

    @property
    def metric(self) -> Metric:
        """What ``accuracy`` is."""
        return self.target.metric()


def subjects(
    runs: list[Path],
    *,
    data: str | None = None,
    weights: str = "last",
    generations: bool = False,
    examples: int = 2000,
    trusted: Collection[str] = (),
) -> list[Subject]:
    """The models of runs, of all generations if asked; a comparison stands for its runs of the first seed.

    ``examples`` is how many of the training and of the test split are looked at, evenly spaced; ``data`` says where the
    data is, if it has moved since. Models that are not fallow's own are built only if ``trusted`` names them: nothing
    is imported because a record says so.
    """
    found: list[Subject] = []
    folders = [one for run in runs for one in _expand(run)]
    if twice := [folder for folder, count in Counter(map(Path.resolve, folders)).items() if count > 1]:
        raise RequestError(f"{twice[0]} is given twice: name it once")
    for folder in folders:
        record = record_of(folder)
        loaded = _load(record, data, folder)
        train, test = (_examples(part, loaded, examples, folder) for part in (loaded.train, loaded.test))
        names = sorted(folder.glob("generation-*.safetensors"), key=_number) if generations else []
        if generations and not names:
            raise RequestError(f"{folder} kept no generations: train with --keep-generations")
        label = str(record["method"])
        for file in names or [folder / f"{weights}.safetensors"]:
            stem = file.name.removesuffix(".safetensors")
            name = f"{label}, generation {_number(file)}" if generations else label
            named = record["model"] if record["model"] in trusted else None
            model = Predictor(folder, weights=stem, model=named).model
            score = _accuracy(folder, weights, loaded.target.metric().name)
            found.append(Subject(name, folder, model, train, test, score, record["method"], loaded.target))
    shared = {s.name for s in found if [t.name for t in found].count(s.name) > 1}
    for subject in found:
        if subject.name in shared:
            subject.name = f"{subject.name} ({subject.folder.name})"
    return found


def refuse_unused(named: Collection[str], trained: Collection[str]) -> None:
    """Refuse the name of a model that no run has: it was mistyped, and trusts nothing."""
    for name in named:
        if name not in trained:
            listed = ", ".join(sorted(set(trained)))
            raise RequestError(f"none of the runs trained {name!r}: leave --model out, or name one of {listed}")


def _expand(run: Path) -> list[Path]:
    """A run itself, or those of a comparison's first seed."""
    if not (run / "runs").is_dir():
        return [run]
    folders = finished(run)
    seeds = sorted({_seed(folder) for folder in folders})
    return [folder for folder in folders if _seed(folder) == seeds[0]]


def finished(comparison: Path) -> list[Path]:
    """The folders of a comparison's races that are done."""
    folders = sorted(path.parent for path in comparison.glob("runs/*/result.json"))
    folders = [folder for folder in folders if not UNRACED.fullmatch(folder.name)]
    if not folders:
        raise RequestError(f"{comparison} is a comparison without a finished run: let it go on first")
    return folders


def _seed(folder: Path) -> int:
    return int(record_of(folder)["settings"]["seed"])


def record_of(folder: Path) -> dict[str, Any]:
    """What a run's folder says of it."""
    check_exists(folder)
    try:
        record = json.loads((folder / "run.json").read_text("utf-8"))
        known = {"method", "data", "model"} <= record.keys() and isinstance(record["data"], dict)
        if known and isinstance(record["settings"]["seed"], int):
            return record
        raise ValueError("it lacks the method, the data or the model")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        lost = f"{folder} holds no run, or its run.json is damaged ({first_line(error)})"
        raise RequestError(f"{lost}: give folders of fallow train, or of fallow compare") from error


def unmeasured(kind: str, texts: bool) -> str:
    """Why networks for such targets or examples are not diagnosed; nothing if they are."""
    if kind not in ("classes", "numbers"):
        return f"has {kind} to learn, and diagnose measures networks for classes and numbers"
    return "holds texts, and diagnose measures networks of numbers and pictures" if texts else ""


def _load(record: dict[str, Any], moved: str | None, folder: Path) -> Data:
    kind = "tasks" if "shots" in record["data"] else record["data"].get("target", {"kind": "tasks"})["kind"]
    if why := unmeasured(kind, bool(record.get("texts"))):
        raise RequestError(f"{folder} {why}")
    origin = dict(record.get("origin") or {})
    if moved is not None:
        origin["source"] = moved
    if "source" not in origin:
        raise RequestError(f"{folder} does not say where its data is: name it with --data")
    origin.setdefault("seed", record["settings"]["seed"])
    loaded = load(origin.pop("source"), **origin)
    if loaded.describe()["digest"] != record["data"]["digest"]:
        if "unlabelled" in record["data"].get("sizes", {}):
            raise RequestError(f"{folder} learned from unlabelled images, too: diagnose is for runs of labelled data")
        raise RequestError(f"the data of {folder} has changed since it was trained: name the right one with --data")
    scaling = record.get("normalisation") or {}
    if "size" in scaling:  # a pretrained network's own
        loaded.mean, loaded.std, loaded.size = *map(torch.tensor, (scaling["mean"], scaling["std"])), scaling["size"]
    return loaded


def _examples(part: Any, data: Data, most: int, folder: Path) -> tuple[Tensor, Tensor]:
    if not isinstance(part, Examples | Files):
        raise RequestError(f"the data of {folder} has no training and test examples to look at")
    few = torch.linspace(0, len(part) - 1, min(len(part), most)).long()  # evenly: they may be sorted by class
    x = part.x[few] if isinstance(part, Examples) else torch.stack([part[i][0] for i in few.tolist()])
    y = part.y[few]
    if isinstance(data.target, Numbers):  # as the network gives them
        y = (y.reshape(len(y), -1) - torch.tensor(data.target.mean)) / torch.tensor(data.target.std)
    return resized(normalise(x, data.mean, data.std), data.size), y


def _number(file: Path) -> int:
    return int(file.name.removesuffix(".safetensors").rpartition("-")[2])


def _accuracy(folder: Path, weights: str, metric: str) -> float | None:
    try:
        found = json.loads((folder / "result.json").read_text("utf-8"))[weights][key_of("test", metric)]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, float | int) else None
