"""``fewshot``: meta-train a model on tasks, and judge it by new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from fallow.core.errors import RequestError
from fallow.core.method import Method
from fallow.data.tasks import Tasks
from fallow.fitting import Result, fit


def fewshot(
    model: nn.Module | str | None,
    tasks: Tasks,
    method: Method | str = "maml",
    *,
    iterations: int = 30_000,
    meta_batch: int = 4,
    lr: float = 1e-3,
    every: int = 500,
    schedule: str = "constant",
    out: str | Path | None = None,
    **options: Any,
) -> Result:
    """Meta-train by ``iterations`` of Adam on meta-batches of tasks; the options are those of :func:`fallow.fit`.

    Validation is looked at after ``every`` iterations. ``result.model`` is the learner: ``adapt(x, y)`` gives what
    predicts the queries of new tasks.

    >>> from fallow.data.tasks import Sinusoid
    >>> result = fewshot(None, Sinusoid(shots=5, val_tasks=10, test_tasks=10), "maml", iterations=20, every=10)
    >>> result.last["test_loss"] > 0
    True
    """
    if iterations < 1 or every < 1:
        raise RequestError(f"iterations is {iterations} and every {every}: both are whole numbers from 1")
    every = min(every, iterations)
    defaults: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 0.0}  # AdamW without decay is Adam
    return fit(
        model,
        tasks.changed(per_epoch=every),
        method,
        generations=1,
        epochs=-(-iterations // every),
        batch_size=meta_batch,
        lr=lr,
        schedule=schedule,
        out=out,
        test_at_end=True,
        **(defaults | options),
    )
