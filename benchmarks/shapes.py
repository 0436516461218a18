"""What κ of the 64×8 layer costs: a step of FAM on the paper's autoencoder of shapes, 64³ voxels, against a plain one.

``probe`` estimates κ by one direction, ``forward`` is exact by eight, ``tail`` exact by products with a Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.timing import Work, compare, interleave
from fallow.core import loop
from fallow.data import Data, Examples
from fallow.data.targets import Dense
from fallow.training.prepare import prepare

MODEL, SIDE, BATCH = "autoencoder3d", 64, 1
FAM = "fam:layer=decode.linear,form={}"
RIVALS = {"plain": "long", "sam": "sam"} | {form: FAM.format(form) for form in ("probe", "forward", "tail")}


def volumes(count: int) -> Data:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 1, SIDE, SIDE, SIDE), generator=draw).to(torch.uint8)
    held = Examples(x, (x[:, 0] > 230).long())
    return Data("noise", held, None, None, ["0", "1"], tuple(x.shape[1:]), target=Dense(["0", "1"]))


def step(method: str) -> Callable[[], Work]:
    """A rival that takes one step; what comes before it is not timed."""

    def get_ready() -> Work:
        ctx = prepare(MODEL, volumes(BATCH), method, loss="dice", epochs=1, generations=1, batch_size=BATCH, lr=1e-4,
                      optimizer="adamw", augment="none", evaluate_every=2)  # fmt: skip

        def work() -> int:
            loop.run(ctx)
            return 1

        return work

    return get_ready


def measure(repetitions: int | None = None) -> dict[str, Any]:
    times = interleave({name: step(method) for name, method in RIVALS.items()}, repetitions or 5)
    return compare(times, {name: (name, "plain") for name in RIVALS if name != "plain"})
