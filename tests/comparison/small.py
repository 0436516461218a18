"""The smallest comparisons that still have everything."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fallow.comparison import Plan, execute
from fallow.comparison.run import Comparison

MODEL = "mlp:hidden=8,8"
SETTINGS: dict[str, Any] = {"generations": 2, "epochs": 1, "batch_size": 16}


def arrays(path: Path, n: int = 60, classes: int = 2, seed: int = 0) -> str:
    """A file of vectors around one centre per class; there is no test part, so each seed carves its own."""
    draw = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = draw.normal(size=(classes, 6))[y] + draw.normal(size=(n, 6))
    np.savez(path, x=x.astype(np.float32), y=y)
    return str(path)


def plan(data: str | list[str], *methods: str, **changes: Any) -> Plan:
    """Two seeds of a small network for two short generations."""
    settings = SETTINGS | changes.pop("settings", {})
    names = [data] if isinstance(data, str) else data
    return Plan.of(**{"data": names, "methods": methods, "models": [MODEL], "seeds": 2, "settings": settings} | changes)


def ran(asked: Plan, out: Path, **options: Any) -> Comparison:
    """The comparison, in this process."""
    return execute(asked, out, **{"workers": 1} | options)


def results(out: Path) -> list[dict[str, str]]:
    """The table of results without the times, which no two runs share."""
    with open(out / "results.csv", newline="") as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def state(out: Path) -> dict[str, tuple[int, str]]:
    """When each file of the runs was written last, and its digest."""
    return {
        str(path.relative_to(out)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in out.glob("runs/**/*")
        if path.is_file()
    }
