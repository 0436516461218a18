"""The race as a picture: who ran how many seeds, and why no more."""

from __future__ import annotations

from markupsafe import Markup

from fallow.comparison.findings import Row, Setting
from fallow.report.intervals import colour, mark
from fallow.report.svg import EM, Drawing, Scale, group, line, text

ROW, LONG, SAID = 22.0, 300.0, 220.0  # the height of a row, the width of the track, and of the words behind it
STOPPED = {"futile": "undecided: no verdict in sight", "no more seeds": "undecided after all seeds"}


def track(setting: Setting) -> Drawing:
    """A lane for each runner, uprights at the looks; the mark at a lane's end tells the verdict."""
    names = max(len(row.method) for row in setting.rows)
    left = min(160.0, 12 + EM * names)
    seeds = Scale(0.0, float(max(setting.race.looks)), left, left + LONG)
    looks, bottom = setting.race.looks, 22 + ROW * len(setting.rows)
    pieces = [line(seeds(k), 20, seeds(k), bottom, "rule") for k in looks]
    pieces += [text(seeds(k), 13, str(k), "soft", "middle") for k in looks]
    for i, row in enumerate(setting.rows):
        y, end = 22 + ROW * (i + 0.5), seeds(float(len(row.scores)))
        pieces += [
            text(left - 8, y + 4, row.method, None, "end", limit=int((left - 12) / EM)),
            group(line(left, y, end, y, "whisker"), mark(end, y, row.verdict), class_=colour(row.verdict)),
            text(left + LONG + 12, y + 4, ended(row), "soft", limit=int(SAID / EM)),
        ]
    lanes = "; ".join(f"{row.method} {len(row.scores)} seeds, {ended(row)}" for row in setting.rows)
    return Drawing(
        left + LONG + SAID, bottom + 6, Markup("").join(pieces), f"Seeds run of at most {looks[-1]}: {lanes}"
    )


def ended(row: Row) -> str:
    """Why a runner runs no more."""
    if row.standing is None or row.verdict != "undecided":
        return row.verdict
    return STOPPED.get(row.standing.stopped, "undecided: it may continue")
