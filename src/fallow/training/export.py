"""A trained model as one file for other programs: torch.export's, or ONNX, with everything inside that it needs.

The graph takes a batch of any size of raw examples (bytes for pictures) and gives answers: probabilities of classes,
labels or pixels, or numbers in their own units. Scaling, resizing and temperature are in it; the names of classes and
what an example looks like are in its metadata.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError, WorkError, first_line, unknown
from fallow.base.files import dumps, write
from fallow.data.normalise import normalise, resized
from fallow.data.tables import DataTable
from fallow.data.targets import Target
from fallow.models.scaled import Scaled
from fallow.training.predict import Predictor

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
OPSET = 20


class Answers(nn.Module):
    """From raw examples to answers: what :class:`fallow.Predictor` computes, as one module without host transfers."""

    rows: Tensor  # where inputs are resized
    columns: Tensor
    mean: Tensor  # of numbers
    std: Tensor

    def __init__(self, scaled: Scaled, target: Target, temperature: float | None, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scaled, self.kind, self.temperature = scaled, target.kind, temperature or 1.0
        if scaled.size is not None and len(shape) == 3 and shape[1:] != (scaled.size, scaled.size):
            self.register_buffer("rows", _resizing(shape[1], scaled.size))
            self.register_buffer("columns", _resizing(shape[2], scaled.size))
        if target.kind == "numbers":
            self.register_buffer("mean", torch.tensor(target.mean))  # type: ignore[attr-defined]
            self.register_buffer("std", torch.tensor(target.std))  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities, or numbers in their own units."""
        inputs = normalise(x, self.scaled.mean, self.scaled.std)
        if hasattr(self, "rows"):  # two products are bilinear resizing too, and every runtime has them
            inputs = self.rows @ inputs @ self.columns.T
        output = self.scaled.network(inputs) / self.temperature
        if self.kind == "numbers":
            return output.view(-1, len(self.std)) * self.std + self.mean
        return output.sigmoid() if self.kind == "labels" else functional.softmax(output, 1)


def _resizing(side: int, size: int) -> Tensor:
    """The size×side matrix that resizes a row of pixels: what becomes of one pixel at a time.

    >>> torch.equal(_resizing(2, 4) @ torch.tensor([0.0, 4.0]), torch.tensor([0.0, 1.0, 3.0, 4.0]))
    True
    """
    return resized(torch.eye(side).view(side, 1, 1, side), (1, size)).view(side, size).T.contiguous()


def export(
    run: str | Path,
    to: str | Path | None = None,
    *,
    format: str | None = None,
    weights: str = "best",
    model: nn.Module | str | None = None,
) -> Path:
    """Write the model of a run, or the winner of a comparison, as a file that needs no fallow; returns its path.

    ``format`` is "onnx" (extra: export) or "torch", a ``torch.export`` program; by default what the ending of ``to``
    says, else ONNX. Without ``to``, the file is ``model.onnx`` or ``model.pt2`` in the run's folder. ``model`` is for
    networks that are not fallow's own, as for :class:`fallow.Predictor`.

    A model of a table takes its features as :class:`fallow.Predictor` prepares them, since no graph reads text; their
    names, and how they are prepared, are in the metadata.

    >>> import fallow, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = fallow.fit("mlp", "digits", generations=1, epochs=5, out=folder)
    >>> program = torch.export.load(export(folder, format="torch")).module()
    >>> program(fallow.data.load("digits").test.x[:1]).argmax(1)
    tensor([5])
    """
    return written(run, to, format, weights, model)[0]


