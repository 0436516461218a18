"""The page of an atlas, its picture, and its tables as Markdown."""

from __future__ import annotations

from pathlib import Path

from fallow.atlas.drawing import drawing
from fallow.atlas.findings import Atlas, Column
from fallow.atlas.rows import PRETRAINED, Judgement
from fallow.base import files
from fallow.core.record import versions
from fallow.report.page import Page, Section
from fallow.report.pieces import bullets, code, figure, paragraph, table
from fallow.report.words import SIGNS, many, percent, points

PICTURE, PAGE = "atlas.svg", "atlas.html"


def write(folder: Path, atlas: Atlas, command: str = "") -> Path:
    """Write atlas.svg and atlas.html beside atlas.csv; the path of the page."""
    picture = drawing(atlas)
    files.write(folder / PICTURE, picture.file())
    columns, *rows = matrix(atlas)
    head, *marks = beats(atlas)
    sections = [
        Section("Which method helps where?", [figure(picture), bullets(atlas.sentences)], "atlas"),
        Section(
            "Verdicts",
            [paragraph(atlas.guarantee), table("Differences to the control, in points.", columns, rows)],
            "verdicts",
        ),
        Section("Who beats whom", [paragraph(_marks(atlas)), table("Over data sets.", head, marks)], "beats"),
    ]
    if (tree := atlas.tree()) is not None:
        sections.append(
            Section("Which wins when", [code(str(tree), "which method has the highest accuracy when")], "tree")
        )
    page = Page(
        title="The atlas: which method helps where",
        verb="fallow atlas",
        sentence=atlas.sentences[0],
        sections=sections,
        facts=[many(len(atlas.methods), "method"), many(len(atlas.settings), "setting")],
        command=command or "fallow atlas",
        versions=versions(),
        beside={"atlas.csv": "every number", PICTURE: "the picture", "comparisons/": "every comparison's own report"},
    )
    return page.write(folder / PAGE)


def matrix(atlas: Atlas) -> list[list[str]]:
    """The head, and for every method its difference in every setting, with a sign where there is a verdict."""
    settings = atlas.settings
    return [
        ["", *map(named, settings)],
        *([method, *(_cell(atlas.at(method, setting)) for setting in settings)] for method in atlas.methods),
        *(
            [label, *(_mean(atlas.at(name, setting)) for setting in settings)]
            for label, name in (("normal, %", "normal"), ("long, %", "long"), ("restart, %", "restart"))
        ),
        ["long, training %", *(_training(atlas.at("long", setting)) for setting in settings)],
    ]


def beats(atlas: Atlas) -> list[list[str]]:
    """The head, and for every method which column beats it."""
    methods, marks, _ = atlas.beats()
    return [["", *methods], *([row, *(marks.get((row, column), "") for column in methods)] for row in methods)]


def named(setting: Column) -> str:
    """As the head of a column."""
    data, labels, start = setting
    return f"{data} {labels}{' features' if start == PRETRAINED else ''}"


def _marks(atlas: Atlas) -> str:
    _, _, number = atlas.beats()
    return (
        f"The column beats the row from scratch over {many(number, 'data set')}, each counted once: ★ exact binomial "
        "test at 5 %, ○ after Holm's correction over all pairs, too."
    )


def _cell(row: Judgement | None) -> str:
    if row is None or row.difference is None:
        return "·"
    sign = "" if row.verdict == "undecided" else f"{SIGNS.get(row.verdict, '')} "
    return f"{sign}{points(row.difference)}"


def _mean(row: Judgement | None) -> str:
    return "" if row is None else percent(row.mean)


def _training(row: Judgement | None) -> str:
    return "" if row is None or row.training is None else percent(row.training)


def markdown(atlas: Atlas) -> str:
    """The same as Markdown, for the page of evidence."""
    pieces = [
        "\n".join(f"{i}. {sentence}" for i, sentence in enumerate(atlas.sentences, 1)),
        atlas.guarantee,
        _grid(matrix(atlas)),
        _marks(atlas),
        _grid(beats(atlas)),
    ]
    if (tree := atlas.tree()) is not None:
        pieces += ["Which has the highest accuracy when:", f"```\n{tree}\n```"]
    return "\n\n".join(pieces)


def _grid(lines: list[list[str]]) -> str:
    head, *rows = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
