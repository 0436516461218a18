"""What the runs' kept outputs tell besides: how well calibrated the networks are, and what they are worth together."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from fallow.core.record import RunFolder
from fallow.evaluate.calibration import Calibration, KeptOutputs, calibration

if TYPE_CHECKING:
    from fallow.comparison.findings import Setting
    from fallow.comparison.plan import Plan
    from fallow.comparison.race import Runner
    from fallow.data.targets import Target


class Ensemble(NamedTuple):
    """The mean of the predictions of several networks, on test: a row, and no question."""

    method: str
    networks: int
    test: float  # the metric
    calibration: Calibration | None  # of the mean of the probabilities, each network's scaled on its own validation

    @property
    def name(self) -> str:
        """In a table."""
        return f"{self.networks} networks of {self.method}"


def complete(setting: Setting, entries: Sequence[Runner], target: Target, folder: Path, plan: Plan) -> None:
    """Give every row its calibration, where answers are classes, and the setting its ensembles.

    Ensembles are those of the control and of the best method on validation; there are none where every seed has a test
    set of its own, nor where every seed keeps other labels of many (``train``): together they would know them all.
    """
    score = plan.score
    done: dict[str, list[Path]] = {}
    for entry in entries:
        if (entry.data, entry.model, entry.reason) == (setting.data, setting.model, None):
            done.setdefault(entry.method, []).append(folder / entry.folder)
    for row in setting.rows:
        each = [_calibration((run,), score) for run in done.get(row.method, ()) if target.kind == "classes"]
        known = [found for found in each if found is not None]
        row.calibration = Calibration(*map(statistics.fmean, zip(*known, strict=True))) if known else None
    for method in dict.fromkeys((setting.control, setting.rows[0].method)):
        kept = [(run, outputs) for run in done.get(method or "", ()) if (outputs := RunFolder(run).outputs())]
        if method is None or setting.overlap or plan.train is not None or len(kept) < 2:
            continue
        together = torch.stack([target.decode(outputs[f"test_{score}"]) for _, outputs in kept]).mean(0).numpy()
        test = setting.metric.compute(together, kept[0][1]["test_y"].numpy())
        found = _calibration(tuple(run for run, _ in kept), score) if target.kind == "classes" else None
        setting.ensembles.append(Ensemble(method, len(kept), test, found))


@lru_cache(maxsize=4096)  # what a run kept does not change, and is asked for by the terminal, the report and the CSV
def _calibration(runs: tuple[Path, ...], score: str) -> Calibration | None:
    names = (f"val_{score}", "val_y", f"test_{score}", "test_y")
    kept = [RunFolder(run).outputs() for run in runs]
    if not all(name in outputs for outputs in kept for name in names):
        return None
    return calibration([KeptOutputs(*(outputs[name] for name in names)) for outputs in kept])
