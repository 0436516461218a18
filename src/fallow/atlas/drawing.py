"""The matrix of an atlas as one picture: a row a method, a column a setting, a colour for the verdict."""

from __future__ import annotations

from itertools import groupby

from markupsafe import Markup

from fallow.atlas.findings import Atlas, Column
from fallow.atlas.rows import PRETRAINED, SCRATCH, Judgement
from fallow.report.svg import Drawing, group, text
from fallow.report.tags import tag
from fallow.report.words import SIGNS, many, points

WIDE, HIGH = 34.0, 20.0  # of a cell
LEFT, TOP = 70.0, 116.0
GAP = 5.0  # between data sets
KINDS = {"better": "better", "worse": "worse"}  # the others are quiet


def drawing(atlas: Atlas) -> Drawing:
    """Differences in points to ordinary training of equal compute; filled where the verdict is better or worse.

    What starts from scratch stands above what starts from a pretrained network, so that a page has room for both.
    """
    pieces, reach, bottom = [text(8, 17, _head(atlas), "name")], 640.0, 0.0
    for start in (SCRATCH, PRETRAINED):
        if settings := [setting for setting in atlas.settings if setting[2] == start]:
            panel, right, bottom = _panel(atlas, settings, bottom)
            pieces += panel
            reach = max(reach, right)
    pieces += _legend(bottom + 10)
    says = f"{_head(atlas)}. " + " ".join(atlas.sentences)
    return Drawing(reach, bottom + 34, Markup("").join(pieces), says)


def _panel(atlas: Atlas, settings: list[Column], y: float) -> tuple[list[Markup], float, float]:
    """The columns of some settings below ``y`` and the methods that are judged there; where they end."""
    places, right = _columns(settings)
    pieces: list[Markup] = []
    named: set[str] = set()
    reach, top = right + 70, y + TOP
    for (data, labels, start), x in places.items():
        pieces.append(text(x + WIDE / 2, top - 6, str(labels), "soft", "middle", limit=6))
        if data not in named:  # once over both sizes
            named.add(data)
            words = f"{data}, features" if start == PRETRAINED else data
            at = f"translate({x + WIDE / 2 + 4:.1f} {top - 20:.1f}) rotate(-35)"
            pieces.append(group(text(0, 0, words, "name", limit=22), transform=at))
            reach = max(reach, x + WIDE / 2 + 6 * min(len(words), 22) + 8)  # names lean to the right
    here = [method for method in atlas.methods if any(atlas.at(method, setting) for setting in settings)]
    for i, method in enumerate(here):
        row = top + i * HIGH
        pieces.append(text(LEFT - 8, row + 14, method, "name", "end", limit=11))
        pieces += [_cell(atlas.at(method, setting), x, row) for setting, x in places.items()]
    return pieces, reach, top + len(here) * HIGH


def _head(atlas: Atlas) -> str:
    sets = len({setting[0] for setting in atlas.settings})
    return (
        f"{many(len(atlas.methods), 'method')} on {many(sets, 'data set')}: test accuracy against as much plain "
        "training, in points"
    )


def _columns(settings: list[Column]) -> tuple[dict[Column, float], float]:
    """Where every setting's column begins, and where the last ends."""
    found, x = {}, LEFT
    for _, same in groupby(settings, key=lambda setting: setting[0]):
        for setting in same:
            found[setting] = x
            x += WIDE
        x += GAP
    return found, x - GAP


def _cell(row: Judgement | None, x: float, y: float) -> Markup:
    if row is None or row.difference is None:
        return text(x + WIDE / 2, y + 14, "·", "soft", "middle")
    kind = KINDS.get(row.verdict, "quiet")
    interval = "" if row.low is None or row.high is None else f" ({points(row.low)} to {points(row.high)})"
    said = (
        f"{row.method}, {row.data} with {row.labels} labels, {row.start}: {points(row.difference)} points{interval}, "
        f"{row.verdict}"
    )
    filled = [tag("rect", x=x, y=y, width=WIDE - 1, height=HIGH - 1, class_="bar" if kind != "quiet" else "area")]
    digits = 0 if abs(row.difference) >= 0.1 else 1  # a cell has room for four characters
    shown = "=" if row.verdict == "no different" else points(row.difference, digits)
    if kind != "quiet":
        shown = f"{SIGNS[row.verdict]}{shown.lstrip('+−')}"  # the triangle is the sign
    words = text(x + WIDE / 2 - 0.5, y + 14, shown, None, "middle")
    return group(tag("title", said), *filled, words, class_=kind)


def _legend(y: float) -> list[Markup]:
    pieces, x = [], LEFT
    named = (("better", "better"), ("worse", "worse"), ("quiet", "undecided, or = no different"))
    for kind, words in named:
        pieces.append(
            group(tag("rect", x=x, y=y, width=12, height=12, class_="area" if kind == "quiet" else "bar"), class_=kind)
        )
        pieces.append(text(x + 17, y + 10, f"{SIGNS.get(kind, '')} {words}".strip(), "soft"))
        x += 40 + 6.2 * len(words)
    return [*pieces, text(x, y + 10, "· does not apply", "soft")]
