"""How numbers are written in a table: with decimal commas, with marks of thousands, with a sign of percent."""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMA, POINT, PERCENT = "1.234,5", "1,234.5", "%"  # a way to write: one of the first two or none, and perhaps percent
EXPONENT = r"(?:[eE][-+]?\d+)?"
CANDIDATE = re.compile(r"[-+]?[\d.,]*\d[\d.,]*" + EXPONENT)
WAYS = {
    COMMA: re.compile(r"[-+]?(?:[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?|\d+(?:,\d+)?|,\d+)" + EXPONENT),
    POINT: re.compile(r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)" + EXPONENT),
}
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:([.,])\d{3})(?:\1\d{3})*(?:[.,]\d+)?")  # none of its groups is missing
SHORT = re.compile(r"[-+]?\d{1,3}(?:[.,]\d*)?")  # below a thousand, where marks would not show


def plain(cell: str, way: str) -> str | None:
    """A number as Python writes it, from one that is written in a way; None if it is not.

    Nor are codes with an underscore (1_12), though Python reads them as numbers.

    >>> plain("1.234,50", COMMA), plain("1.5", COMMA), plain("1,234", POINT), plain("12 %", PERCENT)
    ('1234.50', None, '1234', '12')
    """
    cell = cell.strip()
    if way.endswith(PERCENT):
        if not cell.endswith(PERCENT):
            return None
        cell, way = cell[:-1].rstrip(), way[:-1]
    if not way:
        return None if "_" in cell else cell
    if not WAYS[way].fullmatch(cell):
        return None
    return cell.replace(".", "").replace(",", ".") if way == COMMA else cell.replace(",", "")


def ways(columns: dict[str, list[str]], commas: bool, mostly: float) -> tuple[dict[str, str], dict[str, str]]:
    """How the numbers of each column are written ("": as Python writes them), and sentences on what is worth one.

    ``columns`` are their cells without gaps; ``commas`` says that commas may be decimal, as they do not part the cells.
    A column is of numbers if ``mostly`` all of its cells are. Where its own cells leave it open ("2.176"), others of
    the file decide: points are marks of thousands only where somewhere a comma must be decimal, and nowhere a point.

    >>> ways({"price": ["9,86", "10,17"], "amount": ["693", "2.176"]}, True, 0.9)[0]
    {'price': '1.234,5', 'amount': '1.234,5'}
    """
    held: dict[str, tuple[list[str], str]] = {}
    for name, cells in columns.items():
        signed = [cell for cell in cells if cell.endswith(PERCENT)]
        sign = PERCENT if cells and len(signed) == len(cells) else ""
        bare = [cell[:-1].rstrip() for cell in cells] if sign else cells
        numbers = [cell for cell in bare if CANDIDATE.fullmatch(cell)]
        if numbers and len(numbers) >= mostly * len(cells):
            held[name] = numbers, sign
    every = [cell for numbers, _ in held.values() for cell in numbers]
    only_commas = commas and any(_is(COMMA, cell) and not _is(POINT, cell) for cell in every)
    only_points = any(_is(POINT, cell) and not _is(COMMA, cell) for cell in every)
    found, notes = dict.fromkeys(columns, ""), {}
    for name, (numbers, sign) in held.items():
        found[name] = _way(numbers, commas, only_commas, only_points) + sign
        mark = {COMMA: ".", POINT: ","}.get(found[name].removesuffix(PERCENT), "")
        if mark and (long := next((cell for cell in numbers if mark in cell), None)):
            what = {".": "points", ",": "commas"}[mark]
            number = plain(long, found[name].removesuffix(PERCENT))
            notes[name] = f"In {name!r} {what} mark thousands: {long} is read as {number}."
        elif found[name].startswith(COMMA) and not only_commas and (open_ := [c for c in numbers if "," in c]):
            number = plain(open_[0], COMMA)
            notes[name] = f"In {name!r} commas are read as decimal points: {open_[0]} is read as {number}."
        elif sign:
            notes[name] = f"{name!r} is read as numbers, in percent."
    return found, notes


def _way(numbers: Sequence[str], commas: bool, only_commas: bool, only_points: bool) -> str:
    """COMMA, POINT or neither, of a column's numbers without a sign of percent."""
    with_comma, with_point = (any(mark in cell for cell in numbers) for mark in ",.")
    comma = commas and all(_is(COMMA, cell) for cell in numbers)
    point = with_comma and all(_is(POINT, cell) for cell in numbers) and (with_point or _marked(numbers, ","))
    if comma and with_point and not with_comma:  # "2.176" alone has a decimal point
        comma = _marked(numbers, ".") and only_commas and not only_points
    if comma and with_comma and point:
        return POINT if only_points and not only_commas else COMMA
    if comma and (with_comma or with_point or (only_commas and not only_points)):
        return COMMA
    return POINT if point else ""


def decimal(cells: Sequence[str]) -> bool:
    """Whether the commas in cells must be decimal ones."""
    with_comma = [cell.strip() for cell in cells if "," in cell]
    return all(_is(COMMA, cell) for cell in with_comma) and not all(_is(POINT, cell) for cell in with_comma)


def _marked(numbers: Sequence[str], mark: str) -> bool:
    """Whether all numbers from a thousand on have their marks."""
    return all(THOUSANDS.fullmatch(cell) if mark in cell else SHORT.fullmatch(cell) for cell in numbers)


def _is(way: str, cell: str) -> bool:
    return WAYS[way].fullmatch(cell) is not None
