"""Tables 4.4 to 4.6, 4.9 and 4.10 of the thesis on implicit meta-learning: what a solver takes, in memory and in time.

fallow reproduce iml-table4.4      a decay per weight, tables 4.4 to 4.6; a few minutes on one core
fallow reproduce iml-table4.9      a decay per layer, tables 4.9 and 4.10

As in the thesis, memory and time are of the call that solves H·x = ∂L_V/∂w, for MLPs of 784-784-10 and 3072-3072-10:
with a decay per weight and 50 examples, or one per layer and 500 (random ones: their values do not matter). The memory
is the peak of what the call allocates beyond what was there, in one run; the time the mean of some. An epoch is the
thesis' word for the steps between two meta-updates and a whole meta-update: 50 steps of batches of 32, or 500 of 128,
counted by ten of them; T1-T2 has a meta-update after every step. The thesis measured on a K80, here it is one CPU
thread: compare rows, not machines. A memory agrees if ours is no more than theirs; times are not judged. The dense
Hessian is not computed: its size is (in float32, as theirs). When the validation accuracy is best (the convergence
epoch of tables 4.5, 4.6 and 4.10) is a column of iml-table4.1, 4.2 and 4.8, which train.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from fallow.hypergradients import CG, MINRES, Identity, Neumann, Nystrom
from fallow.hypergradients.solution import Solver
from fallow.reproduce.iml_exact import system
from fallow.reproduce.iml_inner import Batch, Bilevel, Sets
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table, cell

SEEDS = 3  # repetitions of a measurement
INPUTS = {"MNIST": 784, "CIFAR-10": 3072}
TIMED = 10  # steps
LARGE = 50  # products that the larger network is spared
ROWS: dict[str, tuple[Solver, int]] = {  # and its products; with ρ = 2 CG uses them all on both networks
    "Identity": (Identity(), 0),
    "Neumann (3)": (Neumann(3, 0.1), 3),
    "Neumann (10)": (Neumann(10, 0.1), 10),
    "Neumann (50)": (Neumann(50, 0.1), 50),
    "CG (3), ρ = 2": (CG(3, 2.0), 3),
    "CG (10), ρ = 2": (CG(10, 2.0), 10),
    "CG (10), ρ auto": (CG(10), 10),
    "MINRES (10), ρ auto": (MINRES(10), 10),
    "Nyström (10), ρ = 2": (Nystrom(10, 2.0), 10),
}
T1T2 = "T1-T2"
WEIGHT: dict[tuple[str, str], float] = {
    ("Identity", "MNIST, MB"): 0.0, ("Identity", "CIFAR-10, MB"): 0.0,
    ("Identity", "MNIST, ms"): 0.2, ("Identity", "CIFAR-10, ms"): 0.0,
    ("Neumann (3)", "MNIST, MB"): 58.35, ("Neumann (3)", "CIFAR-10, MB"): 875.0,
    ("Neumann (3)", "MNIST, ms"): 5.18, ("Neumann (3)", "CIFAR-10, ms"): 22.98,
    ("Neumann (10)", "MNIST, MB"): 58.35, ("Neumann (10)", "CIFAR-10, MB"): 875.0,
    ("Neumann (10)", "MNIST, ms"): 16.45, ("Neumann (10)", "CIFAR-10, ms"): 76.67,
    ("Neumann (50)", "MNIST, MB"): 58.35, ("Neumann (50)", "MNIST, ms"): 80.03,
    ("CG (3), ρ = 2", "MNIST, MB"): 73.18, ("CG (3), ρ = 2", "CIFAR-10, MB"): 1101.0,
    ("CG (3), ρ = 2", "MNIST, ms"): 16.6, ("CG (3), ρ = 2", "CIFAR-10, ms"): 97.23,
    ("CG (10), ρ = 2", "MNIST, MB"): 73.18, ("CG (10), ρ = 2", "CIFAR-10, MB"): 1101.0,
    ("CG (10), ρ = 2", "MNIST, ms"): 49.86, ("CG (10), ρ = 2", "CIFAR-10, ms"): 307.33,
    ("Exact", "MNIST, MB"): 1554e3, ("Exact", "CIFAR-10, MB"): 358e6,
    ("Identity", "MNIST, epoch ms"): 175.03, ("Identity", "CIFAR-10, epoch ms"): 774.08,
    ("Neumann (3)", "MNIST, epoch ms"): 186.34, ("Neumann (3)", "CIFAR-10, epoch ms"): 797.01,
    ("Neumann (10)", "MNIST, epoch ms"): 191.01, ("Neumann (10)", "CIFAR-10, epoch ms"): 850.93,
    ("Neumann (50)", "MNIST, epoch ms"): 248.78,
    ("CG (3), ρ = 2", "MNIST, epoch ms"): 164.26, ("CG (3), ρ = 2", "CIFAR-10, epoch ms"): 870.17,
    ("CG (10), ρ = 2", "MNIST, epoch ms"): 193.15, ("CG (10), ρ = 2", "CIFAR-10, epoch ms"): 1089.78,
    (T1T2, "MNIST, epoch ms"): 464.0, (T1T2, "CIFAR-10, epoch ms"): 2124.5,
}  # fmt: skip
LAYER: dict[tuple[str, str], float] = {
    ("Identity", "MNIST, MB"): 0.0, ("Identity", "CIFAR-10, MB"): 0.0,
    ("Neumann (3)", "MNIST, MB"): 1600.0, ("Neumann (3)", "CIFAR-10, MB"): 5600.0,
    ("Neumann (10)", "MNIST, MB"): 1600.0, ("Neumann (10)", "CIFAR-10, MB"): 5600.0,
    ("CG (3), ρ = 2", "MNIST, MB"): 1400.0, ("CG (3), ρ = 2", "CIFAR-10, MB"): 5200.0,
    ("CG (10), ρ = 2", "MNIST, MB"): 1400.0, ("CG (10), ρ = 2", "CIFAR-10, MB"): 5200.0,
    ("Identity", "CIFAR-10, ms"): 0.0, ("Identity", "CIFAR-10, epoch ms"): 9860.0,
    ("Neumann (3)", "CIFAR-10, ms"): 3100.0, ("Neumann (3)", "CIFAR-10, epoch ms"): 12990.0,
    ("Neumann (10)", "CIFAR-10, ms"): 10360.0, ("Neumann (10)", "CIFAR-10, epoch ms"): 20250.0,
    ("CG (3), ρ = 2", "CIFAR-10, ms"): 9650.0, ("CG (3), ρ = 2", "CIFAR-10, epoch ms"): 18790.0,
    ("CG (10), ρ = 2", "CIFAR-10, ms"): 26840.0, ("CG (10), ρ = 2", "CIFAR-10, epoch ms"): 35780.0,
    (T1T2, "CIFAR-10, epoch ms"): 55000.0,
}  # fmt: skip


class Setup(NamedTuple):
    """What is measured: the decays, the examples of a meta-update, and the steps and the batch of an epoch."""

    tables: str
    per: str
    images: int
    batch: int
    steps: int
    paper: dict[tuple[str, str], float]


PLANS = {
    "iml-table4.4": Setup("tables 4.4 to 4.6", "weight", 50, 32, 50, WEIGHT),
    "iml-table4.9": Setup("tables 4.9 and 4.10", "layer", 500, 128, 500, LAYER),
}


def peak(work: Callable[[], object]) -> float:
    """The most that is allocated at one time, in MB, beyond what was there; by torch's own record of allocations."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = work()
    del kept
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        record.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [e for e in events if e.get("name") == "[memory]"]
    held = most = 0
    for event in sorted(changes, key=lambda e: e["args"]["Ev Idx"]):
        held += event["args"]["Bytes"]
        most = max(most, held)
    return most / 1e6


