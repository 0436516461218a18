"""Interleaved timing: noise of a shared machine falls on all rivals alike, so ratios stay true."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[], int]


def interleave(rivals: dict[str, Callable[[], Work]], repetitions: int) -> dict[str, dict[str, list[float]]]:
    """Time each rival once per repetition, in turn, on one thread.

    A rival prepares, untimed, and gives its work, which returns how many units (steps) it did; a first,
    unmeasured round warms up. Gives CPU and wall microseconds per unit for every repetition.
    """
    torch.set_num_threads(1)
    for rival in rivals.values():
        rival()()
    times: dict[str, dict[str, list[float]]] = {name: {"cpu": [], "wall": []} for name in rivals}
    for repetition in range(repetitions):
        order = list(rivals) if repetition % 2 == 0 else list(rivals)[::-1]  # no rival always comes first
        for name in order:
            work = rivals[name]()
            cpu, wall = time.process_time(), time.perf_counter()
            units = work()
            times[name]["cpu"].append((time.process_time() - cpu) / units * 1e6)
            times[name]["wall"].append((time.perf_counter() - wall) / units * 1e6)
    return times


def compare(times: dict[str, dict[str, list[float]]], pairs: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """The median over repetitions of the ratio of CPU times, with the middle half, and the times themselves."""
    ratios, spread = {}, {}
    for name, (mine, theirs) in pairs.items():
        each = [a / b for a, b in zip(times[mine]["cpu"], times[theirs]["cpu"], strict=True)]
        low, middle, high = statistics.quantiles(each, n=4)
        ratios[name], spread[name] = round(middle, 4), (round(low, 4), round(high, 4))
    details = {
        name: {clock: round(statistics.median(values), 1) for clock, values in both.items()}
        for name, both in times.items()
    }
    return {"ratios": ratios, "spread": spread, "microseconds": details}
