"""Trackers, against stand-ins of TensorBoard and MLflow that write down what they are told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import fallow
from fallow import RequestError
from fallow.data import Data
from fallow.training.track import Tracker

TINY: dict[str, Any] = {"generations": 2, "epochs": 2, "batch_size": 32}


class SummaryWriter:
    made: list[SummaryWriter] = []

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.scalars, self.open = folder, [], True
        self.made.append(self)

    def add_text(self, name: str, text: str) -> None:
        self.text = text

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.open = False


class MlflowClient:
    made: list[MlflowClient] = []

    def __init__(self, tracking_uri: str) -> None:
        self.uri, self.params, self.metrics, self.ended = tracking_uri, {}, [], None
        self.made.append(self)

    def create_run(self, experiment: str, run_name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id="one"))

    def log_param(self, run: str, key: str, value: Any) -> None:
        self.params[key] = value

    def log_metric(self, run: str, key: str, value: float, step: int) -> None:
        self.metrics.append((key, value, step))

    def set_terminated(self, run: str) -> None:
        self.ended = run


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def expected(history: list[dict[str, Any]]) -> set[tuple[str, float, int]]:
    return {(key, row[key], step) for step, row in enumerate(history, 1) for key in ("train_loss", "val_loss", "lr")}


def test_tensorboard(images: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    tracker = Tracker("tensorboard", tmp_path / "track")
    result = fallow.fit("mlp:hidden=4", images, "llf", observer=tracker, **TINY)
    tracker.close()
    writer = SummaryWriter.made.pop()
    assert expected(result.history) <= set(writer.scalars)
    assert len(writer.scalars) == len(set(writer.scalars))
    assert "method: llf" in writer.text
    assert (writer.folder, writer.open) == (str(tmp_path / "track"), False)


def test_mlflow(images: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "mlflow", MlflowClient=MlflowClient)
    tracker = Tracker("mlflow", tmp_path / "track")
    result = fallow.fit("mlp:hidden=4", images, observer=tracker, **TINY)
    tracker.close()
    client = MlflowClient.made.pop()
    assert expected(result.history) <= set(client.metrics)
    assert (client.params["epochs"], client.ended) == (2, "one")
    assert client.uri == f"sqlite:///{tmp_path / 'track' / 'mlflow.db'}"


def test_the_command_line_resumes_a_tracked_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fallow.cli.main import main

    stand_in(monkeypatch, "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    words = "train synthetic:n_test=16 --train 32 --epochs 1 --generations 1 --model mlp:hidden=4 --track tensorboard"
    for more in ([], ["--resume"]):
        monkeypatch.setattr(sys, "argv", ["fallow", *words.split(), "--out", str(tmp_path / "run"), *more])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
    writer = SummaryWriter.made.pop()
    assert writer.folder == str(tmp_path / "run" / "track")
    assert not writer.open


def test_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(RequestError, match=r"mlflow is not installed: pip install 'fallow\[track\]'"):
        Tracker("mlflow", tmp_path)
    with pytest.raises(RequestError, match="did you mean 'tensorboard'"):
        Tracker("tensorbord", tmp_path)
    assert list(tmp_path.iterdir()) == []
