"""Tables: what their columns are, how rows become features, and every way in which they can be wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fallow
from fallow import Predictor
from fallow.base.errors import RequestError
from fallow.core.record import RunFolder
from fallow.data import load
from fallow.data.tables import DataTable, numbers
from fallow.data.texts import to_strings

ROWS = 60


def written(path: Path, separator: str = ",", **columns: Any) -> Path:
    names = list(columns)
    lines = [separator.join(names)] + [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def columns(rows: int = ROWS, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    age = draw.integers(20, 80, rows).astype(object)
    age[::7] = ""
    ward = draw.choice(["north", "south", "west"], rows)
    dose = np.round(draw.lognormal(size=rows), 4)
    price = np.round(3.0 * dose + (ward == "west") + draw.normal(0, 0.1, rows), 4)
    return {"age": age, "ward": ward, "dose": dose, "price": price}


def test_features_by_hand(tmp_path: Path) -> None:
    """Every feature of every part against numpy, with medians and quartiles of the training rows alone."""
    held = columns()
    data = load(written(tmp_path / "t.csv", **held), target="price")
    assert data.table is not None
    raw = data.table.raw({name: [str(cell) for cell in column] for name, column in held.items()})
    y = torch.tensor(held["price"].astype(np.float32))
    places = [int((y == value).nonzero()[0]) for value in data.train.y]
    train = raw[places].double().numpy()
    age, dose = train[:, 0], train[:, 2]
    for part in (data.train, data.val, data.test):
        mine = raw[[int((y == value).nonzero()[0]) for value in part.y]].double().numpy()
        expected = []
        for column, known in ((0, age), (2, dose)):
            low, median, high = np.nanpercentile(known, (25, 50, 75))
            z = np.nan_to_num((mine[:, column] - median) / ((high - low) / 1.349))
            expected.append(z / np.sqrt(1 + (z / 3) ** 2))
        expected += [mine[:, 1] == k for k in range(3)]
        expected.append(np.isnan(mine[:, 0]))
        np.testing.assert_allclose(part.x.numpy(), np.stack(expected, 1), atol=1e-5)
    assert data.target.kind == "numbers"
    assert list(data.target.names) == ["price"]
    assert DataTable.of(json.loads(json.dumps(data.table.describe()))) == data.table


def test_predict_on_the_raw_file_gives_the_recorded_outputs(tmp_path: Path) -> None:
    held = columns(200)
    path = written(tmp_path / "t.csv", **held)
    fallow.fit("mlp:hidden=8,embed=2", path, target="price", generations=1, epochs=3, out=tmp_path / "run")
    data = load(path, target="price")
    found = {p.name: p.label for p in Predictor(tmp_path / "run", "last")(path)}
    places = [int(np.flatnonzero(held["price"].astype(np.float32) == float(v))[0]) for v in data.test.y]
    expected = data.target.decode(RunFolder(tmp_path / "run").outputs()["test_last"]).flatten()
    np.testing.assert_allclose([found[f"{path}:{i}"] for i in places], expected, atol=1e-6)
    without = written(
        tmp_path / "more.csv", **{"extra": held["age"], **{k: v for k, v in held.items() if k != "price"}}
    )
    again = Predictor(tmp_path / "run", "last")(without)
    assert [p.label for p in again] == list(found.values())
    odd = written(tmp_path / "odd.csv", age=["", 40, 40], ward=["north", "moon", "sun"], dose=[1, "", 1])
    with pytest.warns(UserWarning, match="which all training rows have") as said:  # age had gaps there, too
        assert len(Predictor(tmp_path / "run", "last")(odd)) == 3
    assert [str(w.message).partition(": ")[2].partition(",")[0] for w in said] == [
        "no known category in 'ward'", "no number in 'dose'",
    ]  # fmt: skip
    assert str(said[0].message).startswith(f"{odd}:1 and 1 more: ")


def test_an_unknown_category_is_said_where_gaps_are_known(tmp_path: Path) -> None:
    held = columns()
    held["ward"] = ["" if i % 5 == 0 else ward for i, ward in enumerate(held["ward"])]
    path = written(tmp_path / "t.csv", **held)
    fallow.fit("mlp:hidden=4", path, target="price", generations=1, epochs=1, out=tmp_path / "run")
    odd = written(tmp_path / "odd.csv", age=[40] * 4, ward=["", "north", "moon", "sun"], dose=[1] * 4)
    with pytest.warns(UserWarning, match="no known category") as said:
        Predictor(tmp_path / "run")(odd)
    assert [str(w.message) for w in said] == [
        f"{odd}:2 and 1 more: no known category in 'ward' ('moon'); treated as missing"
    ]
    Predictor(tmp_path / "run")(written(tmp_path / "odd.csv", age=["", ""], ward=["", "north"], dose=[1, 2]))


def prose(words: int) -> dict[str, list[str]]:
    draw = np.random.default_rng(0)
    kind = [str(k) for k in np.arange(ROWS) % 2]
    own = {"0": "dull", "1": "great"}
    texts = [" ".join([*draw.choice(["film", "plot", "end", "cast"], words - 2), f"no{i}", own[k]]) for i, k in
             enumerate(kind)]  # fmt: skip
    return {"review": texts, "label": kind}


def test_a_table_that_holds_texts_alone_is_read_as_texts(tmp_path: Path) -> None:
    held = prose(6)
    path = written(tmp_path / "t.csv", id=range(7, 7 + ROWS), **held)
    data = load(path)
    assert data.texts
    assert data.texts_of == ("review",)
    assert sorted(text for part in (data.train, data.val, data.test) for (text,) in to_strings(part.x)) == sorted(
        held["review"]
    )
    assert "Examples are the texts in 'review'." in data.notes
    own = written(tmp_path / "own.csv", id=[3 * i for i in range(ROWS)], **held)  # advice on what is left out is none
    assert not any("--drop" in note for note in load(own).notes)
    odd = written(tmp_path / "odd.csv", tweet_id=[3 * i for i in range(ROWS)], **held)  # an identifier tells nothing
    assert "Examples are the texts in 'review'; 'tweet_id' left out." in load(odd).notes
    share = written(tmp_path / "share.csv", share=[f"{i} %" for i in range(ROWS)], label=held["label"])
    assert load(share).table is not None  # numbers, and no phrases
    short = written(tmp_path / "short.csv", **prose(3))
    assert load(short).texts_of == ("review",)
    names = {"review": [f"film{i}" for i in range(ROWS)], "label": held["label"]}
    with pytest.raises(RequestError, match=r"no column is left .* was left out\. --as texts reads it as text\.$"):
        load(written(tmp_path / "names.csv", **names))
    assert load(tmp_path / "names.csv", as_="texts").texts


def test_texts_beside_features_are_read_if_asked(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", stars=[i % 5 for i in range(ROWS)], **prose(6))
    data = load(path)
    assert data.table is not None
    assert "Texts, as in 'review', are not used: --as texts learns from texts alone." in data.notes
    assert "Examples are the texts in 'review'; 'stars' left out." in load(path, as_="texts").notes
    assert all("--as texts" not in note for note in load(path, as_="features").notes)
    with pytest.raises(RequestError, match="no column of texts, and an example is one text or two"):
        load(path, as_="texts", drop="review")
    with pytest.raises(RequestError, match="as_=texts is for strings, and these are numbers"):
        load((np.zeros((8, 3)), np.arange(8) % 2), as_="texts")
    more = prose(6)["review"]
    assert load(written(tmp_path / "pairs.csv", title=more, **prose(7))).texts_of == ("title", "review")
    with pytest.raises(RequestError, match=r"has texts in 3 columns .*: leave others out"):
        load(written(tmp_path / "many.csv", title=more, summary=more, **prose(7)))


def test_long_texts_and_quotation_marks(tmp_path: Path) -> None:
    long, label = "word " * 40_000, ["a", "b"] * 30
    data = load(written(tmp_path / "long.csv", text=[f"{long}{i}" for i in range(60)], label=label))
    assert data.sizes == {"train": 38, "val": 10, "test": 12}
    texts = [f'"Yes" {i}, said he and she and they' if i % 7 else f'" {i} left open in five words' for i in range(60)]
    data = load(written(tmp_path / "t.tsv", "\t", text=texts, label=label))  # as they are, not as marks of a cell
    assert {text for part in (data.train, data.val, data.test) for (text,) in to_strings(part.x)} == set(texts)


def test_repeated_and_empty_texts(tmp_path: Path) -> None:
    """Sentences that come again are categories, but texts if asked for; that nothing is like nothing is no leak."""
    path = written(tmp_path / "t.csv", text=prose(6)["review"][:20] * 10, label=["a", "b"] * 100)
    assert load(path).table is not None
    assert load(path, as_="texts").texts_of == ("text",)
    some = written(tmp_path / "s.csv", text=[*prose(6)["review"], *[""] * 60], label=["a", "b"] * 60)
    notes = load(some).notes
    assert "60 rows have no text." in notes
    assert not any("in training too" in note for note in notes)


def test_texts_that_do_not_part_their_words(tmp_path: Path) -> None:
    """Every letter is a word: a sentence without spaces was a name, and to a network one word that comes once."""
    good, bad, also = ("物流很快", "质量不错"), ("太差了", "非常失望"), ("今天下雨", "和朋友一起", "在网上")
    texts = [f"{also[i % 3]}，{(good, bad)[i % 2][i // 2 % 2]}{also[i // 3 % 3]}{i}。" for i in range(80)]
    data = load(written(tmp_path / "t.csv", review=texts, label=["好", "坏"] * 40))
    assert data.texts_of == ("review",)
    assert fallow.fit(None, data, generations=1, epochs=30).last["test_accuracy"] > 0.9


def test_new_texts_are_found_by_the_names_of_their_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", **prose(6))
    fallow.fit(None, path, generations=1, epochs=20, lr=0.01, out=tmp_path / "run")
    predictor = Predictor(tmp_path / "run")
    new = written(tmp_path / "new.csv", note=["the cast is no good", "who wrote all this"], review=["great", "dull"])
    assert [p.label for p in predictor(new)] == ["1", "0"]
    with pytest.raises(RequestError, match="lacks the column 'review', whose texts"):
        predictor(written(tmp_path / "odd.csv", note=["great film", "dull film"]))
    with pytest.raises(RequestError, match="trained with: did you mean 'Review'"):
        predictor(written(tmp_path / "odd.csv", Review=["great film", "dull film"]))
    text = prose(6)
    np.savez(tmp_path / "t.npz", x=np.array(text["review"]), y=np.array(text["label"]))
    fallow.fit(None, tmp_path / "t.npz", generations=1, epochs=1, out=tmp_path / "of-npz")
    assert len(Predictor(tmp_path / "of-npz")(path)) == ROWS  # the one column that holds texts


def test_classes_categories_and_separators(tmp_path: Path) -> None:
    held = columns()
    held["price"] = [f"{value:.4f}".replace(".", ",") for value in held["price"]]
    held["grade"] = ["good" if i % 3 else "bad" for i in range(ROWS)]
    data = load(written(tmp_path / "t.csv", ";", **held), target="grade")
    assert data.classes == ["bad", "good"]
    assert data.shape == (3 + 3 + 1,)  # three numbers (one with decimal commas), three wards, a gap
    usual = load(
        written(tmp_path / "u.tsv", "\t", **{k: v for k, v in held.items() if k != "grade"} | {"Class": held["grade"]})
    )
    assert usual.classes == ["bad", "good"]


def ways_of(path: Path, **options: Any) -> tuple[Any, dict[str, str]]:
    data = load(path, **options)
    assert data.table is not None
    return data, {column.name: column.written for column in data.table.columns}


def test_points_are_thousands_where_commas_are_decimal(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    amount = draw.integers(1, 4_000_000, ROWS)
    marked = [f"{value:,}".replace(",", ".") for value in amount]
    price = [f"{value:.2f}".replace(".", ",") for value in draw.lognormal(size=ROWS)]
    sold = [f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".") for value in amount / 7]
    held = {"amount": marked, "price": price, "sold": sold, "count": draw.integers(0, 9, ROWS)}
    path = written(tmp_path / "t.csv", ";", **held, label=["y", "n"] * 30)
    data, ways = ways_of(path, target="label")
    assert set(ways.values()) == {"1.234,5"}
    raw = data.table.raw({name: [str(cell) for cell in column] for name, column in held.items()})
    assert raw[:, 0].tolist() == amount.astype(np.float32).tolist()
    np.testing.assert_allclose(raw[:, 2], np.round(amount / 7, 2), rtol=1e-6)
    said = " ".join(data.notes)
    assert f"In 'amount' points mark thousands: {marked[0]} is read as {amount[0]}." in said
    assert "In 'sold' points mark thousands" in said
    assert "'price'" not in said  # decimal commas are no news
    sums = load(path, target="sold")
    assert sums.target.kind == "numbers"
    assert max(part.y.max().item() for part in (sums.train, sums.val, sums.test)) == pytest.approx(max(amount) / 7)
    without = written(tmp_path / "u.csv", ";", a=["2.176", "1.211"] * 30, b=range(ROWS), label=["y", "n"] * 30)
    assert set(ways_of(without, target="label")[1].values()) == {""}  # nothing says that points are not decimal
    three = written(tmp_path / "w.csv", ";", a=["2,176", "1,211"] * 30, label=["y", "n"] * 30)
    data, ways = ways_of(three, target="label")  # nor that commas are not
    assert ways == {"a": "1.234,5"}
    assert "In 'a' commas are read as decimal points: 2,176 is read as 2.176." in data.notes
    points = written(tmp_path / "v.csv", ";", a=["2.176", "1.211"] * 30, b=price, c=["1.5", "2.25"] * 30,
                     label=["y", "n"] * 30)  # fmt: skip
    assert ways_of(points, target="label")[1] == {"a": "", "b": "1.234,5", "c": ""}


def test_thousands_with_commas_and_percent(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    held = {
        "share": [f"{value:.1f}%" for value in draw.uniform(0, 100, ROWS)],
        "income": [f'"{value:,}"' for value in draw.integers(100, 90_000, ROWS)],
        "codes": ['"1,2"', '"3,1"'] * 30,
    }
    data, ways = ways_of(written(tmp_path / "t.csv", **held, label=["y", "n"] * 30), target="label")
    assert ways == {"share": "%", "income": "1,234.5", "codes": ""}
    assert data.shape == (4,)
    raw = data.table.raw({"share": ["12.5 %", "", "3%"], "income": ["1,234", "1234.5", "12"], "codes": ["1,2"] * 3})
    np.testing.assert_array_equal(raw[:, :2], [[12.5, 1234], [np.nan, 1234.5], [3, 12]])
    assert "'share' is read as numbers, in percent." in data.notes
    assert any(note.startswith("In 'income' commas mark thousands: ") for note in data.notes)
    for cells, says in (
        ({"share": ["12"]}, "row 1 of 'share' holds '12', where a number belongs, written as 12%"),
        ({"income": ["1,5"]}, "'1,5', where a number belongs, written as 1,234.5"),
    ):
        with pytest.raises(RequestError, match=says):
            data.table.raw({"share": ["12%"], "income": ["1"], "codes": ["1,2"]} | cells)


def test_new_rows_are_read_as_training_was(tmp_path: Path) -> None:
    """A single row cannot tell what 2.176 is."""
    draw = np.random.default_rng(0)
    price = [f"{value:.2f}".replace(".", ",") for value in draw.lognormal(size=ROWS)]
    amount = draw.integers(100, 4000, ROWS)
    held = {"amount": [f"{value:,}".replace(",", ".") for value in amount], "price": price}
    path = written(tmp_path / "t.csv", ";", **held, label=["y", "n"] * 30)
    fallow.fit("mlp:hidden=4", path, target="label", generations=1, epochs=1, out=tmp_path / "run")
    model = Predictor(tmp_path / "run")
    whole = [found.confidence for found in model(path)]
    row = written(tmp_path / "one.csv", ";", amount=[held["amount"][3]], price=[price[3]])
    assert model(row)[0].confidence == pytest.approx(whole[3], abs=1e-6)
    plain = written(tmp_path / "plain.csv", ";", amount=[amount[3]], price=[price[3]])
    assert model(plain)[0].confidence == pytest.approx(whole[3], abs=1e-6)
    with pytest.raises(RequestError, match=r"'1\.5', where a number belongs, written as 1\.234,5"):
        model(written(tmp_path / "one.csv", ";", amount=["1.5"], price=["2"]))
    points = columns() | {"label": ["y", "n"] * 30}
    fallow.fit("mlp:hidden=4", written(tmp_path / "p.csv", **points), target="label", generations=1, epochs=1,
               out=tmp_path / "other")  # fmt: skip
    asked = {"age": ["40"], "ward": ["west"], "dose": ["1.25"], "price": ["2.5"]}
    expected = Predictor(tmp_path / "other")(written(tmp_path / "q.csv", **asked))[0].confidence
    asked |= {"dose": ["1,25"], "price": ["2,5"]}
    assert Predictor(tmp_path / "other")(written(tmp_path / "q.csv", ";", **asked))[0].confidence == expected
    with pytest.raises(RequestError, match="'2,176', where a number belongs"):  # 2.176, or 2176
        Predictor(tmp_path / "other")(written(tmp_path / "q.csv", ";", **asked | {"dose": ["2,176"]}))


def test_whole_numbers_that_cannot_be_classes_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "birds.csv"
    rows = [f"{i % 7},{2700 + 25 * (i % 60)}" for i in range(200)]
    file.write_text("\n".join(["wing,mass", *rows, "3,6300"]))
    data = load(file, target="mass")
    assert data.target.kind == "numbers"
    told = "'mass' has 61 different values and is treated as a number; for classes: --target mass:classes."
    assert told in data.notes
    with pytest.raises(RequestError, match="class '6300' has 1 of the 3 examples"):
        load(file, target="mass:classes")
    file.write_text("\n".join(["wing,mass", *rows[:180]]))  # three rows of each: they may be classes
    assert load(file, target="mass").target.kind == "classes"


def test_counts_that_are_too_rare_for_classes_are_shown_the_way(tmp_path: Path) -> None:
    held = columns() | {"visits": [0, 1, 2] * 19 + [0, 1, 9]}
    with pytest.raises(RequestError, match="of a table COLUMN:numbers"):
        load(written(tmp_path / "t.csv", **held), target="visits")
    assert load(tmp_path / "t.csv", target="visits:numbers").target.names == ("visits",)


def test_a_category_that_nobody_knew_is_a_gap(tmp_path: Path) -> None:
    data = load(written(tmp_path / "t.csv", **columns()), target="price")
    assert data.table is not None
    rows = data.table.encode(data.table.raw({"age": ["", "50"], "ward": ["east", "north"], "dose": ["1", "1"]}))
    assert rows[0, 2:5].tolist() == [0, 0, 0]
    assert rows[1, 2:5].tolist() == [1, 0, 0]
    assert rows[:, 5].tolist() == [1, 0]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    held = columns() | {"name": [f"patient {i}" for i in range(ROWS)], "site": ["here"] * ROWS, "none": [""] * ROWS}
    held["price"][3] = np.nan
    data = load(written(tmp_path / "t.csv", **held), target="price", drop="dose")
    assert data.table is not None
    assert [column.name for column in data.table.columns] == ["age", "ward"]
    said = " ".join(data.notes)
    for words in (
        "'name' has 59 different texts",
        "'site' is the same in all rows",
        "'none' is empty",
        "1 row without 'price' (nan) was left out.",
    ):
        assert words in said


def test_a_table_without_names_is_not_robbed_of_its_first_row(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [f"{a:.2f},{b:.2f},{'yes' if a > b else 'no'}" for a, b in draw.normal(size=(40, 2))]
    (tmp_path / "t.csv").write_text("\n".join(["0.10,-0.20,yes", *rows]))
    with pytest.raises(
        RequestError, match=r"\(0\.10, -0\.20, …\) looks like an example: write a line of names above it"
    ):
        load(tmp_path / "t.csv", target="yes")
    (tmp_path / "t.csv").write_text("\n".join(["400.5,402.5,kind", *rows]))  # wavelengths
    assert load(tmp_path / "t.csv", target="kind").shape == (2,)
    (tmp_path / "t.csv").write_text("\n".join(["0,1,kind", *rows]))  # numbered
    assert load(tmp_path / "t.csv", target="kind").shape == (2,)


@pytest.mark.parametrize("spelling", ["pixel{}", "Pixel_{}", "px{}"])
def test_pixels_in_columns_are_recognised(spelling: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, (30, 16))
    x[:, :5] = 0
    held = {spelling.format(i): x[:, i].tolist() for i in range(16)} | {"label": [i % 3 for i in range(30)]}
    said = load(written(tmp_path / "t.csv", **held), target="label").notes
    first, last = (spelling.format(i) for i in (0, 15))
    assert any(note.startswith(f"The columns {first!r} to {last!r} look like images of 4×4") for note in said)
    assert f"5 columns are the same in all rows and were left out: {first!r} to {spelling.format(4)!r}." in said


@pytest.mark.parametrize("separator", [",", ";"])
def test_columns_of_pixels_and_of_samples(separator: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, (60, 16))
    x[:, :5] = 0  # a corner that is always black is a corner
    held = {"label": [i % 3 for i in range(60)], "id": range(60)} | {f"pixel{i}": x[:, i] for i in range(16)}
    path = written(tmp_path / "t.csv", separator, **held)
    data = load(path, as_="images")
    assert (data.shape, data.table, data.train.x.dtype) == ((1, 4, 4), None, torch.uint8)
    assert all(row.flatten().tolist() in x.tolist() for row in data.train.x)
    fallow.fit("mlp:hidden=4", path, as_="images", generations=1, epochs=1, out=tmp_path / "run")
    alone = written(tmp_path / "new.csv", separator, **{f"pixel{i}": x[:, i] for i in range(16)})
    found = [Predictor(tmp_path / "run")(file) for file in (path, alone)]  # with its labels, or without
    assert [p.label for p in found[0]] == [p.label for p in found[1]]
    orders = np.random.default_rng(1).permutation(16)
    other = written(tmp_path / "other.csv", separator, kind=held["label"], **{f"pixel{i}": x[:, i] for i in orders})
    found += [Predictor(tmp_path / "run")(other)]
    assert [p.confidence for p in found[2]] == [p.confidence for p in found[0]]
    fallow.fit("mlp:hidden=4", other, as_="images", target="kind", generations=1, epochs=1, out=tmp_path / "named")
    assert len(Predictor(tmp_path / "named")(other)) == 60  # what was predicted is left out, however it is called
    lacking = written(tmp_path / "less.csv", separator, **{f"pixel{i}": x[:, i] for i in range(15)}, more=x[:, 15])
    with pytest.raises(RequestError, match="lacks the column 'pixel15', which the model was trained with"):
        Predictor(tmp_path / "run")(lacking)
    halves = written(tmp_path / "s.csv", separator, **held | {"pixel3": x[:, 3] + 0.5})
    signals = load(halves, as_="signals")
    assert (signals.shape, signals.train.x[0, 0, 3].item()) == ((1, 16), 0.5)
    assert load(path, as_="features").table is not None
    for change, says in (
        ({"pixel7": [""] * 60}, "row 1 of 'pixel7' holds '', and images"),
        ({"pixel16": x[:, 0]}, "squares"),
    ):
        with pytest.raises(RequestError, match=says):
            load(written(tmp_path / "bad.csv", separator, **held | change), as_="images")


def test_several_columns_are_predicted_at_once(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    held = columns() | {name: draw.integers(0, 2, ROWS).astype(object) for name in ("oedema", "fracture, old")}
    held["oedema"][3] = ""
    path = written(tmp_path / "t.csv", ";", **held)
    data = load(path, target="oedema,fracture, old")
    assert (data.target.kind, data.classes) == ("labels", ["oedema", "fracture, old"])
    assert [column.name for column in data.table.columns] == ["age", "ward", "dose", "price"]
    assert "1 row without 'oedema' or 'fracture, old' (empty) was left out." in data.notes
    data = load(path, target="dose,price")
    assert (data.target.kind, data.classes) == ("numbers", ["dose", "price"])
    assert load(path, target="oedema,fracture, old:numbers").target.kind == "numbers"
    for target, says in (
        ("dose,prise", "did you mean 'price'"),
        ("dose,ward", "row 1 of 'ward' holds"),
        ("dose,price:classes", "not classes; name one"),
    ):
        with pytest.raises(RequestError, match=says):
            load(path, target=target)
    with pytest.raises(RequestError, match="'dose' is what is predicted"):
        load(path, target="dose,price", drop="dose")
    with pytest.raises(RequestError, match=r"'oedema' of .* is '0' in all rows"):
        load(written(tmp_path / "t.csv", ";", **held | {"oedema": [0] * ROWS}), target="oedema,fracture, old")


@pytest.mark.parametrize("words", [("no", "yes"), ("False", "True"), ("N", "y")])
def test_labels_told_by_words(words: tuple[str, str], tmp_path: Path) -> None:
    given = np.random.default_rng(0).integers(0, 2, (ROWS, 2))
    told = [[words[i] for i in column] for column in given.T.tolist()]
    told[0][3] = ""
    path = written(tmp_path / "t.csv", **columns() | {"oedema": told[0], "fracture": told[1]})
    data = load(path, target="oedema,fracture", val=0, test=0)
    assert data.target.kind == "labels"
    assert data.train.y.tolist() == np.delete(given, 3, 0).tolist()
    with pytest.raises(RequestError, match="give each label as 0 or 1"):  # a dose is no label
        load(path, target="oedema,dose")
    told[1][:3] = [words[0], words[1], "unknown"]
    with pytest.raises(RequestError, match="row 3 of 'fracture' holds 'unknown'"):
        load(written(path, **columns() | {"oedema": told[0], "fracture": told[1]}), target="oedema,fracture")


def test_several_labels_in_a_cell(tmp_path: Path) -> None:
    cells = ["red;green", "green | blue", "", "none", "blue", "?"] * 10
    path = written(tmp_path / "t.csv", **columns() | {"tags": cells})
    data = load(path, target="tags", val=0, test=0)
    assert (data.target.kind, data.classes) == ("labels", ["blue", "green", "red"])
    assert data.train.y[:5].tolist() == [[0, 1, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert "'tags' holds several labels in a cell (red;green); for classes: --target tags:classes." in data.notes
    assert "20 rows of 'tags' have none of the labels." in data.notes
    assert "10 rows without 'tags' (?) were left out." in data.notes
    assert load(path, target="tags:classes").target.kind == "classes"
    apart = ["a;1", "b;2", "c"] * 20  # no piece is in two of them: these are names
    assert load(written(tmp_path / "t.csv", **columns() | {"tags": apart}), target="tags").target.kind == "classes"


def test_a_column_that_says_the_answer_is_named(tmp_path: Path) -> None:
    held = columns(120)
    held |= {"ill": ["yes", "no", "no"] * 40, "code": [7, 3, 4] * 40, "id": [*range(1, 120), 1000]}
    held |= {"in cents": np.round(100 * held["price"] + 5, 2), "half": [7, 3, 3] * 39 + [3, 3, 7]}

    def named(target: str) -> list[str]:
        notes = load(written(tmp_path / "t.csv", **held), target=target).notes
        return [note.split("'")[1] for note in notes if "alone gives the target" in note]

    celsius = np.round(np.random.default_rng(0).normal(20, 5, 120), 1)
    held |= {"celsius": celsius, "°F": np.round(1.8 * celsius + 32, 1), "K": np.round(celsius + 273.15)}
    held |= {"near": np.round(celsius + np.tile([0.15, -0.15], 60), 1), "bent": np.round(celsius + celsius**2 / 900, 1)}

    assert named("ill") == ["code"]
    assert named("price") == ["in cents"]
    assert named("celsius") == ["°F"]  # rounded, as the thermometer beside it is not
    assert named("ward") == []


def test_categories_beyond_the_hundred_are_said(tmp_path: Path) -> None:
    town = [f"t{i % 110}" for i in range(300)]
    data = load(written(tmp_path / "t.csv", **columns(300) | {"town": town}), target="price")
    said = "has 110 categories: the 100 most frequent are kept, and the others, in 20 rows, are treated as missing."
    assert f"The column 'town' {said}" in data.notes


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "ID", "#", "__index_level_0__", "PassengerId", "sample_id"])
def test_row_numbers_are_left_out(name: str, tmp_path: Path) -> None:
    """Of all rows, in any order; as a file sorted by its classes tells them by their places."""
    held = {name: [*range(30, 60), *range(30)]} | columns()
    held["price"][3] = np.nan  # a row that is left out is no gap in the numbers
    data = load(written(tmp_path / "t.csv", **held), target="price")
    assert data.table is not None
    assert [column.name for column in data.table.columns] == ["age", "ward", "dose"]
    assert any(note.startswith(f"The column {name!r}") and "numbers the rows and was left out" in note
               for note in data.notes)  # fmt: skip
    held[name][5] = 100
    kept = load(written(tmp_path / "t.csv", **held), target="price")
    assert kept.table is not None
    assert [column.name for column in kept.table.columns] == [name, "age", "ward", "dose"]
    assert any(f"The column {name!r} has a different number in every row" in note for note in kept.notes)


def test_row_numbers_of_sorted_classes_are_said(tmp_path: Path) -> None:
    """Whatever they are called: each class has a range of them."""
    draw = np.random.default_rng(0)
    ids = np.concatenate([draw.choice(500, 30, replace=False), 500 + draw.choice(500, 30, replace=False)])
    held = columns() | {"ids": ids, "kind": ["a"] * 30 + ["b"] * 30}
    said = "The column 'ids' alone gives the target in all rows: if it will not be known for new data, --drop ids."
    assert said in load(written(tmp_path / "t.csv", **held), target="kind").notes
    held["ids"][0], held["ids"][-1] = held["ids"][-1], held["ids"][0]
    assert said not in load(written(tmp_path / "t.csv", **held), target="kind").notes
    many = {f"wave{i}": sorted(draw.normal(size=60)) for i in range(5)} | {"kind": held["kind"]}
    said = "Each of 5 columns, 'wave0' to 'wave4', alone gives the target in all rows."
    assert said in load(written(tmp_path / "m.csv", **many), target="kind").notes


def test_what_belongs_together_is_asked_for(tmp_path: Path) -> None:
    held = columns() | {"Subject": [f"p{i // 3}" for i in range(ROWS)]}
    said = "'Subject' has 20 values in 60 rows: if rows of one belong together, "
    said += "--groups Subject keeps them on one side."
    assert said in load(written(tmp_path / "t.csv", **held), target="price").notes
    assert said not in load(tmp_path / "t.csv", target="price", groups="Subject").notes


def test_a_minus_sign_is_read(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).normal(size=ROWS).round(3)
    held = {"typed": [f"{x}".replace("-", "−") for x in draw], "plain": draw, "kind": ["a", "b"] * 30}
    data = load(written(tmp_path / "t.csv", **held), target="kind")
    assert data.shape == (2,)
    assert torch.equal(data.train.x[:, 0], data.train.x[:, 1])


def test_an_answer_with_a_unit_is_no_class(tmp_path: Path) -> None:
    held = columns() | {"cost": [f"${1000 + 7 * i}" for i in range(ROWS)]}
    with pytest.raises(RequestError, match=r"'cost', which is .*, holds texts, as its cells have a unit \(\$1000\)"):
        load(written(tmp_path / "t.csv", **held), target="cost")
    sizes = columns() | {"size": [f"{i % 3} cm" for i in range(ROWS)]}
    assert load(written(tmp_path / "s.csv", **sizes), target="size").classes == ["0 cm", "1 cm", "2 cm"]


@pytest.mark.parametrize("mark", [" ", "\u202f", "'"])
def test_parted_thousands_are_said(mark: str, tmp_path: Path) -> None:
    """As in France and Switzerland: a column that matters would be left out as one of names."""
    draw = np.random.default_rng(0).integers(500, 90_000, ROWS)
    held = columns() | {"rent": [f"{value:,}".replace(",", mark) for value in draw]}
    shown = next(cell for cell in held["rent"] if mark in cell)
    notes = load(written(tmp_path / "t.csv", **held), target="price").notes
    assert any(f"'rent' is read as texts, as its thousands are parted ({shown})" in note for note in notes)
    with pytest.raises(RequestError, match=r"'rent', which is .*, holds texts, as its thousands are parted"):
        load(tmp_path / "t.csv", target="rent")


def test_wide_rows_without_names_look_like_an_example(tmp_path: Path) -> None:
    """Though in a few of many columns the first row has the largest number: UCR's series are written so."""
    draw = np.random.default_rng(0).normal(size=(30, 60)).round(6)
    lines = ["\t".join(map(str, [1 + i % 2, *row])) for i, row in enumerate(draw.tolist())]
    assert (draw[0] > draw[1:].max(0)).any()
    (tmp_path / "series.tsv").write_text("\n".join(lines))
    with pytest.raises(RequestError, match="looks like an example: write a line of names above it"):
        load(tmp_path / "series.tsv")


