"""The pictures of a diagnosis: one for each measure, all subjects in it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

COLOURS = (
    "#4477aa",
    "#cc6677",
    "#228833",
    "#aa7700",
    "#66aacc",
    "#aa3377",
    "#888888",
)  # told apart without red or green
STYLES = ("-", "--", "-.", ":")
INK = "#7a7a7a"  # legible on white and on black

Records = Mapping[str, Any]  # subject → record


def styled() -> Any:
    """The look of every picture, for as long as the context lasts."""
    import matplotlib

    matplotlib.use("Agg")
    style: dict[Any, Any] = {
        "svg.hashsalt": "fallow", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
        "axes.spines.right": False, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
        "xtick.color": INK, "ytick.color": INK, "legend.frameon": False, "legend.fontsize": 8,
    }  # fmt: skip
    return matplotlib.rc_context(style)


def draw(measure: str, records: Records) -> str:
    """An SVG; the same records give the same bytes."""
    from matplotlib import pyplot

    with styled():
        figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        PICTURES[measure](axes, records)
        if len(records) <= 12 and measure != "weights":
            axes.legend(ncols=2 if len(records) > 5 else 1)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return written.getvalue()


def look(i: int) -> dict[str, Any]:
    """Colour and line of the i-th subject."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i // len(COLOURS) % len(STYLES)], "linewidth": 1.5}


def _spectrum(axes: Any, records: Records) -> None:
    for i, (name, found) in enumerate(records.items()):
        density = found.density
        axes.semilogy(density.grid, np.maximum(density.values, 1e-8), label=name, **look(i))
    axes.set_ylim(bottom=1e-6)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")


def _depth(axes: Any, records: Records) -> None:
    for i, (name, found) in enumerate(records.items()):
        axes.plot(range(len(found.layers)), 100 * found.accuracies, label=name, marker=".", **look(i))
    layers = next(iter(records.values())).layers
    axes.set_xticks(range(len(layers)), layers, rotation=30 if len(layers) > 8 else 0)
    axes.set_ylabel("accuracy of 5 neighbours, %")


def _margins(axes: Any, records: Records) -> None:
    for i, (name, found) in enumerate(records.items()):
        values = np.sort(found.values)
        axes.plot(values, 100 * np.arange(1, len(values) + 1) / len(values), label=name, **look(i))
    axes.set_xlabel("softmax margin")
    axes.set_ylabel("training examples below, %")


def _noise(axes: Any, records: Records) -> None:
    for i, (name, found) in enumerate(records.items()):
        mean, spread = found.losses.mean(1), found.losses.std(1, ddof=1) if found.draws > 1 else 0 * found.losses[:, 0]
        axes.plot(found.sigmas, mean, label=name, marker=".", **look(i))
        axes.fill_between(found.sigmas, mean - spread, mean + spread, color=COLOURS[i % len(COLOURS)], alpha=0.15, lw=0)
    axes.set_xscale("log")
    axes.set_xlabel("σ")
    axes.set_ylabel("rise of the training loss")


def _flatness(axes: Any, records: Records) -> None:
    width = 0.8 / len(records)
    layers = list(dict.fromkeys(path for found in records.values() for path in found.layers))
    for i, (name, found) in enumerate(records.items()):
        places = [layers.index(path) + (i - (len(records) - 1) / 2) * width for path in found.layers]
        values = [layer.kappa.value for layer in found.layers.values()]
        error = [layer.kappa.high - layer.kappa.value for layer in found.layers.values()]
        axes.bar(places, values, 0.9 * width, yerr=error, label=name, color=COLOURS[i % len(COLOURS)],
                 error_kw={"ecolor": INK, "linewidth": 0.8})  # fmt: skip
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_xticks(range(len(layers)), layers, rotation=30 if len(layers) > 5 else 0)
    axes.set_ylabel("relative flatness κ")


def _slices(axes: Any, records: Records) -> None:
    for i, (name, found) in enumerate(records.items()):
        axes.semilogy(found.steps, found.losses, label=name, **look(i))
    axes.set_xlabel("step along the direction, in norms of the filters")
    axes.set_ylabel("training loss")


def _weights(axes: Any, records: Records) -> None:
    values = [found.per_example for found in records.values()]
    axes.barh(range(len(values)), values, color=COLOURS[0])
    axes.set_yticks(range(len(values)), list(records))
    axes.invert_yaxis()
    axes.set_xlabel("‖Φ‖·‖W‖ for one example")


PICTURES = {
    "spectrum": _spectrum, "depth": _depth, "margins": _margins, "noise": _noise, "flatness": _flatness,
    "slices": _slices, "weights": _weights,
}  # fmt: skip
