"""From rows to the matrix, the marks, the tree, the sentences and the picture."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fallow.atlas import rows as kept
from fallow.atlas.drawing import drawing
from fallow.atlas.findings import Atlas
from fallow.atlas.page import beats, markdown, matrix, write
from fallow.atlas.rows import Judgement
from fallow.base.errors import RequestError


def row(data: str, labels: int, method: str, mean: float, verdict: str = "undecided", **more: object) -> Judgement:
    difference = None if verdict in ("control", "yardstick", "failed") else mean - 0.8
    known: dict = {
        "start": "scratch", "model": "scnn", "seeds": 5, "training": 1.0, "low": None, "high": None, "p": 1.0,
        "classes": 10, "channels": 1, "values": 784, "seconds": 1.0, "tuned": 0, "measured": "fallow 0",
        "difference": difference,
    }  # fmt: skip
    return Judgement(data=data, labels=labels, method=method, mean=mean, verdict=verdict, **known | more)  # type: ignore[arg-type]


def world() -> list[Judgement]:
    """Six data sets at two sizes: mixup is always above long, sam always below; in colour there are features, too."""
    found = []
    for i, data in enumerate("abcdef"):
        for labels in (100, 300):
            found += [
                row(data, labels, "long", 0.8, "control"),
                row(
                    data, labels, "mixup", 0.82 + i / 100, "better" if i < 2 else "undecided", p=1e-4 if i < 1 else 0.04
                ),
                row(data, labels, "sam", 0.7, "worse" if i == 0 else "undecided"),
                row(data, labels, "extra trees", 0.9 if i == 5 else 0.5, "yardstick", model=""),
            ]
    features = {"start": "pretrained", "model": "lite0", "channels": 3}
    found += [
        row("f", 100, "long", 0.8, "control", **features),
        row("f", 100, "probe", 0.95, "undecided", **features),
        dataclasses.replace(row("f", 100, "sam", 0.0, "failed", **features), mean=None),
    ]
    return found


def test_the_matrix_has_every_method_and_setting() -> None:
    atlas = Atlas(world())
    assert len(atlas.settings) == 13
    assert atlas.settings[-1] == ("f", 100, "pretrained")
    assert atlas.methods == ["probe", "mixup", "sam"]  # the largest gain first
    head, *lines = matrix(atlas)
    at = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert at["mixup"]["a 100"] == "▲ +2.0"
    assert at["mixup"]["f 300"] == "+7.0"
    assert at["sam"]["a 300"] == "▼ −10.0"
    assert at["sam"]["f 100 features"] == at["probe"]["a 100"] == "·"  # it does not apply, or was not asked
    assert at["long, %"]["a 100"] == "80.0"
    assert at["long, training %"]["a 100"] == "100.0"


def test_a_data_set_is_one_observation() -> None:
    methods, marks, number = Atlas(world()).beats()
    assert methods == ["long", "mixup", "sam"]
    assert number == 6
    # 6 of 6: 1/64 each; three of six pairs have that, and Holm's first step asks for .05/6
    assert marks["long", "mixup"] == "★"
    assert marks["sam", "long"] == "★"
    assert marks["mixup", "sam"] == ""
    assert beats(Atlas(world()))[0] == ["", "long", "mixup", "sam"]


def test_who_beats_whom_on_the_seeds_that_all_methods_ran() -> None:
    """Who looked worse by chance was dropped, and stayed worse: the means at the end are no fair coin."""
    seen = [dataclasses.replace(r, first=0.9 if r.method == "sam" else r.mean) for r in world()]
    _, marks, _ = Atlas(seen).beats()
    assert (marks["long", "sam"], marks["sam", "long"]) == ("★", "")
    tree = Atlas(seen).tree()
    assert tree is not None
    assert tree.winner == "sam"


def test_verdicts_over_all_settings_are_corrected_for_them() -> None:
    atlas = Atlas(world())
    assert (atlas.count("better"), atlas.count("worse")) == (4, 2)
    assert {(held.data, held.method) for held in atlas.family} == {("a", "mixup")}  # p ≤ .05/13
    assert atlas.guarantee.startswith("Untuned. In each of 13 settings")
    tuned = [dataclasses.replace(r, tuned=0 if r.data == "a" else 8) for r in world()]
    assert "was tuned by 8 trials on validation, by fewer or none on a. In each" in Atlas(tuned).guarantee
    assert "Of 6 verdicts better or worse, 2 hold over all settings together (mixup)" in atlas.guarantee
    added = [dataclasses.replace(r, exploratory=r.method == "mixup") for r in world()]
    assert "0 hold over all settings together. Not covered, as added after a look at results: mixup." in (
        Atlas(added).guarantee
    )


def test_the_sentences_say_what_to_try() -> None:
    first, second, third = Atlas(world()).sentences
    assert "13 settings of 6 data sets" in first
    assert (
        "are mixup (better in 4 of 12, more than 2 points behind in none; +4.5 points on average from scratch)" in first
    )
    assert first.endswith(": try these first.")
    mixed = [dataclasses.replace(r, difference=-0.03) if r.method == "mixup" and r.data == "f" else r for r in world()]
    assert "mixup (better in 4 of 12, more than 2 points behind in 2;" in Atlas(mixed).sentences[0]
    assert "gains +5.0 points over the best" in second
    assert second.startswith("On colour pictures")
    assert second.endswith("(above 0 in 1 of 1 setting, of f): start there.")
    texts = [dataclasses.replace(r, model="minilm") if r.model == "lite0" else r for r in world()]
    assert Atlas(texts).sentences[1].startswith("On texts, a linear head on the features of")
    assert "In 2 of 12 settings (of f)" in third
    none = [r for r in world() if r.verdict != "better" and r.start == "scratch"]
    assert "None of 2 methods is shown to beat" in Atlas(none).sentences[0]


def test_the_tree_asks_for_what_decides() -> None:
    tree = Atlas(world()).tree()
    assert tree is not None
    assert tree.winner == "mixup"
    assert tree.settings == 13
    assert Atlas(world()[:4]).tree() is None


def test_rows_survive_their_file(tmp_path: Path) -> None:
    kept.write(tmp_path / "atlas.csv", world())
    assert [dataclasses.replace(r, difference=None) for r in kept.read(tmp_path / "atlas.csv")] == [
        dataclasses.replace(r, difference=None, mean=None if r.mean is None else round(r.mean, 6)) for r in world()
    ]
    known = [r for r in world() if r.mean is not None]
    kept.write(tmp_path / "atlas.csv", [dataclasses.replace(r, first=0.5, exploratory=True) for r in known])
    assert {(r.first, r.exploratory) for r in kept.read(tmp_path / "atlas.csv")} == {(0.5, True)}
    lines = (tmp_path / "atlas.csv").read_text().splitlines()
    (tmp_path / "before.csv").write_text("\n".join(line.rsplit(",", 2)[0] for line in lines))
    assert [r.fair for r in kept.read(tmp_path / "before.csv")] == [round(r.mean or 0.0, 6) for r in known]
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RequestError, match="is not an atlas"):
        kept.read(tmp_path / "other.csv")


def test_the_picture_has_a_cell_for_everything_that_is_judged(tmp_path: Path) -> None:
    atlas = Atlas(world())
    root = ElementTree.fromstring(drawing(atlas).file())
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text or "" for title in root.iter(f"{space}title")]
    assert sum("points" in title and "labels" in title for title in titles) == 12 + 12 + 1
    page = write(tmp_path, atlas, "fallow atlas --quick")
    assert page.name == "atlas.html"
    assert (tmp_path / "atlas.svg").exists()
    assert "fallow atlas --quick" in page.read_text()
    assert "| mixup |" in markdown(atlas)
    assert "★" in markdown(atlas)