def test_a_folder_of_tables_asks_for_one(tmp_path: Path) -> None:
    for name in ("test", "train"):
        written(tmp_path / f"{name}.csv", **columns())
    with pytest.raises(RequestError, match=r"has no class folders: .*; or name a table, as in .*train\.csv$"):
        load(tmp_path)


def test_empty_columns_without_names_are_none(tmp_path: Path) -> None:
    """Which spreadsheets leave at the end of every line."""
    lines = "".join(f"{i / 7},{'ab'[i % 2]},,\n" for i in range(ROWS))
    path = tmp_path / "t.csv"
    path.write_text(f"size,kind,,\n{lines}")
    assert load(path, target="kind").shape == (1,)
    path.write_text(f"size,kind,,\n{lines}1.5,a,!,?\n")
    with pytest.raises(RequestError, match="two columns named ''"):
        load(path, target="kind")


def test_none_among_words_is_a_class(tmp_path: Path) -> None:
    held = columns() | {"risk": ["none", "low", "high", "NA", "", "null"] * 10}
    data = load(written(tmp_path / "t.csv", **held), target="risk")
    assert data.classes == ["high", "low", "none", "null"]
    assert sum(data.sizes.values()) == 40
    assert "'none' in 10 rows of 'risk' is treated as a class." in data.notes
    assert "'null' in 10 rows of 'risk' is treated as a class." in data.notes
    assert "20 rows without 'risk' (NA, empty) were left out." in data.notes
    held["risk"] = ["None", "1", "2"] * 20
    data = load(written(tmp_path / "t.csv", **held), target="risk")
    assert data.classes == ["1", "2"]
    assert "20 rows without 'risk' (None) were left out." in data.notes


