"""Tables in files: .csv, .tsv and .jsonl by the standard library, which is enough for thousands of rows; .parquet."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fallow.base.errors import RequestError, unknown
from fallow.base.files import expanded
from fallow.data.arrays import from_tensors
from fallow.data.examples import Examples
from fallow.data.groups import numbered, read_groups, unasked
from fallow.data.layout import layout
from fallow.data.leaks import telling
from fallow.data.marks import marks
from fallow.data.parts import Parts
from fallow.data.prose import columns_of_texts, nothing_else, said_of, sentences, texts_of
from fallow.data.sources.places import PART_OF, SPLITS, TABLES
from fallow.data.sources.wanted import SEVERAL, alike, answers, columns_named, to_predict
from fallow.data.tables import GAPS, MOSTLY, VALUES, Cells, DataTable, lone_mark, numbers, present, row_numbers
from fallow.data.texts import as_bytes
from fallow.data.written import CANDIDATE, PERCENT, decimal, ways

SUFFIXES = TABLES
SEPARATORS = ",;\t|"
LOOKED_AT = 200  # lines, for what parts their cells
END = "\ue000end"  # after the last line of a file: in a row of its own, if all cells ended
PARTED = ("split", "set", "partition", "subset")  # what a column that says the part of each row is called
EXCEL = re.compile(r"\"?sep=(.)\"?")


class Sheet(dict[str, list[str]]):
    """The cells of every column; ``commas`` may be decimal in them, where something else parts the cells."""

    commas = False


def table(
    path: Path,
    cells: Cells,
    target: str | None = None,
    groups: Any = None,
    drop: str | Sequence[str] = (),
    as_: str | None = None,
) -> Parts:
    """Rows of a table: what ``target`` names is predicted from the other columns, but those to ``drop``.

    ``target`` may say what the column holds too, ``"grade:numbers"``, or name several, ``"oedema,fracture"``; without
    it, a column that is called target, label, class or y. ``groups`` names the column of what belongs together, or is
    as for arrays. Columns that only number the rows are left out. A column ``split`` (set, partition, subset) of train,
    val and test says the source's own parts. ``as_`` says that the columns are the pixels of "images", row by row, or
    the samples of "signals", or that only columns of "texts" are to be read, which are where there is nothing else.
    """
    how, said_of_numbers = written(cells)
    cells = dict(cells)
    names, kind = to_predict(cells, target, path)
    drop = columns_named(drop, cells)
    for each in drop:
        if each not in cells:
            raise unknown(f"column of {path} to drop", each, cells)
        if each in names:
            raise RequestError(f"{each!r} is what is predicted, and cannot be dropped")
    asked = {name: cells.pop(name) for name in names}
    belonging = cells.pop(groups) if isinstance(groups, str) and groups in cells else None
    if isinstance(groups, str) and belonging is None and not expanded(groups).exists():
        raise unknown(f"column of {path} for groups", groups, cells)
    said_of_parts: list[str] = []
    part_of = parted(path, cells, set(drop), said_of_parts) or ["train"] * len(asked[names[0]])
    found = answers(path, asked, kind, how)
    rows = {part: [row for row, i in enumerate(found.rows) if part_of[i] == part] for part in SPLITS}
    rows = {part: held for part, held in rows.items() if held}
    if "train" not in rows:
        raise RequestError(f"{path} has no row for training with an answer in {names[0]!r}: fill some in")
    counting, counted = row_numbers({key: column for key, column in cells.items() if key not in drop}, how)
    kept = {key: [column[i] for i in found.rows] for key, column in cells.items() if key not in (*drop, *counting)}
    notes = list(counted.values())
    columns: DataTable | None = None
    texts: tuple[str, ...] = ()
    if as_ in ("images", "signals"):
        pixels = rectangle(kept, how, as_)
        x = layout({part: pixels[held] for part, held in rows.items()}, notes, as_=as_)
    else:
        columns, texts, notes = _columns(kept, notes, how, as_)
        if columns is None:  # what is left out needs no advice
            notes = [counted[name] for name in counting] + said_of(texts, kept)
            strings = texts_of(kept, texts, str(path))
            x = as_bytes({part: strings[held] for part, held in rows.items()})
        else:
            raw = columns.raw(kept)
            x = {part: raw[held] for part, held in rows.items()}
            measured = [column for column in columns.columns if not column.categories]
            values = {column.name: numbers(kept[column.name], column.written)[0] for column in measured}
            notes += telling({column.name: kept[column.name] for column in columns.columns}, values, found.y)
            notes += marks(values)
            for column in columns.columns:
                notes += alike(column.name, column.categories, "categories")
    if groups is None and "test" not in rows:
        notes += unasked(kept)
    told = {part: (torch.zeros(len(held), 1), found.y[held]) for part, held in rows.items()}
    parts = from_tensors(told, names=found.names, target=found.kind)
    if parts.target.kind == "numbers":
        notes += marks(dict(zip(names, found.y.reshape(len(found.rows), -1).T, strict=True)))
    train, val, test = (Examples(x[part], getattr(parts, part).y) if part in rows else None for part in SPLITS)
    assert train is not None
    read = (*names, *(() if texts else kept))
    said = [note for key, note in said_of_numbers.items() if key in read]
    notes = parts.notes + found.notes + said + notes + said_of_parts
    parts = Parts(train, val, test, parts.target, notes, table=columns, texts_of=texts)
    parts.columns = tuple(kept) if columns is None and not texts else ()
    if belonging is not None or groups is not None:
        whose = apart([belonging[i] for i in found.rows], parts.notes) if belonging is not None else read_groups(groups)
        if len(whose) != len(found.rows):
            raise RequestError(
                f"there are {len(whose)} groups for {len(found.rows)} rows: give one for each, or name a column"
            )
        parts.groups = numbered({part: whose[held] for part, held in rows.items()})
    return parts


def _columns(
    cells: Cells, notes: list[str], how: dict[str, str], as_: str | None
) -> tuple[DataTable | None, tuple[str, ...], list[str]]:
    """The columns to learn from, or those of texts where there is nothing else or they are asked for; and sentences."""
    plain = {name: column for name, column in cells.items() if not how[name]}  # the others are numbers, as "12 %" is
    texts = [] if as_ == "features" else columns_of_texts(plain, asked=as_ == "texts")
    table, said = (None, notes) if as_ == "texts" else DataTable.of_cells(cells, notes, how)
    if table is None or (texts and nothing_else(cells, texts, [column.name for column in table.columns])):
        return None, tuple(texts), notes
    if not table.columns:
        words = " --as texts reads it as text." * (as_ is None and len(columns_of_texts(plain, asked=True)) == 1)
        why = " ".join(said) or "the table has only its target"
        raise RequestError(f"no column is left to learn from: {why}{words}")
    if as_ is None and (prose := sentences(plain)):
        said.append(f"Texts, as in {prose[0]!r}, are not used: --as texts learns from texts alone.")
    return table, (), said


def rectangle(cells: Cells, how: dict[str, str], as_: str) -> NDArray[Any]:
    """Rows of which every column is a pixel or a sample, in their order: a number in each, none left out."""
    read = {name: numbers(column, how[name]) for name, column in cells.items()}
    for name, (values, wrong) in read.items():
        if wrong or np.isnan(values).any():
            row = wrong[0] if wrong else int(np.isnan(values).argmax())
            raise RequestError(
                f"row {row + 1} of {name!r} holds {cells[name][row]!r}, and {as_} have a number in every column: "
                f"correct it, or leave the column out (--drop {shlex.quote(name)})"
            )
    if not read:
        raise RequestError(f"no column is left to be read as {as_}: the table has only its target")
    x = np.stack([values for values, _ in read.values()], 1)
    return x.astype(np.int64) if (x == np.rint(x)).all() and np.abs(x).max() < 2**53 else x


def parted(path: Path, cells: dict[str, Any], meant: set[Any], notes: list[str]) -> list[str] | None:
    """The part of every row, if a column says it, which then is nothing else; not one that is ``meant`` otherwise."""
    for name in [name for name in cells if name.strip().lower() in PARTED and name not in meant]:
        words = [cell.strip().lower() for cell in cells[name]]
        if strange := [cell for cell, word in zip(cells[name], words, strict=True) if word not in PART_OF]:
            if len(strange) < len(words):
                notes.append(f"The column {name!r} also holds {strange[0]!r}, so the parts are not taken from it.")
            continue
        found = [PART_OF[word] for word in words]
        if "train" not in found:
            raise RequestError(f"the column {name!r} of {path} is train in no row: write train for some")
        del cells[name]
        notes.append(f"The parts are taken from the column {name!r}.")
        return found
    return None


def apart(belonging: Sequence[str], notes: list[str]) -> NDArray[Any]:
    """The groups of rows; a row that has none is one of its own, which is said."""
    found = [cell if cell.strip().lower() not in GAPS else f"\0{i}" for i, cell in enumerate(belonging)]
    if alone := sum(cell.startswith("\0") for cell in found):
        notes.append(f"{alone} row{'s' * (alone > 1)} without a group: each is a group of its own.")
    return np.asarray(found)


def written(cells: Cells) -> tuple[dict[str, str], dict[str, str]]:
    """How the numbers of the columns of a file are written, and sentences on some (see `fallow.data.written.ways`)."""
    commas = isinstance(cells, Sheet) and cells.commas
    open_ = {  # the others are as Python writes them, and a file of millions is read without a look at each
        name: column for name, column in cells.items() if commas or any("," in cell or "%" in cell for cell in column)
    }
    known = {name: [cell.strip() for cell in column if present(cell)] for name, column in open_.items()}
    found, notes = ways({name: _unmarked(cells) for name, cells in known.items()}, commas, MOSTLY)
    return dict.fromkeys(cells, "") | found, notes


def _unmarked(cells: list[str]) -> list[str]:
    """Without the one mark that stands among many numbers, which is told of when they are read."""
    wrong = [row for row, cell in enumerate(cells) if not CANDIDATE.fullmatch(cell.removesuffix(PERCENT).rstrip())]
    mark = lone_mark(cells, wrong) if 2 * len(wrong) < len(cells) else ""
    return [cell for cell in cells if cell != mark] if mark and len(set(cells)) > VALUES + 1 else cells


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
    cells = {".parquet": _parquet, ".jsonl": _jsonl}.get(path.suffix.lower(), _csv)(path)
    if not cells or not len(next(iter(cells.values()))):
        raise RequestError(f"{path} holds no rows: give a first line of names and a line for each example")
    return cells


def _csv(path: Path) -> Sheet:
    text = decoded(path.read_bytes())
    first, _, rest = text.lstrip().partition("\n")  # empty lines may come before it
    if said := EXCEL.fullmatch(first.strip()):  # how Excel is told of a separator
        separator, text = said[1], rest
    else:
        separator = _separator(text, first)
    found = _rows(text, separator, path)
    if not found:
        return Sheet()
    rows = [row for _, row in found]
    head = [name.strip() for name in rows[0]]
    for number, row in found:
        if len(row) > len(head) == 1:
            raise RequestError(
                f"the first line of {path} ({rows[0][0]}) has one cell, and line {number} has {len(row)}: "
                "let the file begin with the line of names"
            )
        if len(row) != len(head):
            raise RequestError(f"line {number} of {path} has {len(row)} values for {len(head)} columns: correct it")
    columns = list(map(list, zip(*rows[1:], strict=True))) or [[] for _ in head]
    if _like_an_example(head, columns):
        raise RequestError(
            f"the first line of {path} ({head[0]}, {head[1]}, …) looks like an example: write a line of names above it"
        )
    if head.count("") > 1:  # a spreadsheet was wider once
        named = [i for i, name in enumerate(head) if name or any(columns[i])]
        head, columns = [head[i] for i in named], [columns[i] for i in named]
    if len(set(head)) < len(head):
        twice = next(name for name in head if head.count(name) > 1)
        raise RequestError(f"{path} has two columns named {twice!r}: give each its own name")
    sheet = Sheet(zip(head, columns, strict=True))
    sheet.commas = separator != ","
    return sheet


def _separator(text: str, first: str) -> str:
    r"""The most frequent of the first line's separators, of those that part all lines alike, if some do.

    >>> _separator("a, b, c;d\n1;2\n", "a, b, c;d"), _separator("a,b,c;d\n1,2,3\n", "a,b,c;d")
    (';', ',')
    """
    known = sorted((each for each in SEPARATORS if each in first), key=first.count, reverse=True)
    even = [each for each in known if len(known) > 1 and _even(text, each)]
    return next(iter(even or known), SEPARATORS[0])


def _even(text: str, separator: str) -> bool:
    """Whether all of the first lines have equally many cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        return len({len(row) for row in islice(filter(None, reader), LOOKED_AT)}) == 1
    except csv.Error:  # which will be said, if nothing parts the lines better
        return False


