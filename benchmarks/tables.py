"""Tables: the best network against the best yardstick on five sets, and what `predict` says of the raw file.

Breast cancer, wine, digits (as a csv) and diabetes come with scikit-learn; houses are made here, after California's:
incomes, ages, rooms and places, with a cap on the price. Each is a csv that `fallow.compare` reads; the methods are the
controls, EMA, mixup and dropout, with as many seeds as ``--repetitions`` says (4). A network is below a yardstick where
its mean on test is worse by more than the half of its 95 % interval: the row that validation likes best against the
yardstick that turns out to be best on test.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

SETS = {"breast_cancer": "target", "wine": "target", "digits": "target:classes", "diabetes": "target:numbers"}
METHODS, SEEDS = "ema,mixup,dropout", 4


def houses(rows: int = 2000, seed: int = 0) -> dict[str, Any]:
    """Columns that are skewed, interact, and depend on a place, and a price that is cut off."""
    draw = np.random.default_rng(seed)
    income, rooms, people = (
        draw.lognormal(1.2, 0.45, rows),
        draw.lognormal(1.65, 0.3, rows),
        draw.lognormal(7, 0.7, rows),
    )
    age, occupied = draw.integers(1, 53, rows), draw.lognormal(1.05, 0.25, rows)
    latitude = np.where(draw.random(rows) < 0.42, draw.normal(37.7, 0.9, rows), draw.normal(34, 0.7, rows))
    longitude = -119.6 - 0.85 * (latitude - 36) + draw.normal(0, 0.9, rows)

    def near(north: float, east: float) -> Any:
        return np.exp(-2 * ((latitude - north) ** 2 + (longitude - east) ** 2))

    coast = np.exp(-np.abs(longitude + 120.6 + 0.85 * (latitude - 36)))
    value = 0.42 * income / (1 + income / 18) - 0.32 * (occupied - 2.8) + 0.8 * coast + 0.006 * age * (income > 3.5)
    value += 0.9 * near(37.77, -122.4) + 0.8 * near(34.05, -118.4) + 0.06 * (rooms - 5) * (income - 3).clip(0, 4)
    value = (value * np.exp(draw.normal(0, 0.22, rows))).clip(0.15, 5)
    return {"income": income, "age": age, "rooms": rooms, "people": people, "occupied": occupied,
            "latitude": latitude, "longitude": longitude, "value": value}  # fmt: skip


def written(folder: Path) -> dict[str, tuple[Path, str]]:
    """The tables as files, with what is to be predicted."""
    from sklearn import datasets

    tables = {"houses": (houses(), "value")}
    for name, target in SETS.items():
        held = getattr(datasets, f"load_{name}")()
        tables[name] = dict(zip(held.feature_names, held.data.T, strict=True)) | {"target": held.target}, target
    found = {}
    for name, (columns, target) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(columns)
            lines.writerows(zip(*columns.values(), strict=True))
        found[name] = folder / f"{name}.csv", target
    return found


def far(run: Path, table: Path, target: str) -> float:
    """The largest difference between what a run recorded for its test rows and what its model says of the raw file."""
    from fallow import Predictor
    from fallow.core.record import RunFolder
    from fallow.data import Examples, load
    from fallow.data.sources.table import read_cells

    kept, predictor, data = RunFolder(run).outputs(), Predictor(run, "last"), load(table, target=target)
    assert predictor.table is not None
    encoded = predictor.table.encode(predictor.table.raw(read_cells(table)))
    rows = {tuple(row): place for place, row in enumerate(encoded.tolist())}  # equal rows have equal answers
    assert isinstance(data.test, Examples)
    places = [rows[tuple(row)] for row in data.test.x.tolist()]
    said = [predictor.target.decode(predictor.logits(encoded[places]))]
    return float((said[0] - predictor.target.decode(kept["test_last"])).abs().max())


def measure(repetitions: int | None = None) -> dict[str, Any]:
    import fallow

    torch.set_num_threads(1)
    ratios: dict[str, float] = {}
    said: dict[str, Any] = {}
    reached = 0
    with tempfile.TemporaryDirectory() as place:
        for name, (table, target) in written(Path(place)).items():
            out = Path(place, name)
            found = fallow.compare(str(table), METHODS, target=target, seeds=repetitions or SEEDS, out=out, workers=1)
            (setting,) = found.findings().settings
            best = setting.rows[0]  # the best on validation
            assert best.estimate is not None
            rival = max(found.yardsticks, key=lambda row: setting.metric.worth(row.mean))
            gap = setting.metric.worth(best.estimate.mean) - setting.metric.worth(rival.mean)
            half = (best.estimate.high - best.estimate.low) / 2 if best.estimate.low is not None else 0.0
            reached += gap >= -half
            said[f"{name}, test {setting.metric.words}"] = (
                f"{best.method} {best.estimate.mean:.4g} ± {half:.2g}, {rival.name} {rival.mean:.4g}"
            )
            first = next(path for path in sorted((out / "runs").iterdir()) if "seed0" in path.name)
            said[f"{name}, raw file against recorded outputs"] = f"{far(first, table, target):.1e}"
    return {"ratios": ratios, "counts": said | {"sets on which the network is not below": f"{reached} of 5"}}
