"""Tables: columns of numbers and of categories, with gaps, and how a network sees them."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data import written as writing
from fallow.data.images import SUFFIXES

GAPS = {"", "na", "n/a", "nan", "null", "none", "?"}  # how a missing value is written, in small letters
WORDS = {"null", "none"}  # those that may be meant: a risk may be none
MOSTLY = 0.9  # the share of numbers from which on a text among them is a mistake and no category
MOST = 100  # categories of a column; rarer ones are as good as missing
NAMES = 0.5  # distinct texts by rows from which on a column names its rows
SAID = 3  # columns that are left out for one reason and named each
FEW = 20  # rows below which this cannot be told
NORMAL = 1.349  # quartiles of the normal distribution lie so many deviations apart
BEND = 3.0  # deviations at which outliers are bent back
FARTHEST = 1e9  # deviations, beyond which the squares of float32 would leave nothing of them
LARGEST = float(np.finfo(np.float32).max)
MINUS = "\N{MINUS SIGN}"  # as word processors and some spreadsheets write it
MONTH = (
    r"(?:jan(?:uary?)?|feb(?:ruary?)?|mar(?:ch)?|märz?|apr(?:il)?|ma[iy]|jun[ei]?|jul[iy]?|aug(?:ust)?|sept?(?:ember)?"
    r"|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\.?"
)
VALUES = 20  # different numbers above which a column is one of measurements, and none of codes
UNIT = re.compile(r"([$€£¥]\s*)?[-+]?(?:\d[\d.,]*|[.,]\d+)(?:\s*([^\W\d_]\D*|[°%‰€£¥$]\D*))?")  # 44 years, $ 5, 0.12
PARTED = re.compile(r"[-+]?[1-9]\d{0,2}(?:[ \u00a0\u202f'’]\d{3})+(?:[.,]\d+)?")  # 78 216,50 or 78'216.50
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|[0-3]?\d-[0-3]?\d-\d{4}\b"
    rf"|{MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|\d{{1,2}}\.?[- ]{MONTH}[- ]\d{{2,4}}",
    re.IGNORECASE,
)
TIME = re.compile(r"[012]?\d:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?: ?[ap]\.?m\.?)?", re.IGNORECASE)  # of a day
NUMBERED = re.compile(  # what row numbers are called
    r"|unnamed: \d+|__index_level_\d+__|index|id|row|nr|no|number|rownames|#"
)
IDENTIFIED = re.compile(r"[a-z]I[dD]$|[ _.-]id$|[ _.-]ID$")  # PassengerId, sample_id
PIXEL = re.compile(r"(?:pixel|pix|px)[ _.]?\d+(?:[x_]\d+)?$|\d+x\d+$", re.IGNORECASE)  # pixel783, 28x28

Cells = Mapping[str, Sequence[str]]  # of every column, as they are written


@dataclass(frozen=True)
class Column:
    """One column: numbers, or one of some categories; `Table.fitted` adds what it must know of the training rows."""

    name: str
    categories: tuple[str, ...] = ()  # none: numbers
    median: float = 0.0
    scale: float = 1.0
    gaps: bool = False  # missing values among the training rows
    offset: float = 0.0  # subtracted first, from numbers so large that float32 would merge some (seconds since 1970)
    written: str = ""  # how its numbers are, where not as Python writes them (see `fallow.data.written`)

    def raw(self, cells: Sequence[str]) -> NDArray[np.float32]:
        """Numbers as they are, categories by index; NaN for what is missing or unknown."""
        if self.categories:
            place = {name: float(i) for i, name in enumerate(self.categories)}
            return np.array([place.get(cell.strip(), np.nan) for cell in cells], np.float32)
        values, wrong = numbers(cells, self.written)
        if wrong:
            how = f", written as {'12' * (self.written == writing.PERCENT)}{self.written}" if self.written else ""
            raise RequestError(
                f"row {wrong[0] + 1} of {self.name!r} holds {cells[wrong[0]]!r}, where a number belongs{how}: "
                "correct it, or leave it empty"
            )
        return (values - self.offset).astype(np.float32)


@dataclass(frozen=True)
class DataTable:
    """The columns of a table, and how rows become features.

    A number x becomes z / √(1 + (z/3)²) with z = (x − median) / scale, which bends outliers back; scale is the distance
    of the quartiles, in deviations of a normal distribution. A category becomes as many zeros and ones as there are.
    A gap becomes zero, and a further feature says so where the training rows have gaps. What is a number, and the names
    of the categories, are those of all rows: so the features are the same for every split.

    >>> cells = {"age": ["20", "30", "", "40"], "ward": ["a", "b", "a", "a"]}
    >>> table, _ = DataTable.of_cells(cells)
    >>> table.fitted(raw := table.raw(cells)).encode(raw)
    tensor([[-1.2303,  1.0000,  0.0000,  0.0000],
            [ 0.0000,  0.0000,  1.0000,  0.0000],
            [ 0.0000,  1.0000,  0.0000,  1.0000],
            [ 1.2303,  1.0000,  0.0000,  0.0000]])
    """

    columns: tuple[Column, ...]

    @classmethod
    def of_cells(
        cls, cells: Cells, said: Sequence[str] = (), ways: Mapping[str, str] | None = None
    ) -> tuple[DataTable, list[str]]:
        """The columns that can be learned from, and sentences on those that cannot, after what was ``said`` of some.

        ``ways`` are those in which the numbers of columns are written.
        """
        idle = {name: why for name, column in cells.items() if (why := _idle(column))}
        found, notes = [], [*said, *_left_out(idle), *_pictures(cells)]
        for name in [name for name in cells if name not in idle]:
            kind = _understood(name, cells[name], (ways or {}).get(name, ""))
            if isinstance(kind, str):
                notes.append(kind)
            else:
                found.append(kind)
                notes += _rare(kind, cells[name]) + _nearly_numbers(kind, cells[name])
        return cls(tuple(found)), notes

    def raw(self, cells: Cells, what: str = "the table") -> Tensor:
        """Rows as numbers (N×columns), with NaN for gaps."""
        for column in self.columns:
            if column.name not in cells:
                meant = close(column.name, cells)
                raise RequestError(f"{what} lacks the column {column.name!r}, which the model was trained with{meant}")
        return torch.from_numpy(np.stack([column.raw(cells[column.name]) for column in self.columns], 1))

    def fitted(self, raw: Tensor) -> DataTable:
        """With medians, scales and gaps of the training rows."""
        values = raw.double().numpy()
        gaps = np.isnan(values)
        quartiles = np.zeros((3, values.shape[1]))
        known = ~gaps.all(0)
        quartiles[:, known] = np.nanpercentile(values[:, known], (25, 50, 75), axis=0)
        spread = (quartiles[2] - quartiles[0]) / NORMAL
        deviation = np.zeros(values.shape[1])
        deviation[known] = np.nanstd(values[:, known], axis=0)
        scale = np.where(spread > 0, spread, np.where(deviation > 0, deviation, 1.0))
        found = zip(self.columns, gaps.any(0).tolist(), quartiles[1].tolist(), scale.tolist(), strict=True)
        return DataTable(tuple(replace(column, gaps=gap, median=m, scale=s) for column, gap, m, s in found))

    def encode(self, raw: Tensor) -> Tensor:
        """The features of rows, float32."""
        numbers = [i for i, column in enumerate(self.columns) if not column.categories]
        median, scale = (torch.tensor([getattr(self.columns[i], key) for i in numbers]) for key in ("median", "scale"))
        z = ((raw[:, numbers] - median) / scale).nan_to_num().clamp(-FARTHEST, FARTHEST)
        places = [(i, k) for i, column in enumerate(self.columns) for k in range(len(column.categories))]
        chosen = raw[:, [i for i, _ in places]] == torch.tensor([float(k) for _, k in places])
        missing = raw[:, [i for i, column in enumerate(self.columns) if column.gaps]].isnan()
        return torch.cat([z / (1 + (z / BEND).square()).sqrt(), chosen.float(), missing.float()], 1)

    def describe(self) -> list[dict[str, Any]]:
        """As plain values, for the record."""
        return [asdict(column) | {"categories": list(column.categories)} for column in self.columns]

    @classmethod
    def of(cls, described: list[dict[str, Any]]) -> DataTable:
        """The table that `describe` told of."""
        return cls(tuple(Column(**{**each, "categories": tuple(each["categories"])}) for each in described))


def close(name: str, cells: Cells) -> str:
    """The column that may be meant by a name that none has, as the end of a sentence."""
    known = {each.lower(): each for each in cells}
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    return f": did you mean {known[near[0]]!r}?" if near else ""


def present(cell: str) -> bool:
    """Whether a cell holds anything.

    >>> present(" NA "), present("0")
    (False, True)
    """
    return cell.strip().lower() not in GAPS


def numbers(cells: Sequence[str], way: str = "") -> tuple[NDArray[np.float64], list[int]]:
    """Numbers with NaN for gaps, and the rows that hold something else than numbers that are written in this way.

    >>> numbers(["1.5", "NA", "two"])
    (array([1.5, nan, nan]), [2])
    """
    there = np.array([present(cell) for cell in cells], bool)
    if way or any("_" in cell for cell in cells):
        cells = [
            (writing.plain(cell, way) or "no number") if here else "" for cell, here in zip(cells, there, strict=True)
        ]
    values = np.full(len(cells), np.nan)
    wrong: list[int] = []
    try:
        values[there] = np.array([cell for cell, here in zip(cells, there, strict=True) if here], float)
    except ValueError:
        for i in np.flatnonzero(there).tolist():
            try:
                values[i] = float(cells[i].replace(MINUS, "-"))
            except ValueError:
                wrong.append(i)
    wrong += np.flatnonzero(np.abs(values) > LARGEST).tolist()
    return values, sorted(wrong)


def row_numbers(cells: Cells, ways: Mapping[str, str] | None = None) -> tuple[list[str], dict[str, str]]:
    """Columns that only number the rows, and sentences on them and on those that may do so.

    They say where a row stands in the file, which tells the target if that is sorted by it, and nothing of new rows.

    >>> row_numbers({"": ["0", "1", "2"], "age": ["40", "31", "40"], "day": ["1", "2", "3"]})[0]
    ['']
    """
    found: list[str] = []
    notes: dict[str, str] = {}
    for name, column in cells.items():
        way = (ways or {}).get(name, "")
        first, wrong = numbers(column[:FEW], way)
        if wrong or (first != np.round(first)).any():  # most are told by a few rows
            continue
        values, wrong = numbers(column, way)
        if wrong or len(values) < 2 or (values != np.round(values)).any() or len(np.unique(values)) < len(values):
            continue
        called = NUMBERED.fullmatch(name.strip().lower()) or IDENTIFIED.search(name.strip())
        advice = f"if their order is related to the target, --drop {shlex.quote(name)}."
        if called and values.max() - values.min() == len(values) - 1:
            found.append(name)
            notes[name] = f"The column {name!r}{' (without a name)' * (not name)} numbers the rows and was left out."
        elif (np.diff(values) == 1).all():
            notes[name] = f"The column {name!r} counts the rows: {advice}"
        elif called and len(values) > FEW:
            notes[name] = f"The column {name!r} has a different number in every row: {advice}"
    return found, notes


def _idle(cells: Sequence[str]) -> str:
    """Why there is nothing to learn from a column, whatever it is of."""
    known = [cell.strip() for cell in cells if present(cell)]
    if not known:
        return "empty"
    return "the same in all rows" if len(known) == len(cells) and len(set(known)) == 1 else ""


def _left_out(idle: Mapping[str, str]) -> list[str]:
    """A sentence for each of a few columns, or one for many.

    >>> _left_out({"site": "empty"}) + _left_out(dict.fromkeys("abcdef", "empty"))
    ["The column 'site' is empty and was left out.", "6 columns are empty and were left out: 'a' to 'f'."]
    """
    said = []
    for why in dict.fromkeys(idle.values()):
        names = [name for name in idle if idle[name] == why]
        if len(names) > SAID:
            said.append(f"{len(names)} columns are {why} and were left out: {names[0]!r} to {names[-1]!r}.")
        else:
            said += [f"The column {name!r} is {why} and was left out." for name in names]
    return said


def _pictures(cells: Cells) -> list[str]:
    """A hint where columns are numbered pixels, as many as a square has, row by row."""
    names = [name for name in cells if PIXEL.match(name)]
    side = math.isqrt(len(names))
    if side < 4 or side**2 != len(names):
        return []
    return [
        f"The columns {names[0]!r} to {names[-1]!r} look like images of {side}×{side} but are read as a table: "
        "--as images reads them as images, which is usually far better."
    ]


def _understood(name: str, cells: Sequence[str], way: str) -> Column | str:
    """A column, or why it is left out."""
    values, wrong = numbers(cells, way)
    known = [cell.strip() for cell in cells if present(cell)]
    counts = Counter(known)
    if len(known) - len(wrong) >= MOSTLY * len(known):
        if wrong:
            Column(name, written=way).raw(cells)  # raises, with row and value
        distinct = np.unique(values[~np.isnan(values)])
        merged = len(np.unique(distinct.astype(np.float32))) < len(distinct)
        return Column(name, offset=float(distinct[len(distinct) // 2]) if merged else 0.0, written=way)
    if sum(bool(DATE.match(cell)) for cell in known) >= MOSTLY * len(known):
        raise RequestError(
            f"the column {name!r} holds dates ({known[0]}): convert them to numbers (days, the month), "
            f"or leave it out (--drop {shlex.quote(name)})"
        )
    if len(counts) > 2 and all(TIME.fullmatch(cell) for cell in counts):
        raise RequestError(
            f"the column {name!r} holds times of day ({known[0]}): convert them to numbers (hours, 8.5 for 8:30), "
            f"or leave it out (--drop {shlex.quote(name)})"
        )
    if (mark := lone_mark(cells, wrong)) and 2 * len(wrong) < len(known) and measured(values):
        raise RequestError(
            f"{mark!r} is in {len(wrong)} rows of {name!r}, and {len(known) - len(wrong)} others hold numbers: leave "
            f"those cells empty if there is no number, or leave the column out (--drop {shlex.quote(name)})"
        )
    if len(cells) > FEW and len(counts) > max(NAMES * len(cells), 2):
        left = f"The column {name!r} has {len(counts)} different texts in {len(cells)} rows and was left out."
        if all(cell.lower().endswith(SUFFIXES) for cell in counts):
            return f"{left} They name images that are not there: give their paths from the table, to learn from them."
        return " ".join([left, *_nearly_numbers(Column(name, tuple(counts), written=way), cells)])
    frequent = [text for text, _ in counts.most_common(MOST)]
    return Column(name, tuple(sorted(frequent)))


def lone_mark(cells: Sequence[str], wrong: Sequence[int]) -> str:
    """The one text without digits that stands in all the rows that hold no number; "" if there is no such.

    >>> lone_mark(["41", "-", "7", "-"], [1, 3]), lone_mark(["41", "-", "7", "5+"], [1, 3])
    ('-', '')
    """
    texts = {cells[row].strip() for row in wrong}
    return next(iter(texts)) if len(texts) == 1 and not re.search(r"\d", next(iter(texts))) else ""


def measured(values: NDArray[np.float64]) -> bool:
    """Whether numbers (NaN: none) are more than codes of some kinds."""
    return len(np.unique(values[~np.isnan(values)])) > VALUES


def _nearly_numbers(column: Column, cells: Sequence[str]) -> list[str]:
    """A sentence on texts that are numbers but for a unit, or most of which are numbers."""
    if not column.categories:
        return []
    counts = Counter(cell.strip() for cell in cells if present(cell))
    known, total = list(counts), counts.total()
    if why := why_texts(counts):
        return [
            f"{column.name!r} is read as texts, as {why}: "
            "write numbers alone, in one unit, if it is to be read as numbers."
        ]
    values, wrong = numbers(known, column.written)
    others = sum(counts[known[row]] for row in wrong)
    if 2 * others < total and (lone_mark(known, wrong) or measured(values)):
        named = ", ".join(repr(known[row]) for row in wrong[:SAID])
        return [f"{column.name!r} is read as texts, as {others} of its cells are no numbers ({named})."]
    return []


def why_texts(counts: Mapping[str, int]) -> str:
    """Why cells, counted, that are numbers to people are not read as such; "" if that is not so.

    >>> why_texts({"$1,200": 2, "$ 75": 1}), why_texts({"12 kg": 1, "3": 9}), why_texts({"12 kg": 1, "3 cm": 1})
    ('its cells have a unit ($1,200)', 'some of its cells have a unit (12 kg)', '')
    >>> why_texts({"78 216,50": 1, "950": 1})
    'its thousands are parted (78 216,50)'
    """
    read = {cell: match for cell in counts if (match := UNIT.fullmatch(cell))}
    signed = {cell: ((match[1] or "").strip(), match[2]) for cell, match in read.items() if match[1] or match[2]}
    parted = [cell for cell in counts if PARTED.fullmatch(cell)]
    mostly = MOSTLY * sum(counts.values())
    if len(set(signed.values())) == 1 and sum(counts[cell] for cell in read) >= mostly:
        return f"{'' if len(signed) == len(read) else 'some of '}its cells have a unit ({next(iter(signed))})"
    if parted and sum(counts[cell] for cell in {*parted, *filter(writing.CANDIDATE.fullmatch, counts)}) >= mostly:
        return f"its thousands are parted ({parted[0]})"
    return ""


def _rare(column: Column, cells: Sequence[str]) -> list[str]:
    """A sentence on categories that are too many to be kept."""
    if not column.categories:
        return []
    kept = set(column.categories)
    beyond = [cell.strip() for cell in cells if present(cell) and cell.strip() not in kept]
    if not beyond:
        return []
    return [
        f"The column {column.name!r} has {len(column.categories) + len(set(beyond))} categories: the {MOST} most "
        f"frequent are kept, and the others, in {len(beyond)} row{'s' * (len(beyond) > 1)}, are treated as missing."
    ]
