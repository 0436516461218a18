"""The trainings of a study: the method, the baseline, and every control without which its number means nothing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from fallow.base import files
from fallow.base.errors import WorkError, first_line
from fallow.core.record import RunFolder
from fallow.data import FOREIGN
from fallow.data.normalise import normalise
from fallow.evaluate.separation import auroc
from fallow.experiment import Run, device, heed
from fallow.methods.semi.confidence import ConfidenceNetwork
from fallow.methods.semi.fixmatch import FixMatch
from fallow.semi.control import CONTROLS, with_validation
from fallow.semi.plan import StudyPlan, gather
from fallow.semi.supervised import supervised
from fallow.training.fit import fit

SUPERVISED, FIXMATCH, CONFIDENCE = "supervised", "fixmatch", "confidence"
FROZEN, MORE = ", frozen", ", validation labels too"  # endings of names
ZERO, CONSTANT, SHUFFLED, UNTRAINED, ORACLE = CONTROLS
ROWS = {  # of the table of controls: the training with C in the making, and the one with C as it was kept
    "confidence network": (CONFIDENCE, CONFIDENCE + FROZEN),
    CONSTANT: (CONSTANT, CONSTANT + FROZEN),
    SHUFFLED: (SHUFFLED, SHUFFLED + FROZEN),
    ZERO: (ZERO, None),
    UNTRAINED: (None, UNTRAINED),
    ORACLE: (None, ORACLE),
    "none: FixMatch": (FIXMATCH + MORE, FIXMATCH),
    "none: supervised": (SUPERVISED + MORE, SUPERVISED),
}
CHUNK = 1000  # images at a time
IMAGES = "images.safetensors"  # weights and predicted classes of the unlabelled images


@dataclass(frozen=True)
class Trained:
    """What a training gave."""

    name: str
    test: float | None  # accuracy after the last epoch, of the averaged weights
    val: float | None
    history: list[dict[str, Any]]
    seconds: float
    auroc: float | None  # how well weights (of FixMatch: its confidence) tell the data's images from foreign ones
    ran_away: bool = False
    train: float | None = None  # accuracy on the labelled images: without it nobody knows whether they were learned
    weights: np.ndarray | None = None  # of the unlabelled images
    predicted: np.ndarray | None = None  # their classes

    def describe(self) -> dict[str, Any]:
        """As plain values, without what is there for every image."""
        keys = ("name", "test", "val", "train", "seconds", "auroc", "ran_away")
        return {key: getattr(self, key) for key in keys}


def controls(plan: StudyPlan) -> list[str]:
    """Of a confidence network: itself, and every training that its number must be compared with."""
    oracle = [ORACLE] if plan.foreign else []
    return [
        *(name for signal in (CONFIDENCE, CONSTANT, SHUFFLED) for name in (signal, signal + FROZEN)),
        FIXMATCH, FIXMATCH + MORE, UNTRAINED, *oracle, ZERO, SUPERVISED, SUPERVISED + MORE,
    ]  # fmt: skip


def runs(plan: StudyPlan, names: Sequence[str], mark: str = "") -> dict[str, Run]:
    """The trainings of these names as runs, whose own names end with ``mark``; a frozen network is learned before."""
    found = {}
    for name in names:
        base = slug(name.removesuffix(FROZEN)) + mark if name.endswith(FROZEN) else None
        found[name] = Run(
            slug(name) + mark, f"{__name__}:train", {"name": name, "how": plan.how(), "frozen": base},
            cost=3.0 if name in (CONFIDENCE, CONSTANT, SHUFFLED) else 1.0, after=(base,) if base else (),
            paths=plan.sources(),
        )  # fmt: skip
    return found


def train(folder: Path, name: str, how: dict[str, Any], frozen: str | None, **sources: str) -> dict[str, Any]:
    """Train what the name says, and leave in the folder what it makes of the unlabelled images."""
    plan = StudyPlan(**how | sources)
    data = gather(plan)
    method = _method(plan, name, folder.parent / frozen / "confidence.safetensors" if frozen else None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the confidence weights diverged")  # told at the end, by ran_away
        result = fit(
            plan.model, with_validation(data) if name.endswith(MORE) else data, method, out=folder,
            resume=(folder / "run.json").exists(), device=device(), observer=heed, **plan.settings(),
        )  # fmt: skip
    weights, told, predicted = _looked(method, result.network)
    seen = {"predicted": predicted} | ({} if weights is None else {"weights": weights})
    files.write(folder / IMAGES, safetensors.numpy.save(seen))
    accuracies = {part: result.last.get(f"{part}_accuracy") for part in ("test", "val", "train")}
    ran_away = getattr(method, "stopped", False)
    return accuracies | {"seconds": result.seconds, "auroc": told, "ran_away": ran_away}


def outcome(name: str, folder: Path, value: dict[str, Any]) -> Trained:
    """What a training gave, from its folder and its value."""
    history = RunFolder(folder).history()
    try:
        images = safetensors.numpy.load_file(folder / IMAGES)
    except (OSError, SafetensorError) as error:
        lost = f"{folder / IMAGES} is damaged ({first_line(error)})"
        raise WorkError(f"{lost}: delete {folder}, and the same command trains it again") from error
    return Trained(name, history=history, **value | images)


def _method(plan: StudyPlan, name: str, file: Path | None) -> FixMatch:
    """The method behind a name; ``file`` holds the network that is frozen."""
    chosen = plan.chosen()
    base = name.removesuffix(MORE).removesuffix(FROZEN)
    if base == SUPERVISED:
        return supervised(chosen)
    if base == FIXMATCH:
        return FixMatch(**supervised(chosen).settings())
    assert isinstance(chosen, ConfidenceNetwork)
    if file is not None:
        return replace(chosen, source="frozen", file=str(file))
    return replace(chosen, **CONTROLS.get(base, {}))  # type: ignore[arg-type]


@torch.no_grad()
def _looked(method: FixMatch, model: nn.Module) -> tuple[np.ndarray | None, float | None, np.ndarray]:
    """Weights of the unlabelled images, how well they tell foreign ones, and the classes that the model sees."""
    device = next(model.parameters()).device
    images, foreign = method.images.to(device), (method.origin == FOREIGN).cpu()
    model.eval()
    sure: Tensor = torch.cat([_probable(model, x, method) for x in images.split(CHUNK)]).cpu()
    weights, judged = None, sure[:, 0]
    if isinstance(method, ConfidenceNetwork):
        if method.source in ("oracle", "zero"):
            return None, None, sure[:, 1].long().numpy()
        weights = judged = method.trust(method.images).cpu()
    told = auroc(judged[~foreign], judged[foreign]) if foreign.any() and not foreign.all() else None
    return None if weights is None else weights.numpy(), told, sure[:, 1].long().numpy()


def _probable(model: nn.Module, x: Tensor, method: FixMatch) -> Tensor:
    """The largest probability, and its class."""
    probability, label = model(normalise(x, method.mean, method.std)).softmax(1).max(1)
    return torch.stack([probability, label.to(probability.dtype)], 1)


def slug(name: str) -> str:
    """A name as a folder's.

    >>> slug("constant signal, frozen")
    'constant-signal-frozen'
    """
    return name.replace(",", "").replace(" ", "-")
