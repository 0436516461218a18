"""SEAL's table 3: how many classes and images the data sets have that are transferred to; ours, and theirs beside.

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


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Those of our data sets that are there."""
    here = [] if data_dir is None else [t for t in TARGETS if (data_dir / f"{t}.npz").exists()]
    if data_dir is None or not here:
        raise RequestError(f"--data-dir is a folder with one of {', '.join(TARGETS)} in it, as .npz")
    at, _ = each(sizes, {(target, 0): (str(data_dir / f"{target}.npz"), 0) for target in here})
    cells = [
        Cell(target, column, None, float(at[target, 0][column]), 0.0, len(seeds), None)
        for target in here
        for column in COLUMNS
    ]
    theirs = "; ".join(f"{name} {', '.join(map(str, counts))}" for name, counts in PAPER.items())
    remarks = [f"The paper's data sets, in the same columns: {theirs}. 0: it has no validation part."]
    return Table(name, "SEAL, table 3", cells, unit="classes and images", remarks=remarks)
