"""A run is a folder: what was asked, what happened, where it stands, what came out."""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fallow.base import files
from fallow.base.errors import RequestError, WorkError
from fallow.base.lock import hold, let_go
from fallow.core import checkpoint

LOCK = "lock"  # held by the process that trains


class RunFolder:
    """The folder of one run.

    ============================  =================================================================
    ``run.json``                  settings, versions, seed, data, partition
    ``metrics.jsonl``             one line an epoch
    ``checkpoint``                where to go on; ``checkpoint.previous`` is the one before
    ``last.safetensors``          the weights after the last epoch
    ``best.safetensors``          the weights that were best on validation
    ``outputs.safetensors``       outputs and targets on validation and test, of the last and the best weights
    ``generation-N.safetensors``  the weights after a generation, if asked for
    ``result.json``               the outcome; there when the run is complete
    ============================  =================================================================
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint"
        self.run = ""  # digest of what identifies the run, once it is open

    def open(self, identity: dict[str, Any], resume: bool, **remarks: Any) -> None:
        """Start a new run here, or make sure that the one to go on with is the same run."""
        plain = json.loads(json.dumps(identity))
        self.run = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
        if self.path.exists() and not self.path.is_dir():
            raise RequestError(f"{self.path} is a file: --out needs a folder")
        known = self.path / "run.json"
        if not known.exists():
            strangers = self.path.is_dir() and [p for p in self.path.iterdir() if p.name != LOCK]
            if strangers and not all(map(files.is_leftover, strangers)):
                raise RequestError(f"{self.path} holds other files and no run: choose an empty or a new folder")
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise WorkError(f"cannot make the folder {self.path}: {error.strerror}") from error
            self._hold()
            files.write_json(known, identity | remarks | {"versions": versions()})
            files.sweep(self.path)
            return
        if not resume:
            raise RequestError(f"{self.path} already holds a run: add --resume to resume it, or choose another --out")
        try:
            stored = json.loads(known.read_text("utf-8"))
            if not isinstance(stored, dict):
                raise ValueError("it holds no settings")
        except (OSError, ValueError) as error:
            raise RequestError(f"{known} cannot be read ({error}): choose another --out") from error
        if difference := _difference(stored, plain):
            raise RequestError(f"{self.path} holds another run: {difference}; choose another --out")
        self._hold()
        files.sweep(self.path)
        if self.result() is None and (drifted := drift(stored.get("versions"), versions())):
            warnings.warn(f"{self.path} began with {drifted}: what follows may differ in its bits", stacklevel=2)

    def _hold(self) -> None:
        hold(self.path / LOCK, f"another process is at work in {self.path}: wait for it, or choose another --out")

    def release(self) -> None:
        """Let another process work here."""
        let_go(self.path / LOCK)

    def record(self) -> dict[str, Any]:
        """What ``run.json`` holds of a run that is done."""
        path = self.path / "run.json"
        try:
            found = json.loads(path.read_text("utf-8"))
            if isinstance(found, dict) and "model" in found:
                return found
            why = "it holds no record"
        except (OSError, ValueError) as error:
            why = str(error)
        raise WorkError(self._damaged(path, why))

    def result(self) -> dict[str, Any] | None:
        """The outcome, when the run is complete."""
        try:
            found = json.loads((self.path / "result.json").read_text("utf-8"))
            return found if isinstance(found["seconds"], float | int) else None
        except (OSError, ValueError, KeyError, TypeError):  # one that is damaged is written again
            return None

    def write_history(self, history: list[dict[str, Any]]) -> None:
        """Make ``metrics.jsonl`` hold just these epochs (a resumed run drops what came after its checkpoint)."""
        files.write(self.path / "metrics.jsonl", "".join(files.dumps(row) + "\n" for row in history).encode())

    def history(self) -> list[dict[str, Any]]:
        """The epochs in ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        try:
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            if all(isinstance(row, dict) for row in rows):
                return rows
            why = "a line holds no epoch"
        except (OSError, ValueError) as error:
            why = str(error)
        raise WorkError(self._damaged(path, why))

    def _damaged(self, path: Path, why: str) -> str:
        return f"{path} is damaged ({why}): delete {self.path}, and the same command trains it again"

    def append(self, row: dict[str, Any]) -> None:
        """Add one epoch to ``metrics.jsonl``."""
        try:
            with open(self.path / "metrics.jsonl", "a") as file:
                file.write(files.dumps(row) + "\n")
        except OSError as error:
            raise WorkError(f"cannot write {self.path / 'metrics.jsonl'}: {error.strerror}") from error

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        checkpoint.save(self.checkpoint, state | {"run": self.run})

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint to go on from, if there is one."""
        previous = self.checkpoint.with_name(self.checkpoint.name + ".previous")
        for path in (self.checkpoint, previous):
            if path.is_dir():
                raise RequestError(f"{path} is a folder: delete it, and repeat the command")
        if not self.checkpoint.exists() and not previous.exists():
            return None
        try:
            state = checkpoint.load(self.checkpoint)
        except RequestError:
            if not previous.exists():
                raise
            state = checkpoint.load(previous)  # a little is trained again, to the same bits
            previous.replace(self.checkpoint)
        if self.run and state.get("run") != self.run:  # only the first process has opened the folder
            raise RequestError(
                f"{self.checkpoint} belongs to another run than run.json: delete it to start this run again"
            )
        return state

    def save_weights(self, name: str, state: dict[str, Tensor]) -> None:
        """Keep a model's weights as ``NAME.safetensors``."""
        plain = {key: value.detach().cpu().contiguous().clone() for key, value in state.items()}
        files.write(self.path / f"{name}.safetensors", safetensors.torch.save(plain))

    def save_outputs(self, outputs: dict[str, Tensor]) -> None:
        """Keep outputs and targets: every metric, ensemble or test can be had from them without training again."""
        if outputs:
            kept = {name: tensor.contiguous().clone() for name, tensor in outputs.items()}
            files.write(self.path / "outputs.safetensors", safetensors.torch.save(kept))

    def outputs(self) -> dict[str, Tensor]:
        """``val_last``, ``test_best``, … with ``val_y`` and ``test_y``; empty where none were kept."""
        path = self.path / "outputs.safetensors"
        if not path.exists():
            return {}
        try:
            found = safetensors.torch.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise WorkError(self._damaged(path, str(error))) from error
        for name in found:
            part, _, what = name.partition("_")
            y = found.get(f"{part}_y")
            if what not in ("last", "best", "y") or y is None or len(found[name]) != len(y):
                raise WorkError(self._damaged(path, f"it holds {name}"))
        return found

    def thin(self, *, weights: bool = True) -> None:
        """Delete the checkpoints of a run that nobody will resume; without ``weights`` those and the outputs, too."""
        for pattern in ("checkpoint*", *(() if weights else ("*.safetensors",))):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the outcome: the last thing that a run does."""
        files.write_json(self.path / "result.json", result)


def versions() -> dict[str, Any]:
    """What the bits of a run depend on besides its settings."""
    names = ("fallow", "torch", "numpy")
    found = {name: metadata.version(name) for name in names}
    return found | {"python": platform.python_version(), "threads": torch.get_num_threads()}


def drift(stored: Any, now: dict[str, Any]) -> str:
    """What has changed of what bits depend on, in words.

    >>> drift({"torch": "2.12.0", "numpy": "2.4.1", "threads": 4}, {"torch": "2.13.0", "numpy": "2.4.1", "threads": 1})
    'torch 2.12.0 (now 2.13.0), threads 4 (now 1)'
    """
    known = stored if isinstance(stored, dict) else {}
    return ", ".join(f"{name} {known[name]} (now {new})" for name, new in now.items() if known.get(name, new) != new)


def _difference(stored: Any, asked: Any, where: str = "") -> str:
    """The first entry of ``asked`` that is stored otherwise, in words."""
    if isinstance(stored, dict) and isinstance(asked, dict):
        for key, value in asked.items():
            if difference := _difference(stored.get(key), value, f"{where}{'.' if where else ''}{key}"):
                return difference
        return ""
    verb = "are" if where in ("settings", "method_settings", "weights") else "is"
    return "" if stored == asked else f"its {where} {verb} {stored!r}, not {asked!r}"
