"""Tables in files: .csv and .tsv by the standard library, which is enough for what has thousands of rows; .parquet."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fallow.base.errors import RequestError, unknown
from fallow.base.files import expanded
from fallow.data.answers import MANY
from fallow.data.arrays import from_tensors
from fallow.data.examples import Examples
from fallow.data.groups import numbered, read_groups
from fallow.data.parts import Parts
from fallow.data.sources.places import PART_OF, SPLITS
from fallow.data.tables import GAPS, MOSTLY, WORDS, Cells, DataTable, numbers, present, row_numbers
from fallow.data.targets import KINDS
from fallow.data.written import decimal, ways

SUFFIXES = (".csv", ".tsv", ".parquet")
TARGETS = ("target", "label", "class", "y")  # what the column to predict is often called
SPLIT = 3  # examples of a class, for training, validation and test
SEPARATORS = ",;\t|"
PARTED = ("split", "set", "partition", "subset")  # what a column that says the part of each row is called
EXCEL = re.compile(r"\"?sep=(.)\"?")


class Sheet(dict[str, list[str]]):
    """The cells of every column; ``commas`` may be decimal in them, where something else parts the cells."""

    commas = False


def table(
    path: Path, cells: Cells, target: str | None = None, groups: Any = None, drop: str | Sequence[str] = ()
) -> Parts:
    """Rows of a table: what ``target`` names is predicted from the other columns, but those to ``drop``.

    ``target`` may say what the column holds too, ``"grade:numbers"``; without it, a column that is called target,
    label, class or y. ``groups`` names the column of what belongs together, or is as for arrays. Columns that only
    number the rows are left out. A column ``split`` (set, partition, subset) of train, val and test says the source's
    own parts.
    """
    how, said_of_numbers = written(cells)
    cells = dict(cells)
    name, kind = _target(cells, target, path)
    drop = to_drop(drop, cells)
    for each in drop:
        if each not in cells:
            raise unknown(f"column of {path} to drop", each, cells)
        if each == name:
            raise RequestError(f"{each!r} is what is predicted, and cannot be dropped")
    answers = [answer.strip() for answer in cells.pop(name)]
    belonging = cells.pop(groups) if isinstance(groups, str) and groups in cells else None
    said_of_parts: list[str] = []
    part_of = parted(path, cells, set(drop), said_of_parts) or ["train"] * len(answers)
    gaps, meant = _gaps(name, answers, kind, how[name])
    there = [i for i, answer in enumerate(answers) if answer.lower() not in gaps]
    if not there:
        raise RequestError(f"the column {name!r} of {path} is empty: name the one to predict (--target)")
    if isinstance(groups, str) and belonging is None and not expanded(groups).exists():
        raise unknown(f"column of {path} for groups", groups, cells)
    y = _answers(name, answers, there, kind, how[name])
    if said := _measured(name, y, kind):
        y, kind = y.astype(np.float64), "numbers"
    if len(np.unique(y)) < 2:
        raise RequestError(f"the column {name!r} of {path} is {answers[there[0]]!r} in all rows: nothing is to predict")
    counting, said_of_rows = row_numbers({key: column for key, column in cells.items() if key not in drop}, how)
    said += [note for key, note in said_of_numbers.items() if key == name or (key in cells and key not in drop)]
    kept = {key: [column[i] for i in there] for key, column in cells.items() if key not in (*drop, *counting)}
    found, notes = DataTable.of_cells(kept, said_of_rows, how)
    x = found.raw(kept)
    names = [name] if y.dtype.kind == "f" else None
    rows = {part: [row for row, i in enumerate(there) if part_of[i] == part] for part in SPLITS}
    rows = {part: held for part, held in rows.items() if held}
    if "train" not in rows:
        raise RequestError(f"{path} has no row for training with an answer in {name!r}: fill some in")
    parts = from_tensors(
        {part: (torch.zeros(len(held), x.shape[1]), y[held]) for part, held in rows.items()}, names=names, target=kind
    )
    train, val, test = (
        Examples(x[rows[part]] if len(rows) > 1 else x, getattr(parts, part).y) if part in rows else None
        for part in SPLITS
    )
    assert train is not None
    parts = Parts(train, val, test, parts.target, parts.notes + meant + said + notes + said_of_parts, table=found)
    if absent := len(answers) - len(there):
        held = ", ".join(sorted({answer or "empty" for answer in answers if answer.lower() in gaps}))
        counted = f"{absent} row{'s' * (absent > 1)} without {name!r} ({held})"
        parts.notes.append(f"{counted} {'were' if absent > 1 else 'was'} left out.")
    if belonging is not None or groups is not None:
        whose = apart([belonging[i] for i in there], parts.notes) if belonging is not None else read_groups(groups)
        if len(whose) != len(x):
            raise RequestError(f"there are {len(whose)} groups for {len(x)} rows: give one for each, or name a column")
        parts.groups = numbered({part: whose[held] for part, held in rows.items()})
    return parts


def parted(path: Path, cells: dict[str, Any], meant: set[Any], notes: list[str]) -> list[str] | None:
    """The part of every row, if a column says it, which then is nothing else; not one that is ``meant`` otherwise."""
    for name in [name for name in cells if name.strip().lower() in PARTED and name not in meant]:
        words = [cell.strip().lower() for cell in cells[name]]
        if strange := [cell for cell, word in zip(cells[name], words, strict=True) if word not in PART_OF]:
            if len(strange) < len(words):
                notes.append(f"The column {name!r} holds {strange[0]!r}, too, and is not taken for the parts.")
            continue
        found = [PART_OF[word] for word in words]
        if "train" not in found:
            raise RequestError(f"the column {name!r} of {path} is train in no row: write train for some")
        del cells[name]
        notes.append(f"The parts are those of the column {name!r}.")
        return found
    return None


def to_drop(drop: str | Sequence[str], cells: Cells) -> list[str]:
    """Names of columns: as they are, or parted by commas, of which a name may have some itself.

    Nothing between commas is the column without a name, if there is one.

    >>> to_drop("length, mm,ward", {"length, mm": [], "ward": []}), to_drop(",", {"": []}), to_drop("a,", {"a": []})
    (['length, mm', 'ward'], [''], ['a'])
    """
    if not isinstance(drop, str):
        return list(drop)
    found: list[str] = []
    pieces = drop.split(",") if drop else []
    while pieces:
        ends = range(len(pieces), 0, -1)
        end = next((end for end in ends if ",".join(pieces[:end]).strip() in cells), 1)
        found.append(",".join(pieces[:end]).strip())
        pieces = pieces[end:]
    return [name for name in dict.fromkeys(found) if name or name in cells]


def apart(belonging: Sequence[str], notes: list[str]) -> NDArray[Any]:
    """The groups of rows; a row that has none is one of its own, which is said."""
    found = [cell if cell.strip().lower() not in GAPS else f"\0{i}" for i, cell in enumerate(belonging)]
    if alone := sum(cell.startswith("\0") for cell in found):
        notes.append(f"{alone} row{'s' * (alone > 1)} without a group: each is kept as one of its own.")
    return np.asarray(found)


def written(cells: Cells) -> tuple[dict[str, str], dict[str, str]]:
    """How the numbers of the columns of a file are written, and sentences on some (see `fallow.data.written.ways`)."""
    commas = isinstance(cells, Sheet) and cells.commas
    open_ = {  # the others are as Python writes them, and a file of millions is read without a look at each
        name: column for name, column in cells.items() if commas or any("," in cell or "%" in cell for cell in column)
    }
    known = {name: [cell.strip() for cell in column if present(cell)] for name, column in open_.items()}
    found, notes = ways(known, commas, MOSTLY)
    return dict.fromkeys(cells, "") | found, notes


def as_trained(cells: Sheet, table: DataTable) -> Cells:
    """The cells of a new file, to be read as those of training were, however few they are.

    Decimal commas become points in columns that had points in training, where they can be nothing else.
    """
    plain = {column.name for column in table.columns if not column.categories and not column.written}
    if not cells.commas:
        return cells
    return {
        name: [cell.replace(",", ".") for cell in column] if name in plain and decimal(column) else column
        for name, column in cells.items()
    }


def read_cells(path: Path) -> Sheet:
    """The cells of every column, as text."""
    cells = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not cells or not len(next(iter(cells.values()))):
        raise RequestError(f"{path} holds no rows: give a first line of names and a line for each example")
    return cells


def _csv(path: Path) -> Sheet:
    text = _text(path.read_bytes())
    first, _, rest = text.partition("\n")
    if said := EXCEL.fullmatch(first.strip()):  # how Excel is told of a separator
        separator, text = said[1], rest
    else:
        separator = max(SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    found = [(reader.line_num, row) for row in reader if row]
    if not found:
        return Sheet()
    rows = [row for _, row in found]
    head = [name.strip() for name in rows[0]]
    for number, row in found:
        if len(row) != len(head):
            raise RequestError(f"line {number} of {path} has {len(row)} values for {len(head)} columns: correct it")
    columns = list(map(list, zip(*rows[1:], strict=True))) or [[] for _ in head]
    if _like_an_example(head, columns):
        raise RequestError(
            f"the first line of {path} ({head[0]}, {head[1]}, …) looks like an example: write a line of names above it"
        )
    if len(set(head)) < len(head):
        twice = next(name for name in head if head.count(name) > 1)
        raise RequestError(f"{path} has two columns named {twice!r}: give each its own name")
    sheet = Sheet(zip(head, columns, strict=True))
    sheet.commas = separator != ","
    return sheet


def _like_an_example(head: list[str], columns: list[list[str]]) -> bool:
    """Whether most names are numbers, not all of them whole, that lie among those of their columns.

    >>> iris = [["4.9", "7.0"], ["3.0", "3.6"], ["setosa", "virginica"]]
    >>> _like_an_example(["5.1", "3.5", "setosa"], iris), _like_an_example(["700.5", "701", "kind"], iris)
    (True, False)
    """
    named, _ = numbers(head)
    among = np.flatnonzero(~np.isnan(named))
    if 2 * len(among) <= len(head) or not np.mod(named[among], 1).any():
        return False
    held = [numbers(columns[i])[0] for i in among]
    return all(
        not np.isnan(values).all() and np.nanmin(values) <= name <= np.nanmax(values)
        for name, values in zip(named[among], held, strict=True)
    )


def _text(content: bytes) -> str:
    """As what wrote it may have: UTF-8, UTF-16 with its mark, else as Windows or Unix did in the west."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1")


