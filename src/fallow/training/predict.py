"""Use a trained model: a run's folder, or a comparison's, and images, arrays or tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fallow import models
from fallow.base.errors import RequestError, unknown
from fallow.data.answers import lacking
from fallow.data.given import from_paths, from_texts, kind_of, shaped
from fallow.data.layout import numeric
from fallow.data.scales import as_trained
from fallow.data.tables import DataTable
from fallow.data.targets import Target
from fallow.data.written import COMMA
from fallow.models.reading import Reading
from fallow.models.scaled import Scaled
from fallow.models.yardsticks import rebuilt

BATCH = 256
WEIGHTS = ("best", "last")
LIKELY = 0.5  # a label is given from here on


class Prediction(NamedTuple):
    """What a model says of an example.

    Of classes, ``label`` is the likeliest and ``confidence`` the softmax's in it; of labels, those that are likelier
    than not, and the least confidence in any of these decisions, those against a label included; of numbers, the number
    (or several), without a confidence; of pixels, a class index for each, and the mean confidence.
    """

    label: Any
    confidence: float | None
    name: str = ""  # of the file, or the row


class Predictions(list[Prediction]):
    """A prediction for each example; ``failed`` holds what could not be read, by name, with the reason."""

    def __init__(self, found: Sequence[Prediction], failed: dict[str, str] | None = None) -> None:
        super().__init__(found)
        self.failed = failed or {}


class Predictor:
    """The model of a run, ready to use; of a comparison, the winner's.

    ``model`` is needed where the run trained what is not in fallow's catalogue: the same name again (``"mine:net"``),
    since nothing is imported because a record says so, or the module itself.

    >>> import fallow, fallow.data, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = fallow.fit("mlp", "digits", generations=1, epochs=5, out=folder)
    >>> Predictor(folder)(fallow.data.load("digits").test.x[:1])[0].label
    '5'
    """

    def __init__(self, run: str | Path, weights: str = "best", model: nn.Module | str | None = None) -> None:
        folder = Path(run)
        if weights not in WEIGHTS and not weights.startswith("generation-"):
            raise unknown("weights", weights, WEIGHTS)
        if (folder / "best" / "run.json").exists():  # a comparison keeps its winner there
            folder = folder / "best"
        record = _read(folder)
        if "shots" in record["data"]:
            raise RequestError(
                f"{folder} learned to learn from few shots, and needs some first: in Python, resume it by "
                "fallow.fewshot(…, out=…, resume=True), and result.model.adapt(x, y) predicts, if the method has that"
            )
        self.target = _target(record["data"], folder)
        self.classes: list[str] = list(self.target.names)
        self.shape = tuple(record["data"]["shape"])
        if "normalisation" not in record:
            raise RequestError(
                f"{folder} was written by an older fallow, which did not record the normalisation: train it again"
            )
        self.pictures: bool = record["pictures"]
        self.table = DataTable.of(record["table"]) if record.get("table") else None
        self.flattened = tuple(record.get("flattened") or ())
        self.columns: list[str] = record.get("columns") or []
        self.temperature: float | None = record.get("temperature")  # logits are divided by it, as validation liked it
        file = folder / f"{weights}.safetensors"
        network = model if isinstance(model, nn.Module) else None
        if network is None and "yardstick" not in record:
            network = _build(record, model, self.shape, self.target, folder)  # type: ignore[arg-type]  # no module here
        if not file.exists():
            kept = sorted(each.stem for each in folder.glob("*.safetensors"))
            why = f"give weights as one of {', '.join(kept)}" if kept else "the run is not finished: resume it first"
            raise RequestError(f"{folder} has no {file.name}: {why}")
        if network is None:
            network = _learner(record["yardstick"], file)
        else:
            report = models.load_weights(network, file)
            if report.missing or report.wrong_shape:
                raise RequestError(f"{file} lacks {(report.missing + report.wrong_shape)[0]}: it is of another model")
        self.read: bool | str | list[str] = record.get("texts", False)
        self.texts = bool(self.read)
        statistics = record["normalisation"] or {}
        mean, std = (torch.tensor(statistics[key]) if key in statistics else None for key in ("mean", "std"))
        self.scaled: Scaled | Reading = Scaled(network, mean, std, statistics.get("size")).eval()
        if self.texts and hasattr(network, "tokens"):  # but for the majority, which reads nothing
            self.scaled = Reading(network, network.tokens).eval()  # type: ignore[arg-type]

    @property
    def model(self) -> nn.Module:
        """The network that was trained, without the scaling of its inputs."""
        return self.scaled.network

    @torch.no_grad()
    def logits(self, x: Tensor | np.ndarray) -> Tensor:
        """The model's output for examples as the data held them (uint8 images, or float features)."""
        x = torch.as_tensor(x)
        if tuple(x.shape[1:]) != self.shape and not (self.texts and x.shape[1] == self.shape[0]):
            raise RequestError(f"examples have shape {tuple(x.shape[1:])}: the model was trained on {self.shape}")
        self._check_scale(x)
        device = next((p.device for p in self.model.parameters()), None)
        return torch.cat([self.scaled(part.to(device)) for part in x.split(BATCH)])

    def __call__(self, examples: Any) -> Predictions:
        """A prediction for each file (images; .npz, .npy and .csv have many examples), or each example of an array.

        A DataFrame is read by the names of its columns where the model was trained on a table, else as it stands.
        A model of texts takes arrays of strings (N, or N×2 for pairs), .npz and .txt files of them, a text a line (or a
        file, if it was trained so), and tables with the columns that it learned from.

        Paths may be folders. What cannot be read is left out and told of in ``failed``.
        """
        if isinstance(examples, str | Path):
            examples = [examples]
        if hasattr(examples, "to_numpy"):
            examples = self._rows_of(examples)
        if self.texts:
            names, x, failed = from_texts(examples, self.shape[0], self.read)
        elif isinstance(examples, Tensor | np.ndarray):
            x = shaped(numeric(examples, "x", as_=kind_of(self.shape)), self.shape)
            if not x.isfinite().all():
                raise RequestError("x has gaps or values that are not finite: fill them, or leave those rows out")
            names, failed = [str(row) for row in range(len(x))], dict[str, str]()
        elif not isinstance(examples, Iterable) or not all(isinstance(each, str | Path) for each in examples):
            raise RequestError(
                f"examples are a {type(examples).__name__}: give an array, a tensor, a DataFrame, or paths of files"
            )
        else:
            names, x, failed = from_paths(examples, self.shape, self.pictures, self.table, self.columns, self.flattened)
        found = self.target.decode(self.logits(x) / (self.temperature or 1.0))
        return Predictions([Prediction(*self._say(row), name) for row, name in zip(found, names, strict=True)], failed)

    def _rows_of(self, frame: Any) -> Any:
        """The rows of a DataFrame, or a Series: of a table, what its columns of these names hold."""
        if self.table is None or not hasattr(frame, "columns"):
            return frame.to_numpy()
        ways = {column.name: column.written for column in self.table.columns}
        cells = {
            str(name): [_written(value, ways.get(str(name), "")) for value in frame[name].tolist()]
            for name in frame.columns
        }
        return self.table.encode(self.table.raw(cells, "the DataFrame"))

    def _say(self, decoded: Tensor) -> tuple[Any, float | None]:
        """What was decoded for one example, in words."""
        if self.target.kind == "numbers":
            numbers = decoded.tolist()
            return numbers[0] if len(numbers) == 1 else numbers, None
        if self.target.kind == "labels":
            likely = [i for i, p in enumerate(decoded.tolist()) if p >= LIKELY]
            sure = torch.where(decoded >= LIKELY, decoded, 1 - decoded).min()
            return [self.classes[i] for i in likely], float(sure)
        confidence, place = decoded.max(0)
        if self.target.kind == "dense":
            return place.tolist(), float(confidence.mean())
        return self.classes[int(place)], float(confidence)

    def _check_scale(self, x: Tensor) -> None:
        """Refuse images and volumes of another scale than those that the model was trained on."""
        if not isinstance(self.scaled, Scaled) or len(self.shape) < 3 or not len(x):
            return
        mean, std = self.scaled.mean, self.scaled.std
        if mean is not None and std is not None:
            as_trained(x, mean.cpu(), std.cpu(), self.pictures)


