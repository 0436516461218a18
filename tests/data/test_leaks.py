"""Twins on both sides of a split, and classes of uneven size, are counted and said."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fallow.data import load
from fallow.data.leaks import uneven
from fallow.data.sources import folder as folders


def said(notes: list[str], words: str) -> list[str]:
    return [note for note in notes if words in note]


@pytest.mark.parametrize("kind", ["rows", "images"])
def test_twins_are_counted(kind: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(100, 6, generator=draw)
    if kind == "images":
        x = (x.abs().view(100, 1, 2, 3) * 60).byte()
    y = torch.arange(100) % 2
    assert not said(load((x, y)).notes, "identical")
    test_x, val_x = torch.cat([x[:7], x[50:]]), torch.cat([x[10:13], 255 - x[60:90]])
    data = load(((x[:50], y[:50]), (val_x, y[: len(val_x)]), (test_x, y[: len(test_x)])))
    assert [note.partition(",")[0] for note in said(data.notes, "identical")] == [
        "3 of 33 validation examples are in training too",
        "7 of 57 test examples are in training too",
    ]


@pytest.mark.parametrize("in_memory", [True, False])
def test_twins_among_files(tmp_path: Path, in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    for part, twins in (("train", 0), ("test", 2)):
        for label in ("a", "b"):
            (tmp_path / part / label).mkdir(parents=True)
            for i in range(5):
                path = tmp_path / part / label / f"{part}{i}.png"
                if i < twins:
                    path.write_bytes((tmp_path / "train" / label / f"train{i}.png").read_bytes())
                else:
                    Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(path)
    if not in_memory:
        monkeypatch.setattr(folders, "IN_MEMORY", 0)
    assert said(load(tmp_path, val=0).notes, "4 of 10 test examples are in training too")


def test_uneven_classes_are_named() -> None:
    rare, even = (torch.arange(400) < 20).long(), torch.arange(400) % 7
    assert uneven(rare, ["0", "1"]) == "'0' has 95.0 % of the training examples, '1' 5.0 %"
    assert uneven(even, list("abcdefg")) == ""
    many = torch.cat([torch.arange(20).repeat(18), torch.zeros(40).long()])
    assert uneven(many, [str(i) for i in range(20)]).startswith("'0' has 14.5 %")


def test_classes_that_a_part_lacks_are_said() -> None:
    x, y = torch.rand(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    few = y[30:] != 1
    data = load(((x[:30], y[:30]), (x[30:][few], y[30:][few])))
    assert said(data.notes, "no test examples") == ["'1' has no test examples: scores there do not cover it."]
    assert not said(load((x, y)).notes, "examples: scores")


def test_twins_that_coarse_columns_make_are_no_leak(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 10, (120, 2))
    rows = "".join(f"{a},{b},{'pq'[int(a + b > 9)]}\n" for a, b in coarse)
    (tmp_path / "coarse.csv").write_text("a,b,y\n" + rows)
    assert not said(load(tmp_path / "coarse.csv").notes, "identical")
    assert len(said(load(tmp_path / "coarse.csv").notes, "so few different values")) == 2
    fine = np.concatenate([draw.integers(0, 10, (60, 2)), draw.normal(size=(60, 1)).round(3)], 1)
    twice = "".join(f"{a:g},{b:g},{c},{'pq'[int(a + b > 9)]}\n" for a, b, c in [*fine, *fine])
    (tmp_path / "twice.csv").write_text("a,b,c,y\n" + twice)
    assert len(said(load(tmp_path / "twice.csv").notes, "identical")) == 2


def test_one_twin_in_fine_columns_is_told_of_by_itself() -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % 2
    data = load(((x[:30], y[:30]), (x[29:], y[29:])), val=0)
    assert said(data.notes, "identical") == [
        "1 of 11 test examples is in training too, identical to the last bit: its score says nothing about new data; "
        "leave it out, or keep related examples together (groups)."
    ]


def test_numbers_that_share_an_rmse_unevenly_are_said() -> None:
    draw = torch.Generator().manual_seed(0)
    x, z = torch.randn(100, 3, generator=draw), torch.randn(100, 2, generator=draw)
    alike, apart = load((x, z)), load((x, z * torch.tensor([1.0, 50.0])))
    assert not said(alike.notes, "RMSE")
    assert len(said(apart.notes, "says most about 'y1': --metric r2")) == 1


def test_a_target_over_orders_of_magnitude_is_said() -> None:
    draw = torch.Generator().manual_seed(0)
    x, z = torch.randn(200, 3, generator=draw), torch.randn(200, generator=draw)
    assert not said(load((x, z)).notes + load((x, z.exp())).notes, "variance")
    (positive,) = said(load((x, (3 * z).exp())).notes, "of the variance of 'y'")
    (signed,) = said(load((x, (3 * z).sinh())).notes, "of the variance of 'y'")
    assert "logarithm" in positive
    assert "logarithm" not in signed
