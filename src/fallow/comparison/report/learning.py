"""Learning curves as small multiples: one panel a method, the control dashed in each."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from fallow.comparison.report.curves import Curve
from fallow.comparison.report.intervals import numbered
from fallow.comparison.report.svg import Drawing, Scale, line, path, text, window
from fallow.comparison.report.words import count, percent


def limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The accuracies worth the room: the first steep epochs would leave none for what matters."""
    means = sorted(point.mean for curve in curves for point in curve.points)
    low, high = means[len(means) // 8], max(point.high for curve in curves for point in curve.points)
    low = min(low, min(curve.points[-1].low for curve in curves))
    pad = max(0.04 * (high - low), 0.004)
    return max(0.0, low - pad), min(1.0, high + pad)


def panel(
    method: str, curve: Curve, control: tuple[str, Curve] | None, shown: tuple[float, float], last: int
) -> Drawing:
    """One panel: the mean over seeds, all of them as a band, and the control dashed."""
    width, height, left, top = 320.0, 184.0, 38.0, 32.0
    right, bottom = width - 10, height - 32
    x, y = Scale(0, last, left, right), Scale(*shown, bottom, top)
    pieces = [text(left, 14, method, "name", limit=24)]
    for t, number in numbered(y, 7):
        pieces += [
            line(left, y(t), right, y(t), "rule"),
            text(left - 5, y(t) + 4, number, "soft", "end"),
        ]
    for t in (t for t in x.ticks(4) if t == int(t)):
        pieces.append(text(min(x(t), right - 6), bottom + 15, count(t), "soft", "middle"))
    pieces.append(text((left + right) / 2, height - 4, "epoch", "soft", "middle"))
    starts = [0, *curve.edges[:-1]]
    if len(curve.edges) > 1:
        pieces += [line(x(edge), top, x(edge), bottom, "edge") for edge in curve.edges[:-1]]
        if x(curve.edges[0]) - left > 16:
            middles = [(x(a) + x(b)) / 2 for a, b in zip(starts, curve.edges, strict=True)]
            pieces += [text(m, top - 4, str(i), "soft", "middle") for i, m in enumerate(middles, 1)]
    band = [(x(p.epoch), y(p.low)) for p in curve.points] + [(x(p.epoch), y(p.high)) for p in reversed(curve.points)]
    lines = [path(band, "band", closed=True)] if curve.seeds > 1 else []
    if control is not None:
        lines.append(path([(x(p.epoch), y(p.mean)) for p in control[1].points], "control"))
    lines.append(path([(x(p.epoch), y(p.mean)) for p in curve.points], "curve"))
    pieces.append(window(left, top, right - left, bottom - top, *lines))
    ends = curve.points[-1]
    says = (
        f"{method}: mean validation accuracy from {percent(curve.points[0].mean)} % to {percent(ends.mean)} % "
        f"after {ends.epoch} epochs in {len(curve.edges)} generation{'s' if len(curve.edges) > 1 else ''}"
    )
    if control is not None:
        says += f"; {control[0]}, dashed, ends at {percent(control[1].points[-1].mean)} %"
    return Drawing(width, height, Markup("").join(pieces), says)