def _written(value: Any, way: str) -> str:
    """A cell as the file of training would have it; one that lacks a value is empty."""
    if lacking(value):
        return ""
    return str(value).replace(".", ",") if isinstance(value, float) and way.startswith(COMMA) else str(value)


def _learner(kept: Any, file: Path) -> nn.Module:
    """A yardstick from its tensors."""
    try:
        return rebuilt(arrays=load_file(file), **kept)
    except (KeyError, TypeError, SafetensorError) as error:
        raise RequestError(f"{file} and its record do not fit each other: train it again") from error


def check_exists(folder: Path) -> None:
    """Refuse a run's folder that is not there."""
    if not folder.exists():
        quick = folder.with_name(f"{folder.name}-quick")  # where compare --quick works
        meant = f"did you mean {quick}?" if quick.is_dir() else "give the folder of a run, or of a complete comparison"
        raise RequestError(f"there is no folder {folder}: {meant}")


def _read(folder: Path) -> dict[str, Any]:
    check_exists(folder)
    try:
        record = json.loads((folder / "run.json").read_text("utf-8"))
        if _sound(record):
            return record
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
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


def _target(data: dict[str, Any], folder: Path) -> Target:
    if "target" not in data or "shape" not in data:
        raise RequestError(
            f"{folder} was written by an older fallow, which did not record what is learned: train it again"
        )
    return Target.of(data["target"])


def _build(
    record: dict[str, Any], named: str | None, shape: tuple[int, ...], target: Target, folder: Path
) -> nn.Module:
    """The network of a record: fallow's own by its name there, any other only if the caller names it too."""
    spec = str(record["model"])
    if named is not None and named != spec:
        raise RequestError(f"{folder} trained {spec}, not {named}: name that one")
    if named is None and not models.catalogued(spec):
        again = f"name it too, Predictor(…, model={spec!r}) or --model {spec}, if you trust it" if ":" in spec else ""
        raise RequestError(
            f"{folder} trained {spec}, which is not fallow's own: "
            f"{again or 'in Python, Predictor(…, model=yours) takes it'}"
        )
    with torch.random.fork_rng():
        return models.build(spec, shape=shape, classes=target.outputs, pretrained=False)
