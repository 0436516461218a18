"""Tables 4.4 to 4.6 of the thesis on implicit meta-learning: what a solver takes, in memory and in time.

fallow reproduce iml-table4.4      a few minutes on one core

As in the thesis, only the call that solves H·x = ∂L_V/∂w is measured, for MLPs of 784-784-10 and 3072-3072-10 with a
decay per weight and 50 examples (random ones: their values do not matter). The memory is the peak of what the call
allocates beyond what was there, in one run; the time the mean of some. The thesis measured on a K80, here it is one
CPU thread: compare rows, not machines. A memory agrees if ours is no more than theirs; times are not judged. The dense
Hessian is not computed: its size is (in float32, as theirs).
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
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fallow.hypergradients import CG, MINRES, Identity, Neumann, Nystrom
from fallow.hypergradients.solution import Solver
from fallow.reproduce.iml_exact import system
from fallow.reproduce.iml_inner import Batch, Learner, Sets
from fallow.reproduce.runs import Runs
from fallow.reproduce.table import Cell, Table, cell

SEEDS = 3  # repetitions of a measurement
IMAGES = 50
INPUTS = {"MNIST": 784, "CIFAR-10": 3072}
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
PAPER: dict[tuple[str, str], float] = {
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
}  # fmt: skip


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


def problem(inputs: int) -> Learner:
    """An MLP as wide as its input, after a few steps."""
    draw = torch.Generator().manual_seed(0)

    def part() -> Batch:
        return torch.rand(IMAGES, inputs, generator=draw), torch.randint(10, (IMAGES,), generator=draw)

    learner = Learner(Sets(part(), part(), part()))
    for _ in range(10):
        learner.step()
    return learner


def run(name: str, seeds: int, data_dir: Path | None, each: Runs) -> Table:
    """Memory and time of every solver on both networks, in one run: another beside it would take its time."""
    at, _ = each(measurements, {("measurements",): [seeds]})
    cells = [Cell(**found) for found in at[("measurements",)]]
    cells.sort(key=lambda c: [*ROWS, "Exact"].index(c.row))  # the rows of both networks together
    vectors = ", ".join(f"{4 * (n * n + 11 * n + 10) / 1e6:.1f} MB for {data}" for data, n in INPUTS.items())
    remarks = [f"One vector of weights has {vectors}. Exact: computed, not measured."]
    return Table(name, "Implicit meta-learning, tables 4.4 to 4.6", cells, unit="MB and ms", remarks=remarks, log=True)


def measurements(folder: Path, repetitions: int) -> list[dict[str, Any]]:
    """All cells, as plain values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a series that diverges takes as long
        return [asdict(found) for data in INPUTS for found in both(data, repetitions)]


def both(data: str, repetitions: int) -> list[Cell]:
    """Memory and time of all solvers on one of the networks."""
    inputs = INPUTS[data]
    A, b = system(problem(inputs))
    A(b)  # warms up
    cells = []
    for row, (solver, products) in ROWS.items():
        if products < LARGE or inputs < max(INPUTS.values()):
            cells += measured(row, data, partial(solver, A, b), repetitions)
    column, size = f"{data}, MB", 4 * len(b) ** 2 / 1e6
    return [*cells, judged(Cell("Exact", column, PAPER["Exact", column], round(size), 0.0, repetitions, None))]


def measured(row: str, data: str, work: Callable[[], object], repetitions: int) -> list[Cell]:
    """Two cells: memory and time."""
    memory, spent = f"{data}, MB", []
    for _ in range(repetitions):
        began = time.process_time()  # of this process: other work on the machine does not count
        work()
        spent.append(1000 * (time.process_time() - began))
    timed = cell(row, f"{data}, ms", PAPER.get((row, f"{data}, ms")), spent, 0)
    timed.agrees = None
    most = Cell(row, memory, PAPER.get((row, memory)), round(peak(work), 2), 0.0, repetitions, None)
    return [judged(most), timed]


def judged(memory: Cell) -> Cell:
    """No more than the thesis' is well; the size of a matrix within 1 %, as it is arithmetic; nothing for nothing."""
    if memory.paper:
        memory.agrees = memory.ours <= 1.01 * memory.paper
    return memory
