"""Watch a training in TensorBoard or MLflow: an observer that hands every epoch on."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.core.context import Context

KINDS = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}  # and the module that writes
DATABASE = "mlflow.db"  # MLflow no longer writes plain files


class Tracker:
    """An observer of ``fit`` that writes the metrics of every epoch for TensorBoard or MLflow into a folder.

    Look at them with ``tensorboard --logdir FOLDER`` or ``mlflow ui --backend-store-uri
    sqlite:///FOLDER/mlflow.db``. A resumed training is written from its first epoch on.

    >>> tracker = Tracker("tensorboard", "runs/mine/track")  # doctest: +SKIP
    >>> fallow.fit("mlp", "digits", observer=tracker)  # doctest: +SKIP
    """

    def __init__(self, kind: str, folder: str | Path) -> None:
        if kind not in KINDS:
            raise unknown("tracker", kind, KINDS)
        try:
            self.module = import_module(KINDS[kind])
        except ImportError as error:
            raise RequestError(f"{kind} is not installed: pip install 'fallow[track]'") from error
        self.folder = Path(folder)
        self.writer: Any = None  # made when there is something to write
        self.epochs = 0  # that are written
        self.make = {"tensorboard": _TensorBoard, "mlflow": _MLflow}[kind]

    def __call__(self, ctx: Context) -> None:
        """Write the epochs that are new."""
        if not ctx.engine.is_global_zero or len(ctx.history) == self.epochs:
            return
        if self.writer is None:
            self.writer = self.make(self.module, self.folder, {"method": str(ctx.method)} | ctx.settings.describe())
        for row in ctx.history[self.epochs :]:
            self.epochs += 1
            self.writer.write(numbers(row), self.epochs)

    def close(self) -> None:
        """Flush what is written, and end."""
        if self.writer is not None:
            self.writer.close()


def numbers(row: dict[str, Any], above: str = "") -> dict[str, float]:
    """The numbers of an epoch by name; those inside of others by a path.

    >>> numbers({"val_loss": 0.5, "decay": {"head": 0.01}, "phase": "relearn"})
    {'val_loss': 0.5, 'decay/head': 0.01}
    """
    found: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= numbers(value, f"{above}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[above + key] = float(value)
    return found


class _TensorBoard:
    def __init__(self, module: Any, folder: Path, settings: dict[str, Any]) -> None:
        self.writer = module.SummaryWriter(str(folder), purge_step=0)  # hides what was written before
        self.writer.add_text("settings", "\n".join(f"    {key}: {value}" for key, value in settings.items()))

    def write(self, found: dict[str, float], epoch: int) -> None:
        for name, value in found.items():
            self.writer.add_scalar(name, value, epoch)

    def close(self) -> None:
        self.writer.close()


class _MLflow:
    def __init__(self, module: Any, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of every table that it makes
        self.client = module.MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / DATABASE}")
        self.run = self.client.create_run("0", run_name=folder.resolve().parent.name).info.run_id
        for key, value in settings.items():
            self.client.log_param(self.run, key, value)

    def write(self, found: dict[str, float], epoch: int) -> None:
        for name, value in found.items():
            self.client.log_metric(self.run, name, value, step=epoch)

    def close(self) -> None:
        self.client.set_terminated(self.run)
