"""``fallow compare`` with one worker and with two, and against the same runs in a bare loop.

``two_workers_speedup`` is wall time with one worker over wall time with two (bar: 1.8), the commands from start to
end. ``overhead`` is what a comparison with one worker adds to a script that calls ``fallow.fit`` for the same runs
one after another, as a share (bar: 0.05); what it does besides the runs, trials of augmentations and the winner's last
training, is left out, and its yardsticks count. One repetition takes about eight minutes on two cores.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARGUMENTS = ["digits", "--methods", "llf,ema", "--seeds", "4", "--epochs", "12", "--augment", "none", "--no-refit"]
LOOP = """
import sys
import torch
from fallow import fit
from fallow.comparison.plan import Plan
from fallow.comparison.policy import runs
from fallow.data import load
torch.set_num_threads(1)
plan = Plan(data=("digits",), methods=("llf", "ema"), seeds=4, settings={"epochs": 12, "augment": "none"})
for run in runs(plan, {"digits": load("digits")}, {"digits": ""}):
    asked, seed = run.arguments, run.arguments["seed"]
    data, out = load("digits", seed=seed), f"{sys.argv[1]}/{run.name}"
    fit(asked["model"], data, asked["method"], out=out, test_at_end=True, seed=seed, **asked["settings"])
"""


def measure(repetitions: int | None) -> dict[str, Any]:
    found: dict[str, list[float]] = {"one": [], "two": [], "loop": []}
    for repetition in range(repetitions or 1):
        order = list(found) if repetition % 2 == 0 else list(found)[::-1]
        for name in order:
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(_seconds(name, Path(folder) / "out"))
    speedup = [one / two for one, two in zip(found["one"], found["two"], strict=True)]
    overhead = [one / loop - 1 for one, loop in zip(found["one"], found["loop"], strict=True)]
    return {
        "ratios": {
            "two_workers_speedup": round(statistics.median(speedup), 4),
            "overhead": round(statistics.median(overhead), 4),
        },
        "seconds": {name: round(statistics.median(values), 2) for name, values in found.items()},
    }


def _seconds(name: str, out: Path) -> float:
    command = [sys.executable, "-c", LOOP, str(out)]
    if name != "loop":
        workers = {"one": "1", "two": "2"}[name]
        command = [sys.executable, "-m", "fallow", "compare", *ARGUMENTS, "--workers", workers, "--out", str(out)]
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return time.perf_counter() - began
