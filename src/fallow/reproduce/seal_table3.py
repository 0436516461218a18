"""SEAL's table 3: how many classes and images the data sets have that are transferred to, theirs and ours.

fallow reproduce seal-table3 --data-dir DIR      seconds

Where the paper's data sets have no validation part, it chose on test; ours carve a fifth of training.
"""

from __future__ import annotations

from pathlib import Path

from fallow.base.errors import RequestError
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_transfer import TARGETS, target_data
from fallow.reproduce.table import Cell, Table

SEEDS = 1
COLUMNS = ("classes", "train", "val", "test")
PAPER = {
    "Flower": (102, 1020, 1020, 6149),
    "CUB": (200, 5994, 0, 5794),
    "Aircraft": (100, 3334, 3333, 3333),
    "MIT": (67, 5360, 0, 1340),
    "Dogs": (120, 12000, 0, 8580),
}


def sizes(folder: Path, target: str, seed: int) -> dict[str, int]:
    """Classes and images of a data set, as tables 1, 4 and 5 divide it."""
    data = target_data(target)
    return {"classes": len(data.classes), **{part: int(size or 0) for part, size in data.sizes.items()}}


def run(name: str, seeds: int, data_dir: Path | None, each: Runs) -> Table:
    """The paper's data sets, and those of ours that are there."""
    here = [] if data_dir is None else [t for t in TARGETS if (data_dir / f"{t}.npz").exists()]
    if data_dir is None or not here:
        raise RequestError(f"--data-dir is a folder with one of {', '.join(TARGETS)} in it, as .npz")
    at, _ = each(sizes, {(target, 0): (str(data_dir / f"{target}.npz"), 0) for target in here})
    counted = {**PAPER, **{target: tuple(at[target, 0][column] for column in COLUMNS) for target in here}}
    cells = [
        Cell(row, column, float(value) if row in PAPER else None, float(value), 0.0, seeds, None)
        for row, values in counted.items()
        for column, value in zip(COLUMNS, values, strict=True)
    ]
    remarks = ["The paper's data sets are not here: its numbers stand for themselves; 0 is no validation part."]
    return Table(name, "SEAL, table 3", cells, unit="images", remarks=remarks)