def test_what_counts_the_rows_is_said(tmp_path: Path) -> None:
    held = columns() | {"time s": range(7, 7 + ROWS)}
    data = load(written(tmp_path / "t.csv", **held), target="price")
    said = "The column 'time s' counts the rows: if their order is related to the target, --drop 'time s'."
    assert said in data.notes
    assert data.table is not None
    assert [column.name for column in data.table.columns] == ["age", "ward", "dose", "time s"]
    with pytest.raises(RequestError, match=r"no column is left to learn from: The column '' .* numbers the rows"):
        load(written(tmp_path / "t.csv", **{"": range(ROWS), "price": held["price"]}), target="price")


@pytest.mark.parametrize(
    ("drop", "left"),
    [
        ("Länge, mm", ["", "age", "ward", "dose"]),
        (",", ["Länge, mm", "age", "ward", "dose"]),
        ([""], ["Länge, mm", "age", "ward", "dose"]),
        ("age, Länge, mm ,,ward", ["dose"]),
        ("", ["", "Länge, mm", "age", "ward", "dose"]),
    ],
)
def test_columns_with_odd_names_can_be_dropped(drop: Any, left: list[str], tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    held = {"": draw.integers(0, 9, ROWS), '"Länge, mm"': draw.integers(0, 9, ROWS)} | columns()
    data = load(written(tmp_path / "t.csv", **held), target="price", drop=drop)
    assert data.table is not None
    assert [column.name for column in data.table.columns] == left
    assert data.origin is not None
    again = load(**json.loads(json.dumps(data.origin)))
    assert torch.equal(again.train.x, data.train.x)


def test_large_numbers_keep_their_differences(tmp_path: Path) -> None:
    """Seconds since 1970: float32 has one in 128 of them."""
    held = columns() | {"time": [1_700_000_000 + i % 50 for i in range(ROWS)]}
    data = load(written(tmp_path / "t.csv", **held), target="price")
    assert data.table is not None
    column = next(column for column in data.table.columns if column.name == "time")
    assert column.offset > 1e9
    raw = data.table.raw({name: [str(cell) for cell in values] for name, values in held.items()})
    assert len(raw[:, data.table.columns.index(column)].unique()) == 50
    again = DataTable.of(json.loads(json.dumps(data.table.describe())))
    assert again == data.table
    assert next(column for column in data.table.columns if column.name == "dose").offset == 0


def test_rows_without_a_group_are_apart(tmp_path: Path) -> None:
    held = columns() | {"patient": ["" if i % 3 else f"p{i // 6}" for i in range(ROWS)]}
    data = load(written(tmp_path / "t.csv", **held), target="price", groups="patient")
    assert "40 rows without a group: each is a group of its own." in data.notes


def test_commas_in_names_do_not_part_cells(tmp_path: Path) -> None:
    rows = [f"{i % 7},5;{i},25;{i % 5};{'ab'[i % 2]}" for i in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["Länge, cm;Gewicht, kg;Alter, J;label", *rows]), "utf-8")
    data = load(tmp_path / "t.csv")
    assert data.table is not None
    assert [column.name for column in data.table.columns] == ["Länge, cm", "Gewicht, kg", "Alter, J"]
    rows = [f'"{i % 2},3",{i % 7},{"ab"[i % 2]}' for i in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["size;mm,b|b,label", *rows]))
    assert load(tmp_path / "t.csv").shape == (2 + 1,)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252", "latin-1"])
