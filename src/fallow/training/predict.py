"""Use a trained model: a run's folder, or a comparison's, and images or arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow import models
from fallow.base.errors import RequestError, unknown
from fallow.data.images import decode
from fallow.data.normalise import normalise

BATCH = 256
WEIGHTS = ("best", "last")


class Prediction(NamedTuple):
    """The likeliest class of an example, and the softmax's confidence in it."""

    label: str
    confidence: float


class Predictor:
    """The model of a run, ready to use; of a comparison, the winner's.

    ``model`` is needed only where the run trained a module that fallow cannot build from its record.

    >>> import fallow, fallow.data, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = fallow.fit("mlp", "digits", generations=1, epochs=5, out=folder)
    >>> Predictor(folder)(fallow.data.load("digits").test.x[:1])[0].label
    '5'
    """

    def __init__(self, run: str | Path, weights: str = "best", model: nn.Module | None = None) -> None:
        folder = Path(run)
        if weights not in WEIGHTS and not weights.startswith("generation-"):
            raise unknown("weights", weights, WEIGHTS)
        if (folder / "best" / "run.json").exists():  # a comparison keeps its winner there
            folder = folder / "best"
        record = _read(folder)
        data = record["data"]
        self.classes: list[str] = data["classes"]
        self.shape = tuple(data["shape"])
        if "normalisation" not in record:
            raise RequestError(f"{folder} is of an older fallow, which did not keep how to normalise: train it anew")
        statistics = record["normalisation"]
        self.mean: Tensor | None = torch.tensor(statistics["mean"]) if statistics else None
        self.std: Tensor | None = torch.tensor(statistics["std"]) if statistics else None
        self.pictures: bool = record["pictures"]
        if model is None:
            model = _build(record["model"], self.shape, len(self.classes), folder)
        file = folder / f"{weights}.safetensors"
        if not file.exists():
            raise RequestError(f"{folder} has no {file.name}: the run is not finished, go on with it first")
        report = models.load_weights(model, file)
        if report.missing or report.wrong_shape:
            raise RequestError(f"{file} lacks {(report.missing + report.wrong_shape)[0]}: it is of another model")
        self.model = model.eval()

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """The model's output for examples as the data held them (uint8 images, or float features)."""
        if tuple(x.shape[1:]) != self.shape:
            raise RequestError(f"examples have shape {tuple(x.shape[1:])}: the model was trained on {self.shape}")
        device = next(self.model.parameters()).device
        mean, std = (None if s is None else s.to(device) for s in (self.mean, self.std))
        return torch.cat([self.model(normalise(part.to(device), mean, std)) for part in x.split(BATCH)])

    def __call__(self, examples: Tensor | np.ndarray | Sequence[str | Path]) -> list[Prediction]:
        """A prediction for each image file, or for each example of an array."""
        if isinstance(examples, np.ndarray):
            examples = torch.from_numpy(examples)
        x = examples if isinstance(examples, Tensor) else self.images(examples)
        confidence, label = functional.softmax(self.logits(x).float(), 1).max(1)
        return [Prediction(self.classes[i], c) for i, c in zip(label.tolist(), confidence.tolist(), strict=True)]

    def images(self, paths: Sequence[str | Path]) -> Tensor:
        """Image files, cut and resized as those that the model was trained on."""
        if not self.pictures:
            raise RequestError(
                f"the model was trained on arrays of shape {self.shape}, not on image files: give it arrays"
            )
        channels, height, width = self.shape
        pixels = []
        for path in map(Path, paths):
            if not path.is_file():
                raise RequestError(f"there is no image {path}")
            try:
                pixels.append(torch.from_numpy(decode(path, (height, width), channels)))
            except Exception as error:  # Pillow raises many kinds for a damaged file
                raise RequestError(f"{path} cannot be read as PNG or JPEG") from error
        if not pixels:
            raise RequestError("there are no images to predict: name one or more")
        return torch.stack(pixels)


def _read(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / "run.json").read_text("utf-8"))
        if _sound(record):
            return record
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    raise RequestError(
        f"{folder} holds no run, or its run.json is damaged: give the folder of a run, or of a complete comparison"
    )


def _sound(record: dict[str, Any]) -> bool:
    """Whether what says how to build and feed the model is of the kind that it should be."""
    scaling, shape = record.get("normalisation") or {"mean": [], "std": []}, record["data"].get("shape", [1])
    numbers = [scaling["mean"], scaling["std"], shape]
    return isinstance(record["model"], str) and all(
        isinstance(value, int | float) for values in numbers for value in values
    )


def _build(spec: str, shape: tuple[int, ...], classes: int, folder: Path) -> nn.Module:
    try:
        with torch.random.fork_rng():
            return models.build(spec, shape=shape, classes=classes)
    except RequestError as error:
        raise RequestError(
            f"{folder} trained {spec}, which fallow cannot build: in Python, Predictor(…, model=yours) takes it"
        ) from error