def _rows(text: str, separator: str, path: Path) -> list[tuple[int, list[str]]]:
    """The cells of every line that has any, with its number (the last, of a row of several lines)."""
    bare = separator == "\t" and _bare(text)
    lines = io.StringIO(f"{text}\n{END}", newline="")
    reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL)
    before = csv.field_size_limit(len(text) + len(END) + 1)  # a cell may hold a book
    try:
        found = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise RequestError(f"line {reader.line_num} of {path} cannot be read ({error}): correct it") from error
    finally:
        csv.field_size_limit(before)
    if found.pop()[1] != [END]:  # which then is in a cell that never ended
        first = found[-1][0] + 1 if found else 1
        raise RequestError(
            f"line {first} of {path} opens a quotation mark that is never closed: close it, or double it"
        )
    return found


def _bare(text: str) -> bool:
    r"""Whether quotation marks are letters of the cells, as in many files of texts between tabs.

    >>> _bare('id\ttext\n1\t"Yes" she said'), _bare('id\ttext\n1\t"Yes, she said"')
    (True, False)
    """
    rows = [line.split("\t") for line in text.replace("\r\n", "\n").split("\n") if line]
    return len(set(map(len, rows))) == 1 and any(
        cell.startswith('"') and (cell == '"' or not cell.endswith('"')) for row in rows for cell in row
    )


