"""SIGKILL the parent of ``fallow tune``, ``semi``, ``reproduce`` and ``compare`` at random moments, then repeat.

``ratios`` gives the share of commands that end with the results of an undisturbed one, without a run done twice; it
must be 1. Times apart, the results must be the same to the bit, and every run that had ended must be left alone (its
files keep their times). ``counts`` tells how many runs were half done and how many were done when a command was
killed: a moment counts from the making of the folder, since before it there is nothing to lose.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
LEARNED = "confidence:ratio=2,warmup=10,threshold=0.5"
ARGUMENTS = {
    "tune": "tune digits --train 400 --model mlp:hidden=64 --epochs 20 --grid 6 --seeds 2",
    "semi": f"semi digits --labels 40 --val 60 --epochs 4 --steps 25 --ood-classes 8,9 --method {LEARNED} --controls",
    "reproduce": "reproduce lw-table1 --seeds 6",
    "compare": "compare digits --methods llf,ema --seeds 2 --epochs 4 --train 400",
    "race": "compare digits --methods ema,dropout --models mlp:hidden=16 --seeds 8 --epochs 2 --train 200 --tune 2 "
    "--labels --same 3",
}
KILLS = {"race": 10}  # of each other verb half as many
TIMES = ("seconds", "out", "file", "command")  # what no two folders share


def table(out: Path) -> Any:
    """What a comparison found."""
    with open(out / "results.csv", newline="") as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def plain(name: str) -> Callable[[Path], Any]:
    """What stands in a file of JSON, but for the times."""

    def read(out: Path) -> Any:
        def without(values: dict[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in values.items() if key not in TIMES}

        return json.loads((out / name).read_text("utf-8"), object_hook=without)

    return read


RESULTS = {
    "tune": plain("tuned.json"),
    "semi": plain("study.json"),
    "reproduce": plain("lw-table1.json"),
    "compare": table,
    "race": table,
}


def started(verb: str, out: Path) -> subprocess.Popen:
    """The command, from the moment when it has made its folder."""
    words = [sys.executable, "-m", "fallow", *ARGUMENTS[verb].split(), "--out", str(out)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    while child.poll() is None and not (out / "experiment.db").exists():
        time.sleep(0.01)
    return child


def ended(out: Path) -> dict[str, int]:
    """When each run that is done ended."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("runs/*/outcome.json")}


def measure(repetitions: int | None) -> dict[str, Any]:
    moment = random.Random(0)
    ratios, half, done = {}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for verb, results in RESULTS.items():
            kills = repetitions or KILLS.get(verb, 5)
            whole = started(verb, Path(folder, verb))
            began = time.monotonic()
            assert whole.wait() == 0, f"{verb} fails by itself"
            length, same = time.monotonic() - began, 0
            for i in range(kills):
                out = Path(folder, f"{verb}-{i}")
                child = started(verb, out)
                time.sleep(moment.uniform(0.0, 0.95) * length)
                child.send_signal(signal.SIGKILL)
                child.wait()
                before = ended(out)
                half += len(list(out.glob("runs/*"))) - len(before)
                done += len(before)
                again = started(verb, out).wait()
                after = ended(out)
                untouched = all(after[name] == when for name, when in before.items())
                same += again == 0 and untouched and results(out) == results(Path(folder, verb))
                print(f"{verb} {i}: {len(before)} of {len(after)} runs were done, {same} well", file=sys.stderr)
            ratios[verb] = same / kills
    return {"ratios": ratios, "counts": {"runs half done": half, "runs done": done}}