def written(
    run: str | Path, to: str | Path | None, format: str | None, weights: str, model: nn.Module | str | None
) -> tuple[Path, dict[str, Any]]:
    """The file that was written, and its description."""
    path, chosen = _asked(Path(run), to, format)
    predictor = Predictor(run, weights, model)
    if not isinstance(predictor.scaled, Scaled):
        raise RequestError(
            f"{run} reads texts, and no graph does: use fallow.Predictor, or export its network in Python"
        )
    answers = Answers(predictor.scaled.cpu(), predictor.target, predictor.temperature, predictor.shape)
    answers.eval().requires_grad_(False)
    kind = torch.uint8 if predictor.pictures else torch.float32
    examples = torch.zeros(2, *predictor.shape, dtype=kind)
    about = description(predictor)
    with _quiet():
        program = exported(answers, examples)
        content = _onnx(program, examples, about) if chosen == "onnx" else _torch(program, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, content)
    return path, about


def exported(answers: Answers, examples: Tensor) -> torch.export.ExportedProgram:
    """The graph, for batches of any size."""
    try:
        return torch.export.export(answers, (examples,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False)
    except Exception as error:
        raise WorkError(f"torch cannot export this network: {first_line(error)}") from error


def description(predictor: Predictor) -> dict[str, Any]:
    """What a reader of the file must know: how an example looks, and what the numbers of an answer mean."""
    kind, table = predictor.target.kind, predictor.table
    numbers = "numbers as the data hold them" if table is None else "encoded features of a table's rows"
    found = {
        "input": "bytes, 0 to 255" if predictor.pictures else numbers,
        "shape": list(predictor.shape),
        "output": "numbers in their own units" if kind == "numbers" else "probabilities",
        "kind": kind,
        "names": list(predictor.target.names),
    }
    return found | ({"features": features(table), "table": table.describe()} if table is not None else {})


def features(table: DataTable) -> list[str]:
    """What the features of an encoded row are, in their order: numbers, categories, then what is missing.

    >>> table, _ = DataTable.of_cells({"ward": ["a", "b", "a"], "age": ["20", "30", "40"]})
    >>> features(table)
    ['age', 'ward=a', 'ward=b']
    """
    numbers = [column.name for column in table.columns if not column.categories]
    chosen = [f"{column.name}={category}" for column in table.columns for category in column.categories]
    return numbers + chosen + [f"{column.name} is missing" for column in table.columns if column.gaps]


def _asked(run: Path, to: str | Path | None, format: str | None) -> tuple[Path, str]:
    """Where to write, and in which format."""
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    ending = Path(to).suffix if to is not None else ""
    of_ending = next((name for name, suffix in FORMATS.items() if suffix == ending), None)
    if to is not None and of_ending is None:
        raise RequestError(f"{to} should end in {' or '.join(FORMATS.values())}")
    if format is not None and of_ending not in (None, format):
        raise RequestError(f"{to} ends in {ending}: {format} files end in {FORMATS[format]}")
    chosen = format or of_ending or "onnx"
    if chosen == "onnx" and not all(map(find_spec, ("onnx", "onnxscript"))):
        raise RequestError("ONNX needs the extra export: pip install 'fallow[export]', or take --format torch")
    return Path(to) if to is not None else run / f"model{FORMATS[chosen]}", chosen


def _torch(program: torch.export.ExportedProgram, about: dict[str, Any]) -> bytes:
    kept = io.BytesIO()
    torch.export.save(program, kept, extra_files={"fallow.json": dumps(about)})
    return kept.getvalue()


def _onnx(program: torch.export.ExportedProgram, examples: Tensor, about: dict[str, Any]) -> bytes:
    import onnx

    try:
        exported = torch.onnx.export(
            program, (examples,), dynamo=True, input_names=["examples"], output_names=["answers"],
            opset_version=OPSET, verbose=False,
        )  # fmt: skip
    except Exception as error:
        raise WorkError(f"ONNX has no form for this network: {first_line(error)}; take --format torch") from error
    assert exported is not None
    proto = exported.model_proto
    onnx.helper.set_model_props(proto, {key: _text(value) for key, value in about.items()})
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters print graphs, and warn of their own insides and of torchvision, which is not needed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx", "onnxscript", "onnx_ir")]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)
