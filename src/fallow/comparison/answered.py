"""What the best model answers on its test split, where the answers are no classes: a look at its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from fallow.data.targets import Target
from fallow.evaluate import metrics
from fallow.report.charts import Axis, Line, lines
from fallow.report.pieces import figures, heading, paragraph, table
from fallow.report.svg import Drawing
from fallow.report.words import count, number, percent

Array = NDArray[np.float64]

DRAWN = 1000  # examples in a figure: more would only be darker
WORST = 10  # lines of the table
GIVEN = 0.5  # a label is given from this probability on


def answered(target: Target, output: Tensor, y: Tensor) -> tuple[list[Markup], dict[str, Drawing]]:
    """What belongs on the page, and the figures by the names of their files; nothing for other kinds of target."""
    prediction, truth = target.decode(output).numpy(), y.double().numpy()
    if target.kind == "numbers":
        return _numbers(target.names, prediction.reshape(len(y), -1), truth.reshape(len(y), -1))
    if target.kind == "labels":
        return _labels(target.names, prediction, truth > 0), {}
    return [], {}


def _numbers(names: Sequence[str], prediction: Array, truth: Array) -> tuple[list[Markup], dict[str, Drawing]]:
    """Predicted against true, residuals against predicted, and the largest errors."""
    body = [heading(3, "Prediction errors")]
    drawn: dict[str, Drawing] = {}
    for name, said, true in zip(names, prediction.T, truth.T, strict=True):
        residual = said - true
        some = np.linspace(0, len(true) - 1, min(len(true), DRAWN)).astype(int)  # evenly: they may be sorted
        ends = float(min(said.min(), true.min())), float(max(said.max(), true.max()))
        fit = _points(
            f"{name}: predicted against true", true[some], said[some], [(ends[0], ends[0]), (ends[1], ends[1])],
            "true", "predicted", f"{name} of {len(some)} test examples, predicted against true",
        )  # fmt: skip
        rest = _points(
            f"{name}: residuals", said[some], residual[some], [(float(said.min()), 0.0), (float(said.max()), 0.0)],
            "predicted", "predicted − true", f"Residuals of {name} against its prediction, with the line of no error",
        )  # fmt: skip
        suffix = "" if len(names) == 1 else f"-{len(drawn) // 2 + 1}"
        drawn |= {f"predicted{suffix}": fit, f"residuals{suffix}": rest}
        figures_of = [metrics.rmse(said, true), metrics.mae(said, true), metrics.r2(said, true)]
        rmse, mae, r2 = (number(value, 4) for value in figures_of)
        body.append(
            paragraph(
                f"{name}, {count(len(true))} test examples: RMSE {rmse}, mean absolute error {mae}, R² {r2}; "
                f"on average {number(abs(float(residual.mean())), 3)} too {'high' if residual.mean() > 0 else 'low'}, "
                f"median absolute error {number(float(np.median(np.abs(residual))), 3)}."
            )
        )
        body.append(figures([fit, rest]))
        worst = np.argsort(-np.abs(residual), kind="stable")[:WORST]
        rows = [[str(i), *(number(float(v[i]), 4) for v in (true, said, residual))] for i in worst.tolist()]
        body.append(table(f"{name}: the largest errors.", ["Test example", "True", "Predicted", "Error"], rows))
    return body, drawn


def _points(title: str, x: Array, y: Array, ideal: list[tuple[float, float]], *words: str) -> Drawing:
    """Test examples as points over the line on which they would lie without errors."""
    across, up, says = words
    points = Line("test examples", list(zip(x.tolist(), y.tolist(), strict=True)), "points")
    margin = 0.03 * (ideal[1][0] - ideal[0][0])  # no point lies on the edge
    limits = (ideal[0][0] - margin, ideal[1][0] + margin) if margin else None
    drawn = lines(title, [Line("no error", ideal, "quiet"), points], Axis(across, limits=limits), Axis(up))
    assert drawn is not None
    return replace(drawn, says=says)


def _labels(names: Sequence[str], prediction: Array, truth: NDArray[np.bool_]) -> list[Markup]:
    """A row for each label."""
    rows = []
    for name, said, held in zip(names, prediction.T, truth.T, strict=True):
        given = said >= GIVEN
        found, there, called = int((given & held).sum()), int(held.sum()), int(given.sum())
        rows.append(
            [
                name,
                count(there),
                percent(_known(metrics.separation(said, held))),
                percent(metrics.average_precision(said, held) if there else None),
                percent(2 * found / (there + called) if there else None),
                percent(found / called if called else None),
                percent(found / there if there else None),
            ]
        )
    columns = ["Label", "Test examples", "AUROC", "Average precision", "F1", "Precision", "Recall"]
    note = f"In %, on {count(len(truth))} test examples; a label is predicted from a probability of {GIVEN:g}."
    return [heading(3, "Label by label"), table(note, columns, rows)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
