"""Run by torchrun in two processes: train by every method, and keep the weights of each process."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from lightning.fabric import Fabric

import fallow
from tests.conftest import small_images, small_tasks
from tests.contract.catalogue import (
    CONTROL_SETTINGS,
    CONTROL_SPECS,
    EXACT,
    MODEL,
    PLAIN,
    SETTINGS,
    SPECS,
    TASK_MODEL,
    TASK_SPECS,
    extras,
    needs,
    task_needs,
)
from tests.control.small import navigation, seen


def main(folder: Path) -> None:
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp", precision="64-true")
    fabric.launch()
    images = small_images(n=95)  # an odd number: the processes hold unequal shares of some batches
    for number, spec in enumerate(SPECS):
        more = extras(number) | needs(spec)
        result = fallow.fit(MODEL, images, spec, engine=fabric, **SETTINGS, **EXACT, **more)
        torch.save(result.network.state_dict(), folder / f"{number}-{fabric.global_rank}.pt")
    tasks = small_tasks()
    for number, spec in enumerate(TASK_SPECS):
        how = PLAIN | EXACT | task_needs(spec)
        result = fallow.fewshot(TASK_MODEL, tasks, spec, engine=fabric, **how, meta_batch=5)
        torch.save(
            result.network.state_dict() | {"test": torch.tensor(result.loss)},
            folder / f"tasks-{number}-{fabric.global_rank}.pt",
        )
    for number, spec in enumerate(CONTROL_SPECS):
        acts = fallow.reinforce("mlp:hidden=6", navigation(), spec, engine=fabric, **CONTROL_SETTINGS, **EXACT)
        torch.save(
            acts.network.state_dict() | {"test": torch.tensor(acts.returns()), "seen": seen(acts)},
            folder / f"control-{number}-{fabric.global_rank}.pt",
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
