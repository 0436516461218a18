"""FAM's figures 4 and 5: what the regulariser of one layer costs, against the layer's size.

fallow reproduce fam-cost [--out DIR]      two minutes on two cores

The paper computes the full Hessian of a 64-neuron layer, or estimates its trace, and shows both growing with the layer.
Here every form computes κ and its gradient with respect to all parameters, for a 64×m layer before ReLU and a linear
head of 10 classes, batch 64, in CPU time of one thread. The dense form stops where it would take more than
``PATIENCE`` seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.flatness import relative_flatness
from fallow.reproduce.curves import Curves
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import cell

SEEDS = 5  # repetitions of a measurement
OUTPUTS, CLASSES, BATCH = 64, 10, 64
INPUTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
FORMS = ("loss alone", "closed", "gauss-newton", "tail", "probe", "κ̂, 10 probes", "dense")
PATIENCE = 3.0


def times(folder: Path, repetitions: int) -> list[tuple[str, int, list[float]]]:
    """Form, size and milliseconds of CPU time; the forms in turn: what else the machine does meets them all."""
    found: dict[tuple[str, int], list[float]] = {}
    over: set[str] = set()
    for size in INPUTS:
        work = {form: _work(form, size) for form in FORMS if form not in over}
        for repetition in range(-1, repetitions):  # the first warms up
            for form, once in work.items():
                if form in over:
                    continue
                if form != "dense":
                    once()  # what a dense Hessian leaves cold is not the cost of whatever comes next
                began = time.process_time()
                once()
                spent = time.process_time() - began
                if repetition >= 0:
                    found.setdefault((form, size), []).append(1000 * spent)
                if spent > PATIENCE:
                    found.setdefault((form, size), []).append(1000 * spent)
                    over.add(form)
    return [(form, size, spent) for (form, size), spent in found.items()]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Curves:
    """Time every form at every size, in one run: another beside it would take its time."""
    at, _ = each(times, {("times",): [len(seeds)]})
    measured = {(form, size): spent for form, size, spent in at[("times",)]}
    cells = [
        cell(form, f"{OUTPUTS}×{size}", None, measured[form, size], 0)
        for form in FORMS
        for size in INPUTS
        if (form, size) in measured
    ]
    last = max(size for form, size in measured if form == "dense")
    ratio = statistics.median_high(measured["dense", last]) / statistics.median_high(measured["closed", last])
    remarks = [
        f"Loss, κ and the gradient of both; {OUTPUTS} neurons, ReLU, {CLASSES} classes, batch {BATCH}, one thread.",
        f"At {OUTPUTS}×{last} the dense Hessian takes {ratio:,.0f} times as long as the closed form.",
    ]
    return Curves(
        name, "FAM, figures 4 and 5", cells, unit="ms", remarks=remarks, along="inputs of the layer", log_x=True,
        log_y=True,
    )  # fmt: skip


def _work(form: str, size: int) -> Callable[[], None]:
    draw = torch.Generator().manual_seed(size)
    model = nn.Sequential(nn.Linear(size, OUTPUTS), nn.ReLU(), nn.Linear(OUTPUTS, CLASSES))
    x, y = torch.randn(BATCH, size, generator=draw), torch.randint(CLASSES, (BATCH,), generator=draw)
    parameters = list(model.parameters())

    def flatness() -> Tensor:
        if form == "κ̂, 10 probes":  # as the paper has it: the trace by Hutchinson's method
            return relative_flatness(model, "0", x, y, form="probe", simplified=True, probes=10, generator=draw)
        return relative_flatness(model, "0", x, y, form=form, generator=draw)

    def once() -> None:
        loss = functional.cross_entropy(model(x), y)
        if form != "loss alone":
            loss = loss + 0.1 * flatness()
        torch.autograd.grad(loss, parameters)

    return once