def _like_an_example(head: list[str], columns: list[list[str]]) -> bool:
    """Whether most names are numbers, not all of them whole, nearly all of which lie among those of their columns.

    >>> iris = [["4.9", "7.0"], ["3.0", "3.6"], ["setosa", "virginica"]]
    >>> _like_an_example(["5.1", "3.5", "setosa"], iris), _like_an_example(["700.5", "701", "kind"], iris)
    (True, False)
    """
    named, _ = numbers(head)
    among = np.flatnonzero(~np.isnan(named))
    if 2 * len(among) <= len(head) or not np.mod(named[among], 1).any():
        return False
    held = [numbers(columns[i])[0] for i in among]
    inside = [
        not np.isnan(values).all() and np.nanmin(values) <= name <= np.nanmax(values)
        for name, values in zip(named[among], held, strict=True)
    ]
    return bool(sum(inside) >= MOSTLY * len(inside))


def decoded(content: bytes) -> str:
    """As what wrote it may have: UTF-8, UTF-16 with its mark, else as Windows or Unix did in the west."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1")


def _jsonl(path: Path) -> Sheet:
    """An object on every line, of numbers, strings, or lists of them (several labels); what one lacks is a gap."""
    rows = []
    for number, line in enumerate(decoded(path.read_bytes()).split("\n"), 1):
        try:
            row = json.loads(line) if line.strip() else {}
            rows += [{str(key): _cell(value) for key, value in row.items()}] if row else []
        except (ValueError, AttributeError, RecursionError) as error:
            raise RequestError(
                f"line {number} of {path} cannot be read ({error}): give an object of plain values on every line"
            ) from error
    names = dict.fromkeys(name for row in rows for name in row)
    return Sheet({name: [row.get(name, "") for row in rows] for name in names})


def _cell(value: Any) -> str:
    """A value as a table has it."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return SEVERAL[0].join(map(_cell, value))
    if isinstance(value, list | dict):
        raise ValueError("it holds lists or objects within others")
    return "" if value is None else str(value)


def _parquet(path: Path) -> Sheet:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise RequestError("reading .parquet needs pyarrow: pip install 'fallow[parquet]'") from error
    try:
        found = parquet.read_table(path).to_pydict()
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise RequestError(f"{path} is not a readable .parquet ({str(error).partition(chr(10))[0]})") from error
    return Sheet({name: ["" if cell is None else str(cell) for cell in column] for name, column in found.items()})
