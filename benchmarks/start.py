"""How long fallow takes to start: seconds of ``fallow --help``, and of importing it beyond torch's own import."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any


def measure(repetitions: int | None = None) -> dict[str, Any]:
    rivals = {
        "torch": [sys.executable, "-c", "import torch"],
        "fallow": [sys.executable, "-c", "import torch, fallow; fallow.fit"],
        "help": [sys.executable, "-m", "fallow", "--help"],
    }
    cpu: dict[str, list[float]] = {name: [] for name in rivals}
    wall: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repetitions or 7):
        for name, command in rivals.items():
            before, began = os.times(), time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            cpu[name].append(spent)
            wall[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(values) for name, values in cpu.items()}
    beyond = [a - b for a, b in zip(cpu["fallow"], cpu["torch"], strict=True)]
    return {
        "ratios": {"import_vs_torch": round(middle["fallow"] / middle["torch"], 3)},
        "seconds": {
            "import fallow, its fit included, beyond torch (CPU)": round(statistics.median(beyond), 3),
            "fallow --help (wall)": round(statistics.median(wall["help"]), 3),
        },
    }