def _parquet(path: Path) -> Sheet:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise RequestError("reading .parquet needs pyarrow: pip install 'fallow[parquet]'") from error
    found = parquet.read_table(path).to_pydict()
    return Sheet({name: ["" if cell is None else str(cell) for cell in column] for name, column in found.items()})


def _target(cells: Cells, asked: str | None, path: Path) -> tuple[str, str | None]:
    """The column to predict, and the kind of target where it is said."""
    if asked is not None:
        if asked in cells:
            return asked, None
        name, colon, kind = asked.rpartition(":")
        if colon and kind in KINDS and name in cells:
            return name, kind
        if asked not in KINDS:
            raise unknown(f"column of {path} to predict", name if colon and kind in KINDS else asked, cells)
    usual = [name for name in cells if name.lower() in TARGETS]
    if len(usual) != 1:
        raise RequestError(
            f"which column of {path} is to be predicted? name it: --target with one of {', '.join(cells)}"
        )
    return usual[0], asked


def _gaps(name: str, answers: Sequence[str], kind: str | None, way: str) -> tuple[set[str], list[str]]:
    """How a missing answer is written: among words, none and null are classes, which is said."""
    known = [answer for answer in answers if answer.lower() not in GAPS]
    if kind == "numbers" or 2 * len(numbers(known, way)[1]) <= len(known):
        return GAPS, []
    counts = Counter(answer for answer in answers if answer.lower() in WORDS)
    return GAPS - WORDS, [
        f"{word!r} in {count} row{'s' * (count > 1)} of {name!r} is taken for a class."
        for word, count in counts.items()
    ]


