"""What a table is asked for: the column to predict, or several of them, and what they hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError, unknown
from fallow.data.answers import MANY
from fallow.data.tables import GAPS, MOSTLY, WORDS, Cells, lone_mark, measured, numbers, why_texts
from fallow.data.targets import KINDS
from fallow.data.written import plain

TARGETS = ("target", "label", "class", "y")  # what the column to predict is often called
SPLIT = 3  # examples of a class, for training, validation and test
LISTED = 30  # names of columns in an error
ANSWERS = (("no", "yes"), ("false", "true"), ("n", "y"), ("f", "t"))  # that a label is given, not or so
SEVERAL = ";|"  # between the labels of one cell
LARGE = 2**53  # from here on, floats merge whole numbers
PADDED = re.compile(r"[-+]?0\d.*")  # 007


class Answers(NamedTuple):
    """What is to be predicted: y of the rows that have it, its kind and names where they are certain, remarks."""

    y: NDArray[Any]
    rows: list[int]
    kind: str | None
    names: list[str] | None
    notes: list[str]


def to_predict(cells: Cells, asked: str | None, path: Path) -> tuple[list[str], str | None]:
    """The columns to predict, mostly one, and the kind of target where it is said."""
    if len(cells) == 1:
        only = next(iter(cells))
        raise RequestError(
            f"{path} has one column, {only!r}: give another to learn from, and separate them by commas, semicolons or "
            "tabs"
        )
    if asked is not None:
        stem, colon, last = asked.rpartition(":")
        said = last if colon and last in KINDS and asked not in cells else None
        names = columns_named(stem if said else asked, cells)
        strange = [name for name in names if name not in cells]
        if names and not strange:
            return names, said
        if asked not in KINDS:
            raise unknown(f"column of {path} to predict", strange[0] if strange else asked, cells)
    usual = [name for name in cells if name.lower() in TARGETS]
    if len(usual) != 1:
        some = [*list(cells)[:LISTED], *["…"] * (len(cells) > LISTED)]
        raise RequestError(
            f"which column of {path} is to be predicted? name it: --target with one of {', '.join(some)}"
        )
    return usual, asked


def columns_named(given: str | Sequence[str], cells: Cells) -> list[str]:
    """Names of columns: as they are, or parted by commas, of which a name may have some itself.

    Nothing between commas is the column without a name, if there is one.

    >>> columns_named("length, mm,ward", {"length, mm": [], "ward": []}), columns_named(",", {"": []})
    (['length, mm', 'ward'], [''])
    >>> columns_named("a,", {"a": []})
    ['a']
    """
    if not isinstance(given, str):
        return list(given)
    found: list[str] = []
    pieces = given.split(",") if given else []
    while pieces:
        ends = range(len(pieces), 0, -1)
        end = next((end for end in ends if ",".join(pieces[:end]).strip() in cells), 1)
        found.append(",".join(pieces[:end]).strip())
        pieces = pieces[end:]
    return [name for name in dict.fromkeys(found) if name or name in cells]


def answers(path: Path, columns: Cells, kind: str | None, how: dict[str, str]) -> Answers:
    """What the columns to predict hold: a class, a number or several labels in a cell of one; else one thing each."""
    columns = {name: [cell.strip() for cell in column] for name, column in columns.items()}
    for name, column in columns.items():
        if all(cell.lower() in GAPS for cell in column):
            raise RequestError(f"the column {name!r} of {path} is empty: name the one to predict (--target)")
    if len(columns) > 1:
        found, gaps = _side_by_side(columns, kind, how), GAPS
    else:
        ((name, column),) = columns.items()
        found, gaps = _labelled(name, column, kind) or _single(name, column, kind, how[name])
    if found.y.ndim == 1 or found.names == list(columns):
        for name, values in zip(columns, found.y.reshape(len(found.rows), -1).T, strict=True):
            if len(np.unique(values)) < 2:
                same = columns[name][found.rows[0]]
                raise RequestError(
                    f"the column {name!r} of {path} is {same!r} in all rows: there is nothing to predict"
                )
    if absent := len(next(iter(columns.values()))) - len(found.rows):
        lacking = sorted({cell or "empty" for column in columns.values() for cell in column if cell.lower() in gaps})
        counted = f"{absent} row{'s' * (absent > 1)} without {' or '.join(map(repr, columns))} ({', '.join(lacking)})"
        found.notes.append(f"{counted} {'were' if absent > 1 else 'was'} left out.")
    return found


def _side_by_side(columns: Cells, kind: str | None, how: dict[str, str]) -> Answers:
    """Several columns: a label each, where all are 0 and 1, or a number each, of the rows that have all of them."""
    told = {name: given(column) for name, column in columns.items()}
    read = {name: numbers(column, how[name]) for name, column in told.items()}
    for name, (_, wrong) in read.items():
        if wrong or kind not in (None, "labels", "numbers"):
            what = f"row {wrong[0] + 1} of {name!r} holds {columns[name][wrong[0]]!r}" if wrong else f"not {kind}"
            raise RequestError(
                f"several columns are predicted as labels, each 0 or 1 (or no, yes), or as numbers: {what}; name one"
            )
    y = np.stack([values for values, _ in read.values()], 1)
    rows = np.flatnonzero(~np.isnan(y).any(1)).tolist()
    if not rows:
        raise RequestError(f"no row has all of {', '.join(map(repr, columns))}: predict them one by one")
    kind = kind or ("labels" if told != columns or np.isin(y[rows], (0, 1)).all() else "numbers")
    return Answers(y[rows], rows, kind, list(columns), [])


def given(column: Sequence[str]) -> Sequence[str]:
    """Zeros and ones for a label that is told by no and yes, or false and true; other cells as they are.

    >>> given(["True", "False", ""]), given(["yes", "1"]), given(["yes", "unknown", "no"])
    (['1', '0', ''], ['yes', '1'], ['1', 'unknown', '0'])
    """
    words = {cell.strip().lower() for cell in column} - GAPS
    pair = next((pair for pair in ANSWERS if words and (words <= set(pair) or words >= set(pair))), None)
    if pair is None:
        return column
    return [str(pair.index(word)) if (word := cell.strip().lower()) in pair else cell for cell in column]


def _labelled(name: str, column: Sequence[str], kind: str | None) -> tuple[Answers, set[str]] | None:
    """Several labels in a cell, if some of them are in different cells too: else what has a semicolon is a class."""
    several = {cell for cell in column if any(mark in cell for mark in SEVERAL)}
    pieces = Counter(piece for cell in set(column) for piece in pieces_of(cell))
    if kind not in (None, "labels") or not several or (kind is None and max(pieces.values()) < 2):
        return None
    gaps = GAPS - WORDS - {""}  # no label at all is an answer
    rows = [row for row, cell in enumerate(column) if cell.lower() not in gaps]
    names, y = several_labels([column[row] if column[row].lower() not in WORDS else "" for row in rows])
    notes = [
        f"{name!r} holds several labels in a cell ({min(several, key=len)}); for classes: --target {name}:classes."
    ]
    if none := int((y.sum(1) == 0).sum()):
        notes.append(f"{none} row{'s' * (none > 1)} of {name!r} {'have' if none > 1 else 'has'} none of the labels.")
    return Answers(y, rows, "labels", names, notes), gaps


def several_labels(column: Sequence[str]) -> tuple[list[str], NDArray[Any]]:
    """Cells with any number of labels: the names of these, and zeros and ones.

    >>> several_labels(["red;blue", "", "blue"])
    (['blue', 'red'], array([[1, 1],
           [0, 0],
           [1, 0]]))
    """
    held = [pieces_of(cell) for cell in column]
    names = sorted(set().union(*held))
    return names, np.array([[int(name in labels) for name in names] for labels in held])


def pieces_of(cell: str) -> set[str]:
    """The labels in a cell."""
    return {piece.strip() for piece in cell.replace("|", ";").split(";") if piece.strip()}


def _single(name: str, column: Sequence[str], kind: str | None, way: str) -> tuple[Answers, set[str]]:
    """A class or a number in each cell, but the gaps."""
    gaps, notes = _gaps(name, column, kind, way)
    rows = [row for row, answer in enumerate(column) if answer.lower() not in gaps]
    y = _read(name, column, rows, kind, way)
    if said := _measured(name, y, kind):
        kind = "numbers"
    elif kind is None and (code := coded([column[row] for row in rows], y, way)):
        y = np.array([column[row] for row in rows])
        said = [f"The classes in {name!r} are kept as they are written ({code})."]
    if kind == "numbers":
        y = y.astype(np.float64)
    if y.dtype.kind == "U":
        said += alike(name, sorted(set(y.tolist()))) + _marked(name, y.tolist(), way)
    return Answers(y, rows, kind, [name] if y.dtype.kind == "f" else None, notes + said), gaps


def coded(cells: Sequence[str], y: NDArray[Any], way: str) -> str:
    """One of the cells whose whole numbers ``y`` are names: padded, too large, or several for one number; "" if none.

    >>> coded(["7", "007"], np.array([7, 7]), ""), coded(["1", "1.0", "2"], np.array([1, 1, 2]), "")
    ('007', '')
    """
    if y.dtype.kind == "U" or (y != np.round(y)).any():
        return ""
    spelled: dict[float, str] = {}
    for cell, value in sorted(set(zip(cells, y.tolist(), strict=True))):
        bare = plain(cell, way) or ""
        whole, point, rest = bare.partition(".")
        bare = whole if point and not rest.strip("0") else bare  # 1.0 is 1
        if PADDED.fullmatch(bare) or abs(value) >= LARGE or spelled.setdefault(value, bare) != bare:
            return cell
    return ""


def alike(name: str, classes: Sequence[str], what: str = "classes") -> list[str]:
    """Says when names of classes differ in nothing but capitals, spaces or code points, or in how a number is written.

    >>> alike("animals", ["Cat ", "cat", "dog"])
    ["'Cat ' and 'cat' in 'animals' are treated as two classes: spell them alike if they are one."]
    """
    found: dict[str | float, list[str]] = {}
    for each, value in zip(classes, numbers(classes)[0].tolist(), strict=True):
        letters = " ".join(normalize("NFKC", each).casefold().split()) if len(each) > 1 else each  # A is not a
        found.setdefault(value if abs(value) < LARGE else letters, []).append(each)
    return [
        f"{' and '.join(map(repr, some))} in {name!r} are treated as {'two' if len(some) == 2 else len(some)} {what}: "
        "spell them alike if they are one."
        for some in found.values()
        if len(some) > 1
    ]


def _marked(name: str, answers: Sequence[str], way: str) -> list[str]:
    """Says when a class may be a mark of gaps: the only one without letters and digits, or a text among numbers."""
    counts = Counter(answers)
    signs = [each for each in counts if not any(letter.isalnum() for letter in each)]
    wrong = numbers(answers, way)[1]
    mark = signs[0] if len(signs) == 1 else lone_mark(answers, wrong) if 2 * len(wrong) < len(answers) else ""
    if not mark or counts[mark] == len(answers):
        return []
    rows = f"{counts[mark]} row{'s' * (counts[mark] > 1)}"
    return [f"{mark!r} in {rows} of {name!r} is treated as a class: leave those cells empty if it is none."]


def _gaps(name: str, answers: Sequence[str], kind: str | None, way: str) -> tuple[set[str], list[str]]:
    """How a missing answer is written: among words, none and null are classes, which is said."""
    known = [answer for answer in answers if answer.lower() not in GAPS]
    if kind == "numbers" or 2 * len(numbers(known, way)[1]) <= len(known):
        return GAPS, []
    counts = Counter(answer for answer in answers if answer.lower() in WORDS)
    return GAPS - WORDS, [
        f"{word!r} in {count} row{'s' * (count > 1)} of {name!r} is treated as a class."
        for word, count in counts.items()
    ]


def _measured(name: str, y: NDArray[Any], kind: str | None) -> list[str]:
    """Says when whole numbers are counts or measurements: many, and some too rare to be classes that are split."""
    if kind is not None or y.dtype.kind == "U" or (y != np.round(y)).any():
        return []
    values, counts = np.unique(y, return_counts=True)
    if len(values) <= MANY or counts.min() >= SPLIT:
        return []
    return [
        f"{name!r} has {len(values):,} different values and is treated as a number; "
        f"for classes: --target {name}:classes."
    ]


def _read(name: str, answers: Sequence[str], there: list[int], kind: str | None, way: str) -> NDArray[Any]:
    """Whole numbers, numbers, or else names of classes; a text among numbers is told with its row."""
    known = [answers[i] for i in there]
    values, wrong = numbers(known, way)
    few = len(wrong) <= (1 - MOSTLY) * len(known) or (2 * len(wrong) < len(known) and lone_mark(known, wrong))
    if wrong and (kind == "numbers" or (kind is None and few and measured(values))):
        row = there[wrong[0]]
        raise RequestError(
            f"row {row + 1} of {name!r}, which is to be predicted, holds {answers[row]!r} among numbers: correct it, "
            f"leave it empty, or say --target {name}:classes"
        )
    if wrong and kind is None and len(counts := Counter(known)) > MANY and (why := why_texts(counts)):
        raise RequestError(
            f"{name!r}, which is to be predicted, holds texts, as {why}: write numbers alone, in one unit, "
            f"or say --target {name}:classes"
        )
    if wrong or kind == "classes":
        return np.array(known)
    return values.astype(np.int64) if (values == np.round(values)).all() and np.abs(values).max() < LARGE else values