def test_files_as_others_write_them(encoding: str, tmp_path: Path) -> None:
    odd = "b \u2026 c" if encoding != "latin-1" else "d\x81\xe9"  # cp1252's … is a line's end in latin-1
    lines = ["v;note;target", *(f"{i / 7:.3f};{odd};{'x' if i % 2 else 'y'}" for i in range(60))]
    (tmp_path / "t.csv").write_bytes(
        ("\r\n".join(["sep=;", *lines]) if encoding == "cp1252" else "\n".join(lines)).encode(encoding)
    )
    data = load(tmp_path / "t.csv", target="target")
    assert sum(data.sizes.values()) == 60
    assert data.classes == ["x", "y"]


def test_groups_by_column_stay_together(tmp_path: Path) -> None:
    held = columns() | {"patient": [f"p{i // 4}" for i in range(ROWS)]}
    data = load(written(tmp_path / "t.csv", **held), target="price", groups="patient")
    y = held["price"].astype(np.float32)
    sides = [{held["patient"][int(np.flatnonzero(y == float(v))[0])] for v in part.y}
             for part in (data.train, data.val, data.test)]  # fmt: skip
    assert not sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2]
    assert data.table is not None
    assert "patient" not in [column.name for column in data.table.columns]


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({}, {"target": "prise"}, "unknown column of .* to predict 'prise': did you mean 'price'"),
        ({}, {}, "which column of .* is to be predicted"),
        ({}, {"target": "price", "drop": "doze"}, "to drop 'doze': did you mean 'dose'"),
        ({}, {"target": "price", "drop": "price"}, "'price' is what is predicted"),
        ({"price": ["7"] * ROWS}, {"target": "price"}, "is '7' in all rows"),
        ({"price": [""] * ROWS}, {"target": "price"}, "'price' of .* is empty"),
        ({"dose": ["1.5"] * 30 + ["much"] + ["2"] * 29}, {"target": "price"}, "row 31 of 'dose' holds 'much'"),
        ({"when": ["2024-05-01"] * 59 + ["2024-06-01"]}, {"target": "price"}, "'when' holds dates .*--drop when"),
        ({}, {"target": "price", "groups": "wart"}, "unknown column of .* for groups 'wart': did you mean 'ward'"),
        (
            {"price": [*range(30), "much", *range(29)]},
            {"target": "price"},
            "row 31 of 'price', .* 'much' among numbers",
        ),
        ({"price": ["1", "2", "x"] * 20}, {"target": "price:numbers"}, "row 3 of 'price', .* holds 'x' among numbers"),
        ({"price": ["a"] * 59 + ["b"]}, {"target": "price"}, "class 'b' has 1 of the 3 examples"),
    ],
)
def test_bad_tables(change: dict[str, Any], options: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", **columns() | change)
    with pytest.raises(RequestError, match=says):
        load(path, **options)


@pytest.mark.parametrize(
    "dates",
    [
        ["05-01-2021", "6-1-2021"],
        ["05/01/2021", "6/1/21"],
        ["5.1.2021", "06.01.2021"],
        ["Jan 5, 2021", "January 6 2021"],
        ["5 Jan 2021", "06-JAN-21"],
        ["5. März 2021", "6. Mai 2021"],
        ["2021/01/05", "2021.1.6"],
        ["2021-01-05 12:00", "2021-01-06T13:00:00Z"],
    ],
)
def test_dates_are_refused(dates: list[str], tmp_path: Path) -> None:
    held = columns() | {"the day": [f'"{dates[i % 2]}"' for i in range(ROWS)]}
    with pytest.raises(RequestError, match=r"'the day' holds dates \(.*--drop 'the day'"):
        load(written(tmp_path / "t.csv", **held), target="price")


def test_times_of_day_are_refused(tmp_path: Path) -> None:
    for times in (
        ["08:30", "8:45", "23:59"],
        ["8:30:00", "12:00:01.5", "1:02:03"],
        ["8:30 pm", "9:15am", "12:00 a.m."],
    ):
        with pytest.raises(RequestError, match=r"'at' holds times of day \(.*--drop at"):
            load(written(tmp_path / "t.csv", **columns() | {"at": times * 20}), target="price")
    scores = ["2:1", "1:0", "16:9"] * 20
    assert load(written(tmp_path / "t.csv", **columns() | {"odds": scores}), target="price").table is not None


def test_what_only_resembles_dates_is_a_category(tmp_path: Path) -> None:
    for names in (["20-34", "35-49"], ["12-34-56", "12-34-57"], ["May", "March"], ["Mark 2 2021", "Mark 3 2021"]):
        data = load(written(tmp_path / "t.csv", **columns() | {"group": names * 30}), target="price")
        assert data.table is not None
        assert data.table.columns[-1].categories == tuple(sorted(names))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Doses of May\na,b,y\n1,2,0\n", r"the first line of .* \(Doses of May\) has one cell, and line 2 has 3"),
        ("a b y\n1 2 0\n3 4 1\n", "one column, 'a b y': .* separate them by commas"),
    ],
)
def test_lines_above_the_names_and_cells_that_blanks_part(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(RequestError, match=says):
        load(tmp_path / "t.csv", target="y")


def test_bad_files(tmp_path: Path) -> None:
    for content, says in (
        ("", "holds no rows"),
        ("a,b\n", "holds no rows"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        ("a,b\n1,2\n3\n", "line 3 of .* has 1 values for 2 columns"),
        ('a,b\n1,"2\n' + "3,4\n" * 40_000, "line 2 of .* opens a quotation mark that is never closed"),
        ('a,b\n1,2\n3,"4\n', "line 3 of .* opens a quotation mark that is never closed"),
    ):
        (tmp_path / "t.csv").write_text(content)
        with pytest.raises(RequestError, match=says):
            load(tmp_path / "t.csv", target="a")
    with pytest.raises(RequestError, match="drop=a is for the columns of tables"):
        load("digits", drop="a")
    run = tmp_path / "run"
    path = written(tmp_path / "t.csv", **columns())
    fallow.fit("mlp:hidden=4", path, target="price", generations=1, epochs=1, out=run)
    with pytest.raises(RequestError, match="lacks the column 'ward'"):
        Predictor(run)(written(tmp_path / "new.csv", age=["1"], dose=["2"]))
    with pytest.raises(RequestError, match=r"lacks the column 'ward', .*: did you mean 'Ward'"):
        Predictor(run)(written(tmp_path / "new.csv", age=["1"], dose=["2"], Ward=["north"]))


def test_a_damaged_parquet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> None:
        raise ValueError("magic bytes not found\nin footer")

    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(parquet=SimpleNamespace(read_table=fails)))
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(RequestError, match=r"not a readable \.parquet \(magic bytes not found\)"):
        load(tmp_path / "t.parquet", target="a")


def test_classes_that_differ_in_capitals_are_said(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ";", **columns() | {"grade": ["yes", "Yes ", "no"] * 20})
    path.write_text("\n\n" + path.read_text())  # empty lines before the names
    said = "'Yes' and 'yes' in 'grade' are treated as two classes: spell them alike if they are one."
    assert said in load(path, target="grade").notes


def test_categories_that_differ_in_capitals_are_said(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", **columns() | {"sex": ["Male", "male", "female"] * 20})
    said = "'Male' and 'male' in 'sex' are treated as two categories: spell them alike if they are one."
    assert said in load(path, target="price").notes


def test_huge_numbers_stay_huge(tmp_path: Path) -> None:
    far = columns() | {"dose": [1.0, 2.0] * 29 + ["1e25", "-1e25"]}
    data = load(written(tmp_path / "t.csv", **far), target="price", drop="age,ward", val=0, test=0)
    assert data.train.x[-2:].tolist() == [[3.0], [-3.0]]  # bent back, and not to the middle
    with pytest.raises(RequestError, match="row 1 of 'dose' holds '1e39'"):
        load(written(tmp_path / "t.csv", **columns() | {"dose": ["1e39"] + [1.0, 2.0] * 29 + [1.0]}), target="price")


def test_numbers_of_text() -> None:
    values, wrong = numbers([" 1e3 ", "-", "?", "inf", "0"])
    assert wrong == [1, 3]
    np.testing.assert_array_equal(values[[0, 2, 4]], [1000.0, np.nan, 0.0])


@pytest.mark.parametrize("mark", ["-", "missing"])
def test_a_mark_of_gaps_among_numbers_is_refused(mark: str, tmp_path: Path) -> None:
    """Every number was a category."""
    held = columns() | {"age": [mark if i % 6 == 0 else 20 + i for i in range(ROWS)]}
    with pytest.raises(RequestError, match=rf"'{mark}' is in 10 rows of 'age', and 50 others hold numbers: leave"):
        load(written(tmp_path / "t.csv", **held), target="price")
    with pytest.raises(RequestError, match=f"holds '{mark}' among numbers: correct it, leave it empty, or say"):
        load(tmp_path / "t.csv", target="age")
    for cell in ("{},5", "{} %"):
        held["age"] = [mark if i % 6 == 0 else cell.format(20 + i) for i in range(ROWS)]
        with pytest.raises(RequestError, match=rf"'{mark}' is in 10 rows of 'age', and 50 others hold numbers"):
            load(written(tmp_path / "t.csv", ";", **held), target="price")
    held["age"] = [mark if i % 6 == 0 else i % 6 for i in range(ROWS)]  # which may be codes
    data = load(written(tmp_path / "t.csv", **held), target="price")
    assert f"'age' is read as texts, as 10 of its cells are no numbers ('{mark}')." in data.notes
    said = f"'{mark}' in 10 rows of 'age' is treated as a class: leave those cells empty if it is none."
    assert said in load(tmp_path / "t.csv", target="age").notes
    held["age"] = ["-" if i % 6 == 0 else ["old", "young"][i % 2] for i in range(ROWS)]
    assert any("'-' in 10 rows" in n for n in load(written(tmp_path / "t.csv", **held), target="age").notes)
    held["age"] = ["+", "-"] * 30
    assert not any("as a class" in n for n in load(written(tmp_path / "t.csv", **held), target="age").notes)


def test_numbers_with_a_unit_are_said_to_be_texts(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    held = columns() | {
        "years": [f"{i % 20} years" for i in range(ROWS)],
        "paid": [f"$ {x:.3f}" for x in draw.normal(50, 9, ROWS)],
        "share": [f"{i % 9} %" if i % 2 else i % 9 / 100 for i in range(ROWS)],
        "room": [f"{i % 4}{'ab'[i % 2]}" for i in range(ROWS)],
    }
    notes = " ".join(load(written(tmp_path / "t.csv", **held), target="price").notes)
    assert "'years' is read as texts, as its cells have a unit (0 years): write numbers alone, in one unit" in notes
    assert "was left out. 'paid' is read as texts, as its cells have a unit ($ 5" in notes
    assert "'share' is read as texts, as some of its cells have a unit (1 %)" in notes
    assert "'room'" not in notes


@pytest.mark.parametrize(
    ("codes", "classes", "says"),
    [
        (["007", "7", "0010", "10"], ["0010", "007", "10", "7"], "'007' and '7' in 'code' are treated as two classes"),
        (["1e2", "100", "7"], ["100", "1e2", "7"], "'100' and '1e2' in 'code' are treated as two classes"),
        (["03", "10"], ["03", "10"], "The classes in 'code' are kept as they are written (03)."),
        ([str(2**53), str(2**53 + 1)], [str(2**53), str(2**53 + 1)], "as they are written (9007199254740992)"),
        (["1", "2.0", "1.0"], ["1", "2"], ""),
        (["+1", "-1"], ["-1", "1"], ""),
        (["0.00e+00", "1.00e+00"], ["0", "1"], ""),
    ],
)
def test_codes_that_are_one_number_stay_apart(codes: list[str], classes: list[str], says: str, tmp_path: Path) -> None:
    held = columns() | {"code": (codes * ROWS)[:ROWS]}
    data = load(written(tmp_path / "t.csv", **held), target="code")
    assert data.classes == classes
    assert any(says in note for note in data.notes)
    assert says or not any("written" in note or "two classes" in note for note in data.notes)


def test_codes_with_underscores_are_no_numbers(tmp_path: Path) -> None:
    """Python reads both 1_12 and 11_2 as 112."""
    assert numbers(["1_12", "11_2", "12"])[1] == [0, 1]
    data = load(written(tmp_path / "t.csv", **columns() | {"well": ["1_12", "11_2", "2_05"] * 20}), target="price")
    assert data.table is not None
    assert data.table.columns[-1].categories == ("11_2", "1_12", "2_05")
    assert load(tmp_path / "t.csv", target="well").classes == ["11_2", "1_12", "2_05"]


@pytest.mark.parametrize(("name", "words"), [("Split", ("Train", "dev", "TEST")), ("set", ("training", "val", "test"))])
def test_the_parts_of_a_column(name: str, words: tuple[str, str, str], tmp_path: Path) -> None:
    held = columns() | {name: [words[0]] * 40 + [words[1]] * 8 + [words[2]] * 12, "who": list(range(30)) * 2}
    held["price"][55] = np.nan  # a row without an answer is in no part
    path = written(tmp_path / "t.csv", **held)
    data = load(path, target="price", groups="who")
    assert data.sizes == {"train": 40, "val": 8, "test": 11}
    assert f"The parts are taken from the column {name!r}." in data.notes
    assert any("groups with the test examples" in note for note in data.notes)
    assert data.test.y.tolist() == pytest.approx([price for price in held["price"][48:] if price == price])
    assert data.table is not None
    assert [column.name for column in data.table.columns] == ["age", "ward", "dose"]
    alone = written(tmp_path / "train.csv", **{key: column[:40] for key, column in held.items()})
    by_hand = load(alone, target="price", val=0, test=0, drop=[name, "who"])
    np.testing.assert_array_equal(data.train.x, by_hand.train.x)  # medians are those of its own training rows
    pooled = load(path, target="price", drop=[name])
    assert pooled.sizes != data.sizes
    assert sum(pooled.sizes.values()) == 59


def test_parts_that_a_column_cannot_say(tmp_path: Path) -> None:
    held = columns() | {"split": ["train"] * 59 + ["extra"]}
    data = load(written(tmp_path / "t.csv", **held), target="price")
    assert "The column 'split' also holds 'extra', so the parts are not taken from it." in data.notes
    assert data.table is not None
    assert "split" in [column.name for column in data.table.columns]
    with pytest.raises(RequestError, match=r"'split' of .* is train in no row"):
        load(written(tmp_path / "u.csv", **held | {"split": ["test"] * 60}), target="price")
    held["price"][:40] = np.nan
    with pytest.raises(RequestError, match="no row for training with an answer in 'price'"):
        load(written(tmp_path / "v.csv", **held | {"split": ["train"] * 40 + ["test"] * 20}), target="price")


def test_lines_of_json_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"age": i, "ward": "north" if i % 3 else None, "late": bool(i % 2)} for i in range(ROWS)]
    path.write_text("\n".join(map(json.dumps, [*rows, {"late": True}])) + "\n\n")
    data = load(path, target="late")
    assert data.table is not None
    assert [column.name for column in data.table.columns] == ["age", "ward"]
    assert data.classes == ["False", "True"]
    texts = [{"text": f"what is it that number {i} wants", "tags": ["a", "b"][: 1 + i % 2]} for i in range(ROWS)]
    path.write_text("\n".join(map(json.dumps, texts)))
    assert load(path, target="tags").target.kind == "labels"
    odd = [{"text": f"what number {i} wants\u2028is\x85this", "label": i % 2} for i in range(ROWS)]
    path.write_text("\r\n".join(json.dumps(row, ensure_ascii=False) for row in odd), "utf-8")
    assert sum(load(path).sizes.values()) == ROWS  # of the ends of lines that Unicode has, a string may hold some
    for wrong, says in (('{"a": {"b": 1}}', "within others"), ("[1, 2]", "items"), ("{a", "line 2 of")):
        path.write_text('{"age": 1, "label": 0}\n' + wrong)
        with pytest.raises(RequestError, match=says):
            load(path)
