"""The trainings of a study: the method, the baseline, and every control without which its number means nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.data import FOREIGN, Data
from fallow.data.normalise import normalise
from fallow.evaluate.separation import auroc
from fallow.methods.semi.confidence import ConfidenceNetwork
from fallow.methods.semi.fixmatch import FixMatch
from fallow.semi.control import CONTROLS, with_validation
from fallow.semi.plan import Plan, gather
from fallow.semi.supervised import supervised
from fallow.training.fit import fit

SUPERVISED, FIXMATCH, CONFIDENCE = "supervised", "fixmatch", "confidence"
FROZEN, MORE = ", frozen", ", validation labels too"  # endings of names
ZERO, CONSTANT, SHUFFLED, UNTRAINED, ORACLE = CONTROLS
CHUNK = 1000  # images at a time


@dataclass(frozen=True)
class Outcome:
    """What a training gave."""

    name: str
    test: float | None  # accuracy after the last epoch, of the averaged weights
    val: float | None
    history: list[dict[str, Any]]
    seconds: float
    auroc: (
        float | None
    )  # how well the weights (of FixMatch: its own confidence) tell the data's images from foreign ones
    ran_away: bool = False
    weights: np.ndarray | None = None  # of the unlabelled images
    predicted: np.ndarray | None = None  # their classes

    def describe(self) -> dict[str, Any]:
        """As plain values, without what is there for every image."""
        keys = ("name", "test", "val", "seconds", "auroc", "ran_away")
        return {key: getattr(self, key) for key in keys}


def chains(plan: Plan) -> list[list[str]]:
    """The controls of a confidence network; what is in one list comes one after another."""
    oracle = [[ORACLE]] if plan.foreign else []
    return [
        [CONFIDENCE, CONFIDENCE + FROZEN],
        [CONSTANT, CONSTANT + FROZEN],
        [SHUFFLED, SHUFFLED + FROZEN],
        [FIXMATCH],
        [FIXMATCH + MORE],
        [UNTRAINED],
        *oracle,
        [ZERO],
        [SUPERVISED],
        [SUPERVISED + MORE],
    ]


def train(
    plan: Plan,
    names: Sequence[str],
    folder: Path,
    *,
    resume: bool = False,
    threads: int | None = None,
    data: Data | None = None,
    device: str = "auto",
    observer: Callable[[Any], None] | None = None,
) -> list[Outcome]:
    """Train what the names say, one after another, each in its own folder below this one."""
    if threads is not None:
        torch.set_num_threads(threads)
    data = data or gather(plan)
    return [_train(plan, name, folder, resume, data, device, observer) for name in names]


def _train(
    plan: Plan, name: str, folder: Path, resume: bool, data: Data, device: str, observer: Any
) -> Outcome:  # fmt: skip
    method = _method(plan, name, folder)
    used = with_validation(data) if name.endswith(MORE) else data
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the confidence weights ran away")  # told at the end, by ran_away
        result = fit(
            plan.model, used, method, out=folder / slug(name), resume=resume, device=device, observer=observer,
            **plan.settings(),
        )  # fmt: skip
    weights, told, predicted = _looked(method, result.network)
    return Outcome(
        name, result.last.get("test_accuracy"), result.last.get("val_accuracy"), result.history, result.seconds, told,
        getattr(method, "stopped", False), weights, predicted,
    )  # fmt: skip


def _method(plan: Plan, name: str, folder: Path) -> FixMatch:
    """The method behind a name."""
    chosen = plan.chosen()
    base, frozen = name.removesuffix(MORE).removesuffix(FROZEN), name.endswith(FROZEN)
    if base == SUPERVISED:
        return supervised(chosen)
    if base == FIXMATCH:
        baseline = supervised(chosen)
        return FixMatch(**baseline.settings())
    assert isinstance(chosen, ConfidenceNetwork)
    if frozen:
        return replace(chosen, source="frozen", file=str(folder / slug(base) / "confidence.safetensors"))
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
