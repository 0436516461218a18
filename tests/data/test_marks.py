"""Numbers that may mark missing values are told of, once; others are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.data import load
from fallow.data.marks import marks

DRAW = np.random.default_rng(0)
AGES = DRAW.integers(20, 80, 200).astype(float)
DEGREES = DRAW.normal(8, 9, 200).round(1)


def with_mark(values: Any, mark: float, every: int = 7) -> Any:
    return np.where(np.arange(len(values)) % every == 0, mark, values)


@pytest.mark.parametrize(
    ("values", "mark"),
    [(AGES, -1), (AGES, 999), (AGES, -99), (DEGREES, -999), (DEGREES, 9999), (DEGREES, 999.9), (10 * AGES, -9)],
)
def test_marks_are_told_of(values: Any, mark: float) -> None:
    assert marks({"x": with_mark(values, mark)}) == [
        f"{mark:g} in 29 rows of 'x' is read as a number: leave those cells empty if it stands for a missing value."
    ]


@pytest.mark.parametrize(
    "values",
    [
        np.tile([-1.0, 0.0, 1.0], 40),  # codes
        np.tile([-1.0, 1.0], 40),
        with_mark(np.zeros(80), 1),
        DEGREES.round(),  # of which some are −1 and −9
        np.arange(1000.0, 10000.0),  # up to 9999, as others
        with_mark(DRAW.uniform(0, 100, 200).round(1), 99.9),
        np.append(AGES, 999),  # once: an outlier
        np.append(AGES, -1),
        np.full(20, np.nan),
        np.full(20, 999.0),
    ],
)
def test_numbers_like_the_others_are_no_marks(values: Any) -> None:
    assert marks({"x": values}) == []


def test_one_mark_of_many_columns_is_one_sentence() -> None:
    found = marks({name: with_mark(AGES, -999) for name in "abcde"})
    assert found == [
        "-999 in 'a' (29 rows), 'b' (29 rows), 'c' (29 rows) and 2 more columns is read as a number: leave those cells "
        "empty if it stands for a missing value."
    ]


def test_marks_in_a_table(tmp_path: Path) -> None:
    price = np.where(np.arange(200) % 9, AGES * 10.5, -999)
    rows = zip(with_mark(DEGREES, -999), AGES, price, strict=True)
    (tmp_path / "t.csv").write_text("degrees,age,price\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    notes = [note for note in load(tmp_path / "t.csv", target="price").notes if "missing value" in note]
    assert [note.partition(" is")[0] for note in notes] == [
        "-999 in 29 rows of 'degrees'",
        "-999 in 23 rows of 'price'",
    ]
