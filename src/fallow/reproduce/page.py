"""The page of a paper's table: ours beside theirs, drawn, with what must be known to read it."""

from __future__ import annotations

from pathlib import Path

from fallow.base import files
from fallow.core.record import versions
from fallow.report.page import Page, Section
from fallow.report.pieces import bullets, figure, paragraph, table
from fallow.report.svg import beside
from fallow.report.words import many, number, p_value
from fallow.reproduce import TABLES, stored
from fallow.reproduce.table import Table


def write(folder: Path, found: Table, command: str = "") -> Path:
    """Write NAME.csv, NAME.json, NAME.svg and NAME.html; the path of the last."""
    folder.mkdir(parents=True, exist_ok=True)
    found.command = command or f"fallow reproduce {found.name}"
    files.write(folder / f"{found.name}.csv", stored.text(found).encode())
    drawn = found.drawings()
    files.write_json(folder / f"{found.name}.json", found.describe())
    together = beside(drawn, 1, found.paper, ". ".join(drawing.says for drawing in drawn))
    files.write(folder / f"{found.name}.svg", together.file())
    columns, *rows = found.grid()
    marks = " = agrees, ≠ does not." if any(c.agrees is not None for c in found.cells) else ""
    ours = table(f"{found.said[0].upper()}{found.said[1:]} (the paper’s), in {found.unit}.{marks}", columns, rows)
    sections = [
        Section("Ours beside theirs", [ours, bullets(found.remarks)], "table"),
        Section("Drawn", [_reading(found), *map(figure, drawn), *found.more()], "drawn"),
    ]
    if found.tests:
        claims = [[test["claim"], p_value(test["p"]), p_value(test["p_holm"])] for test in found.tests]
        one_sided = all("better than" in test["claim"] for test in found.tests)
        how = "One-sided tests." if one_sided else "Differences by seed with their 95 % intervals; two-sided tests."
        sections.append(Section("Claims", [table(how, ["Claim", "p", "p, Holm"], claims)], "claims"))
    page = Page(
        title=f"{found.paper}: {TABLES[found.name].shows}",
        verb="fallow reproduce",
        sentence=sentence(found),
        sections=sections,
        facts=[many(len(found.cells), "number"), many(max(c.seeds for c in found.cells), "seed")],
        command=found.command,
        versions=versions(),
        beside={
            f"{found.name}.csv": "every number",
            f"{found.name}.json": "the same",
            f"{found.name}.svg": "the figure",
        },
    )
    return page.write(folder / f"{found.name}.html")


def sentence(found: Table) -> str:
    """How many numbers agree, and which is farthest from the paper's."""
    known = [(c, c.paper) for c in found.cells if c.agrees is not None and c.paper is not None]
    seeds = many(max(c.seeds for c in found.cells), "seed")
    if not known:
        last = [c for c in found.cells if c.column == found.cells[-1].column]
        low, high = min(last, key=lambda c: c.ours), max(last, key=lambda c: c.ours)
        return (
            f"At {low.column}, ours go from {number(low.ours)} ({low.row}) to {number(high.ours)} ({high.row}), in "
            f"{found.unit}, over {seeds}; {found.paper} gives no numbers that they could agree with."
        )
    said = f"{sum(bool(c.agrees) for c, _ in known)} of {len(known)} numbers agree with {found.paper} ({seeds})"
    apart = [(abs(c.ours - paper) / (abs(paper) or 1.0), c, paper) for c, paper in known if not c.agrees]
    if not apart:
        return f"{said}."
    _, c, paper = max(apart, key=lambda one: one[0])
    return f"{said}; farthest is {c.row} at {c.column}: {number(c.ours)} against the paper's {number(paper)}."


def _reading(found: Table) -> str:
    if any(c.paper is not None for c in found.cells):
        return paragraph("Filled marks and lines are ours with their deviation, open diamonds the paper’s.")
    return paragraph("Ours, with their deviation over seeds.")
