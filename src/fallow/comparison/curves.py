"""Learning curves: what validation said after every epoch, over the seeds of a method."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fallow.comparison.race import Runner
from fallow.report.shown import Shown

POINTS = 240  # a panel has hardly more pixels


class Point(NamedTuple):
    """An epoch: its number over all generations, and the metric over the seeds."""

    epoch: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """The course of a method."""

    points: list[Point]
    edges: list[int]  # after how many epochs each generation ends, the last included
    seeds: int


def read(folder: Path, outcomes: Sequence[Runner], metric: str = "accuracy") -> Curve | None:
    """The curve of the runs that are done; None where none of them has left one."""
    runs = [run for o in outcomes if o.reason is None and (run := _run(folder / o.folder / "metrics.jsonl", metric))]
    if not runs:
        return None
    lengths: dict[int, int] = {}  # a generation may end early: the longest seed says how wide it is
    for generation, epoch in (position for run in runs for position in run):
        lengths[generation] = max(lengths.get(generation, 0), epoch)
    edges, starts, end = [], {}, 0
    for generation in sorted(lengths):
        starts[generation] = end
        end += lengths[generation]
        edges.append(end)
    points = []
    for generation, epoch in sorted({position for run in runs for position in run}):
        found = [run[generation, epoch] for run in runs if (generation, epoch) in run]
        mean = math.fsum(found) / len(found)
        points.append(Point(starts[generation] + epoch, mean, min(found), max(found)))
    return Curve(_thin(points, edges), edges, len(runs))


def limits(curves: Sequence[Curve], shown: Shown) -> tuple[float, float]:
    """The values worth the room: the first steep epochs would leave none for what matters."""
    means = sorted(point.mean for curve in curves for point in curve.points)
    steep = len(means) // 8
    low, high = min(p.low for curve in curves for p in curve.points), max(p.high for c in curves for p in c.points)
    if shown.higher:
        low = min(means[steep], *(curve.points[-1].low for curve in curves))
    else:
        high = max(means[-1 - steep], *(curve.points[-1].high for curve in curves))
    pad = max(0.04 * (high - low), 0.004 if shown.share else 0.0) or 1.0
    return (max(0.0, low - pad), min(1.0, high + pad)) if shown.share else (low - pad, high + pad)


def _run(path: Path, metric: str) -> dict[tuple[int, int], float]:
    """The metric by generation and epoch, both from 1; nothing where there is not a readable file."""
    found = {}
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    for text in lines:
        try:
            row = json.loads(text)
            value = row.get(f"val_{metric}")
            if value is not None and math.isfinite(value):
                found[int(row["generation"]), int(row["epoch"])] = float(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # cut off where the run was killed
    return found


def _thin(points: list[Point], edges: list[int]) -> list[Point]:
    """No more points than can be seen; the fall at a generation's edge stays."""
    stride = math.ceil(len(points) / POINTS)
    kept = {epoch + after for epoch in edges for after in (0, 1)} | {points[0].epoch, points[-1].epoch}
    return [point for i, point in enumerate(points) if i % stride == 0 or point.epoch in kept]
