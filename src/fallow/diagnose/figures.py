"""The pictures of a diagnosis: one for each measure, all subjects in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fallow.report.charts import Axis, Line, lines, spanned
from fallow.report.intervals import Bar, forest
from fallow.report.shown import PLAIN
from fallow.report.style import series
from fallow.report.svg import Drawing
from fallow.report.words import number

SIZE = (640.0, 320.0)
POINTS = 400  # of a curve: more cannot be seen
LEAST = 1e-6  # of a density: what is lower is as good as none

Records = Mapping[str, Any]  # subject → record


def draw(measure: str, title: str, records: Records) -> Drawing:
    """The picture of a measure; the same records give the same drawing."""
    if measure == "weights":
        return _weights(title, records)
    curves, x, y = PICTURES[measure](records)
    drawn = [line._replace(kind=series(i)) for i, line in enumerate(curves)]
    made = lines("", drawn, x, y, size=SIZE) or lines("", [Line("nothing finite", [(0.0, 1.0)])], x, y, size=SIZE)
    assert made is not None
    return Drawing(made.width, made.height, made.content, title + made.says)


def _pairs(x: Any, y: Any) -> list[tuple[float, float]]:
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int))
    return [(float(x[i]), float(y[i])) for i in some]


def _spectrum(records: Records) -> tuple[list[Line], Axis, Axis]:
    found = {name: (r.density.grid, np.maximum(r.density.values, LEAST / 10)) for name, r in records.items()}
    highest = max(float(values.max()) for _, values in found.values())
    drawn = [Line(name, _pairs(*pair)) for name, pair in found.items()]
    return drawn, Axis("eigenvalue"), Axis("density", "log", limits=(LEAST, 2 * highest))


def _depth(records: Records) -> tuple[list[Line], Axis, Axis]:
    drawn = [Line(name, _pairs(range(len(r.layers)), 100 * r.accuracies), dotted=True) for name, r in records.items()]
    layers = next(iter(records.values())).layers
    return drawn, Axis("", names=list(layers)), Axis("accuracy (R²) of 5 neighbours, %")


def _margins(records: Records) -> tuple[list[Line], Axis, Axis]:
    drawn = []
    for name, found in records.items():
        values = np.sort(found.values)
        drawn.append(Line(name, _pairs(values, 100 * np.arange(1, len(values) + 1) / len(values))))
    return drawn, Axis("softmax margin"), Axis("training examples below, %", limits=(0.0, 102.0))


def _noise(records: Records) -> tuple[list[Line], Axis, Axis]:
    drawn = []
    for name, found in records.items():
        mean, spread = found.losses.mean(1), found.losses.std(1, ddof=1) if found.draws > 1 else 0 * found.losses[:, 0]
        band = list(zip((mean - spread).tolist(), (mean + spread).tolist(), strict=True))
        drawn.append(Line(name, _pairs(found.sigmas, mean), band=band, dotted=True))
    return drawn, Axis("σ", "log"), Axis("rise of the training loss")


def _flatness(records: Records) -> tuple[list[Line], Axis, Axis]:
    layers = list(dict.fromkeys(path for found in records.values() for path in found.layers))
    drawn = []
    for name, found in records.items():
        kappas = [(float(layers.index(path)), layer.kappa) for path, layer in found.layers.items()]
        points = [(place, float(kappa.value)) for place, kappa in kappas]
        drawn.append(Line(name, points, band=[(kappa.low, kappa.high) for _, kappa in kappas], dotted=True))
    kind = "log" if all(value > 0 for line in drawn for _, value in line.points) else "symlog"
    limits = spanned([line._replace(band=None) for line in drawn], kind)  # an interval may be wider than all else
    return drawn, Axis("", names=layers), Axis("relative flatness κ", kind, limits=limits)


def _slices(records: Records) -> tuple[list[Line], Axis, Axis]:
    drawn = [Line(name, _pairs(found.steps, found.losses)) for name, found in records.items()]
    return drawn, Axis("step along the direction, in norms of the filters"), Axis("training loss", "log")


def _weights(title: str, records: Records) -> Drawing:
    sizes = {name: float(found.per_example) for name, found in records.items()}
    bars = [Bar(name, size, None, None, [], "plain", number(size)) for name, size in sizes.items()]
    says = f"{title}: " + ", ".join(f"{bar.label} {bar.words}" for bar in bars)
    return forest(bars, "", "‖Φ‖·‖W‖ for one example", says, shown=PLAIN, zero=0.0, filled=True)


PICTURES = {
    "spectrum": _spectrum, "depth": _depth, "margins": _margins, "noise": _noise, "flatness": _flatness,
    "slices": _slices,
}  # fmt: skip