def problem(inputs: int, plan: Setup) -> Bilevel:
    """An MLP as wide as its input, after a few steps."""
    draw = torch.Generator().manual_seed(0)

    def part() -> Batch:
        return torch.rand(plan.images, inputs, generator=draw), torch.randint(10, (plan.images,), generator=draw)

    learner = Bilevel(Sets(part(), part(), part()), per=plan.per, batch=min(plan.batch, plan.images))
    few_steps(learner)
    return learner


def few_steps(learner: Bilevel) -> None:
    """Ten."""
    for _ in range(TIMED):
        learner.step()


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Memory and time of every solver on both networks, in one run: another beside it would take its time."""
    at, _ = each(measurements, {("measurements",): [name, len(seeds)]})
    cells = [Cell(**found) for found in at[("measurements",)]]
    cells.sort(key=lambda c: [*ROWS, T1T2, "Exact"].index(c.row))  # the rows of both networks together
    vectors = ", ".join(f"{4 * (n * n + 11 * n + 10) / 1e6:.1f} MB for {data}" for data, n in INPUTS.items())
    remarks = [f"One vector of weights has {vectors}. Exact: computed, not measured."]
    title = f"Implicit meta-learning, {PLANS[name].tables}"
    return Table(name, title, cells, unit="MB and ms", remarks=remarks, log=True)


def measurements(folder: Path, table: str, repetitions: int) -> list[dict[str, Any]]:
    """All cells, as plain values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a series that diverges takes as long
        return [asdict(found) for data in INPUTS for found in both(data, PLANS[table], repetitions)]


def both(data: str, plan: Setup, repetitions: int) -> list[Cell]:
    """Memory and time of all solvers on one of the networks."""
    inputs = INPUTS[data]
    learner = problem(inputs, plan)
    A, b = system(learner)
    A(b)  # warms up
    solved = {
        row: partial(solver, A, b)
        for row, (solver, products) in ROWS.items()
        if products < LARGE or inputs < max(INPUTS.values())
    }
    spent = {row: timed(work, repetitions) for row, work in solved.items()}
    most = {row: peak(work) for row, work in solved.items()} | {"Exact": 4 * len(b) ** 2 / 1e6}
    steps = [plan.steps / TIMED * t for t in timed(partial(few_steps, learner), repetitions)]
    rest = timed(lambda: learner.meta_update(Identity()), repetitions)  # of a meta-update, but for solving
    epochs = {row: [a + b + c for a, b, c in zip(steps, rest, each, strict=True)] for row, each in spent.items()}
    epochs[T1T2] = [a + plan.steps * b for a, b in zip(steps, rest, strict=True)]
    cells = [shown(plan, row, f"{data}, MB", [megabytes] * repetitions) for row, megabytes in most.items()]
    cells += [shown(plan, row, f"{data}, ms", times) for row, times in spent.items()]
    return cells + [shown(plan, row, f"{data}, epoch ms", times) for row, times in epochs.items()]


def timed(work: Callable[[], object], repetitions: int) -> list[float]:
    """Milliseconds of this process: other work on the machine does not count."""
    spent = []
    for _ in range(repetitions):
        began = time.process_time()
        work()
        spent.append(1000 * (time.process_time() - began))
    return spent


def shown(plan: Setup, row: str, column: str, values: list[float]) -> Cell:
    """A memory agrees where it is no more than the thesis', which is nothing for nothing; times are not judged."""
    found = cell(row, column, plan.paper.get((row, column)), values, 0)
    found.agrees = found.ours <= 1.01 * found.paper if found.paper and column.endswith("MB") else None
    return found
