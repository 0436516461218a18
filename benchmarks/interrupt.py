"""SIGKILL the parent of ``fallow compare`` at random moments, then give the same command again.

``ratios`` gives the share of comparisons that end with the results of an undisturbed one to the bit, without a run
done twice; it must be 1. Every finished run must be left alone (its files keep their times), and a run that was
half done must go on from its checkpoint: ``resumed`` counts those.
"""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARGUMENTS = ["compare", "digits", "--methods", "llf,ema", "--seeds", "2", "--epochs", "4", "--train", "400"]


def command(out: Path) -> list[str]:
    return [sys.executable, "-m", "fallow", *ARGUMENTS, "--out", str(out)]


def results(out: Path) -> list[dict[str, str]]:
    """The table of results without the times, which no two runs share."""
    with open(out / "results.csv", newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def finished(out: Path) -> dict[str, int]:
    """When each finished run ended."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("runs/*/result.json")}


def measure(repetitions: int | None) -> dict[str, Any]:
    kills = repetitions or 10
    moment = random.Random(0)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        began = time.monotonic()
        subprocess.run(command(whole), check=True, capture_output=True, env=environment)
        length = time.monotonic() - began
        wanted, same, half, done_before = results(whole), 0, 0, 0
        for i in range(kills):
            out = Path(folder) / str(i)
            child = subprocess.Popen(
                command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
            )
            time.sleep(moment.uniform(0.1, 0.95) * length)
            child.send_signal(signal.SIGKILL)
            child.wait()
            before = finished(out)
            half += len(list(out.glob("runs/*/checkpoint"))) - len(before)
            done_before += len(before)
            subprocess.run(command(out), check=True, capture_output=True, env=environment)
            after = finished(out)
            same += results(out) == wanted and all(after[name] == when for name, when in before.items())
    counts = {"kills": kills, "runs half done": half, "runs done": done_before}
    return {"ratios": {"same_results": same / kills}, "counts": counts}