def _measured(name: str, y: NDArray[Any], kind: str | None) -> list[str]:
    """Says when whole numbers are counts or measurements: many, and some too rare to be classes that are split."""
    if kind is not None or y.dtype.kind != "i":
        return []
    values, counts = np.unique(y, return_counts=True)
    if len(values) <= MANY or counts.min() >= SPLIT:
        return []
    return [f"{name!r} has {len(values):,} different values and is taken for a number ({name}:classes says otherwise)."]


def _answers(name: str, answers: list[str], there: list[int], kind: str | None, way: str) -> NDArray[Any]:
    """Whole numbers, numbers, or else names of classes; a text among numbers is told with its row."""
    known = [answers[i] for i in there]
    values, wrong = numbers(known, way)
    measured = len(wrong) <= (1 - MOSTLY) * len(known) and len(set(known)) > MANY
    if wrong and (kind == "numbers" or (kind is None and measured)):
        row = there[wrong[0]]
        raise RequestError(
            f"row {row + 1} of {name!r}, which is to be predicted, holds {answers[row]!r} among numbers: correct it, "
            f"leave it empty, or say --target {name}:classes"
        )
    if wrong or kind == "classes":
        return np.array(known)
    return values.astype(np.int64) if (values == np.round(values)).all() and np.abs(values).max() < 2**53 else values
