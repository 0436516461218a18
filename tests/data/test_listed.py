"""Images with a list of what they show, and images with masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fallow
from fallow import Predictor
from fallow.base.errors import RequestError
from fallow.data import load

COUNT = 30


def folder(root: Path, table: str) -> Path:
    root.mkdir()
    draw = np.random.default_rng(0)
    for i in range(COUNT):
        Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(root / f"{i}.png")
    (root / "labels.csv").write_text(table)
    return root


def test_a_column_for_each_label(tmp_path: Path) -> None:
    rows = "\n".join(f"{i}.png,{i % 2},{int(i % 3 == 0)},p{i // 2}" for i in range(COUNT))
    root = folder(tmp_path / "f", f"file,oedema,fracture,patient\n{rows}\n")
    data = load(root, groups="patient")
    assert data.target.kind == "labels"
    assert list(data.target.names) == ["oedema", "fracture"]
    whole = {
        tuple(x.flatten().tolist()): y
        for part in (data.train, data.val, data.test)
        for x, y in zip(part.x, part.y, strict=True)
    }
    for i in range(COUNT):
        pixels = tuple(np.asarray(Image.open(root / f"{i}.png")).flatten().tolist())
        assert whole[pixels].tolist() == [i % 2, int(i % 3 == 0)]
    result = fallow.fit("mlp:hidden=4", root, groups="patient", generations=1, epochs=1)
    assert "test_macro-auroc" in result.last or any("auroc" in key for key in result.last)


def test_several_labels_in_a_cell_classes_and_numbers(tmp_path: Path) -> None:
    several = "\n".join(f"{i}.png;{'a|b' if i % 2 else 'a'}" for i in range(COUNT))
    data = load(folder(tmp_path / "s", f"file;shows\n{several}\n"))
    assert (data.target.kind, list(data.target.names)) == ("labels", ["a", "b"])
    assert load(tmp_path / "s", target="shows:classes").classes == ["a", "a|b"]
    classes = "\n".join(f"{i}.png,{'cat' if i % 2 else 'dog'},{i / 7}" for i in range(COUNT))
    root = folder(tmp_path / "c", f"file,animal,weight\n{classes}\n")
    assert load(root, target="animal").classes == ["cat", "dog"]
    assert load(root, target="weight").target.kind == "numbers"


def test_a_list_beside_the_folder_of_its_images(tmp_path: Path) -> None:
    """As competitions have it: train.csv with names of files, or with ids, beside train/ and test/."""
    pixels = folder(tmp_path / "train", "file,label\n").parent / "train"
    (pixels / "labels.csv").unlink()
    (tmp_path / "test").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "test" / "t0.png")
    for name in ("{}.png", "{}"):
        rows = "\n".join(f"{name.format(i)},{i % 7},{'cat' if i % 2 else 'dog'}" for i in range(COUNT))
        (tmp_path / "train.csv").write_text(f"id,age,label\n{rows}\n")
        data = load(tmp_path / "train.csv", target="label")
        assert data.shape == (1, 8, 8)
        assert "The files that 'id' names are those in train/." in data.notes
        parts = (data.train, data.val, data.test)
        whole = {bytes(x.flatten()): y for part in parts for x, y in zip(part.x, part.y, strict=True)}
        for i in range(COUNT):
            held = np.asarray(Image.open(pixels / f"{i}.png")).tobytes()
            assert data.classes[int(whole[held])] == ("cat" if i % 2 else "dog")


def test_a_list_stands_for_its_images_when_they_are_predicted(tmp_path: Path) -> None:
    """As test.csv does in competitions: ids alone, in an order that a submission must keep."""
    folder(tmp_path / "train", "").joinpath("labels.csv").unlink()
    classes = "\n".join(f"{i},{'cat' if i % 2 else 'dog'}" for i in range(COUNT))
    (tmp_path / "train.csv").write_text(f"id,label\n{classes}\n")
    fallow.fit("mlp:hidden=4", tmp_path / "train.csv", generations=1, epochs=1, out=tmp_path / "run")
    predict, order = Predictor(tmp_path / "run"), [*range(20, 5, -1)]
    (tmp_path / "test.csv").write_text("\n".join(["id", *map(str, order)]))
    (tmp_path / "paths.csv").write_text("\n".join(["file", *(f"train/{i}.png" for i in order)]))
    whole = [str(tmp_path / "train" / f"{i}.png") for i in order]
    for name in ("test.csv", "paths.csv"):
        found = predict([tmp_path / name])
        assert [(each.name, each.confidence) for each in found] == [
            (each.name, each.confidence) for each in predict(whole)
        ]
        assert [each.name for each in found] == whole


def test_ids_that_two_folders_know_and_names_that_none_does(tmp_path: Path) -> None:
    for place in ("images", "masks"):
        folder(tmp_path / place, "")
    rows = "\n".join(f"{i},{i / 7},{i % 2}" for i in range(COUNT))
    (tmp_path / "rows.csv").write_text(f"id,size,label\n{rows}\n")
    assert load(tmp_path / "rows.csv").shape == (1,)  # a table: which folder is meant, nothing says
    rows = "\n".join(f"other{i}.png,{i / 7},{i % 2}" for i in range(COUNT))
    (tmp_path / "gone.csv").write_text(f"file,size,label\n{rows}\n")
    assert any("name images that are not there" in note for note in load(tmp_path / "gone.csv").notes)


def test_codes_in_a_list_are_classes_as_written(tmp_path: Path) -> None:
    for name, codes in (("codes", ["007", "7", "08"]), ("numbers", ["1", "2", "3"])):
        rows = "\n".join(f"{i}.png,{codes[i % 3]}" for i in range(COUNT))
        assert load(folder(tmp_path / name, f"file,code\n{rows}\n")).classes == sorted(codes)


def test_a_list_by_its_own_path(tmp_path: Path) -> None:
    root = folder(tmp_path / "f", "file,a\n0.png,1\n")
    rows = "\n".join(f"f/{i}.png,{i % 2},{int(i % 3 == 0)}" for i in range(COUNT))
    (tmp_path / "other.csv").write_text(f"file,oedema,fracture\n{rows}\n")
    data = load(tmp_path / "other.csv")
    assert (data.target.kind, data.shape, data.pictures) == ("labels", (1, 8, 8), True)
    assert load(tmp_path / "other.csv", target="oedema:classes", size=16).shape == (1, 16, 16)
    flat = load(tmp_path / "other.csv", as_="features", val=0, test=0)
    assert (flat.shape, flat.flattened) == ((64,), (1, 8, 8))
    run = tmp_path / "run"
    fallow.fit("mlp:hidden=4", tmp_path / "other.csv", as_="features", val=0, test=0, generations=1, epochs=1, out=run)
    expected, found = Predictor(run, "last")(flat.train.x), Predictor(run, "last")(root)  # in the order of names
    assert found[0].confidence == expected[0].confidence
    assert sorted(p.confidence for p in found) == pytest.approx(sorted(p.confidence for p in expected))
    more = "\n".join(f"f/{i}.png,{i % 2},{int(i % 3 == 0)},{i}" for i in range(COUNT))
    (tmp_path / "more.csv").write_text(f"file,oedema,fracture,age\n{more}\n")
    assert load(tmp_path / "more.csv", target="fracture,oedema").classes == ["fracture", "oedema"]
    with pytest.raises(RequestError, match="drop=oedema is for tables"):
        load(tmp_path / "other.csv", drop="oedema")
    (root / "3.png").unlink()
    with pytest.raises(RequestError, match=r"row 4 of .*other.csv names 'f/3.png'"):
        load(tmp_path / "other.csv")


def test_the_parts_of_a_column(tmp_path: Path) -> None:
    """They are kept, file by file, and the column is no label; what lacks is carved."""
    words = ["train"] * 18 + ["Valid"] * 6 + ["TEST"] * 6
    rows = "\n".join(f"{i}.png,{i % 2},{int(i % 3 == 0)},{words[i]},{i // 2}" for i in range(COUNT))
    root = folder(tmp_path / "f", f"file,a,b,Split,p\n{rows}\n")
    data = load(root, groups="p")
    assert data.sizes == {"train": 18, "val": 6, "test": 6}
    assert list(data.target.names) == ["a", "b"]
    assert "The parts are taken from the column 'Split'." in data.notes
    for part, places in ((data.train, range(18)), (data.val, range(18, 24)), (data.test, range(24, 30))):
        assert part is not None
        pixels = np.stack([np.asarray(Image.open(root / f"{i}.png")) for i in places])
        np.testing.assert_array_equal(part.x[:, 0].numpy(), pixels)
        assert part.y.tolist() == [[i % 2, int(i % 3 == 0)] for i in places]
    (root / "labels.csv").write_text(f"file,a,b,Split,p\n{rows}\n".replace("Valid", "training"))
    carved = load(root, target="a:classes")
    assert carved.sizes == {"train": 19, "val": 5, "test": 6}
    assert load(root, target="Split").classes == ["TEST", "train", "training"]
    (root / "labels.csv").write_text(f"file,a,b,Split,p\n{rows}\n".replace("TEST", "unused"))
    pooled = load(root, target="a:classes")
    assert pooled.sizes == {"train": 19, "val": 5, "test": 6}
    assert "The column 'Split' also holds 'unused', so the parts are not taken from it." in pooled.notes


@pytest.mark.parametrize("above", ["", "pictures/"])
def test_the_parts_of_folders_in_a_list(above: str, tmp_path: Path) -> None:
    root = folder(tmp_path / "f", "")
    places = ["Train/x"] * 20 + ["validation"] * 4 + ["test"] * 6
    for i, place in enumerate(places):
        (root / above / place).mkdir(parents=True, exist_ok=True)
        (root / f"{i}.png").rename(root / above / place / f"{i}.png")
    rows = "\n".join(f"{above}{place}/{i}.png,{'cd'[i % 2]}" for i, place in enumerate(places))
    (root / "labels.csv").write_text(f"file,animal\n{rows}\n")
    data = load(root)
    assert data.sizes == {"train": 20, "val": 4, "test": 6}
    assert "The parts are taken from the folders train/, validation/, test/." in data.notes
    assert data.test.y.tolist() == [0, 1] * 3
    (root / above / "extra").mkdir()
    (root / above / places[0] / "0.png").rename(root / above / "extra" / "0.png")
    (root / "labels.csv").write_text(f"file,animal\n{rows}\n".replace("Train/x/0.png", "extra/0.png"))
    assert load(root).sizes == {"train": 19, "val": 5, "test": 6}  # pooled: not all are in such folders


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        ("file,a,split\n0.png,1,test\n1.png,0,val\n", {}, "'split' of .* is train in no row"),
        ("file,a\nx,1\n", {}, "no column of .* names images"),
        ("file,a\nx.png,1\n0.png,0\n", {}, "row 1 of .* names 'x.png', which is not a file in .*f: give their paths"),
        ("file,a\nx.png,1\ny.png,0\n", {}, "names 'x.png', which is not a file in .*f, nor is 1 other"),
        ("0.png,cat\n1.png,dog\n", {}, "the first line of .* names an image, 0.png: write a line of names"),
        ("file,a\n0.png,1\nx.png,0\n", {}, "row 2 of .* names 'x.png'"),
        ("file\n0.png\n", {}, "says nothing of its files"),
        ("file,a,b\n0.png,1,2\n", {}, "row 1 of 'b' in .* holds '2': give each label as 0 or 1"),
        ("file,a,b\n0.png,1,0\n", {"target": "c"}, "unknown column of .* to predict 'c'"),
        ("file,a,b\n0.png,1,0\n", {"groups": "c"}, "unknown column of .* for groups 'c'"),
        ("file,a\n0.png,\n", {}, "row 1 of 'a' in .* is empty"),
    ],
)
def test_bad_lists(table: str, options: dict[str, str], says: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=says):
        load(folder(tmp_path / "f", table), **options)


def test_a_list_whose_first_file_is_missing_is_no_table(tmp_path: Path) -> None:
    root = folder(tmp_path / "f", "file,a\n")
    rows = "\n".join(f"{i}.png,{i % 2},{i}" for i in range(COUNT))
    (root / "other.csv").write_text(f"file,animal,age\ngone.png,1,1\n{rows}\n")
    with pytest.raises(RequestError, match=r"row 1 of .* names 'gone.png'"):
        load(root / "other.csv", target="animal")
    rows = "\n".join(f"{i}.jpg,{i % 2},{i}" for i in range(COUNT))  # of images that are elsewhere
    (root / "table.csv").write_text(f"file,animal,age\n{rows}\n")
    assert load(root / "table.csv", target="animal").shape == (1,)


def test_rows_and_files_that_are_not_one_to_one_are_said(tmp_path: Path) -> None:
    rows = "".join(f"{i}.png,{'cd'[i % 2]}\n" for i in range(20))
    notes = load(folder(tmp_path / "f", f"file,animal\n{rows}0.png,d\n")).notes
    assert "10 images ignored: not listed in labels.csv." in notes
    assert "1 row repeats a file name in labels.csv: every row counts as an example." in notes


def test_one_of_several_columns_is_a_class(tmp_path: Path) -> None:
    rows = "".join(f"{i}.png,{int(i % 3 == 0)},{int(i % 3 == 1)},{int(i % 3 == 2)}\n" for i in range(COUNT))
    root = folder(tmp_path / "f", f"file,cat,dog,ape\n{rows}")
    assert any("(--target classes)" in note for note in load(root).notes)
    data = load(root, target="classes", val=0, test=0)
    assert (data.target.kind, data.classes) == ("classes", ["cat", "dog", "ape"])
    assert data.train.y.tolist() == [i % 3 for i in range(COUNT)]


def with_masks(root: Path, size: int = 8) -> Path:
    draw = np.random.default_rng(0)
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for i in range(COUNT):
        image = draw.integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(image).save(root / "images" / f"{i}.png")
        Image.fromarray(np.where(image[:size, :size] > 127, 255, 0).astype(np.uint8)).save(root / "masks" / f"{i}.png")
    return root


def test_masks(tmp_path: Path) -> None:
    data = load(with_masks(tmp_path / "f"))
    assert data.target.kind == "dense"
    assert data.classes == ["0", "255"]
    assert torch.equal(data.train.y, (data.train.x[:, 0] > 127).long())
    with pytest.raises(RequestError, match="as_=features is for examples without masks"):
        load(tmp_path / "f", as_="features")
    larger = load(tmp_path / "f", size=16)
    assert larger.train.y.shape[1:] == (16, 16)
    assert set(larger.train.y.unique().tolist()) == {0, 1}


def test_masks_beside_other_folders(tmp_path: Path) -> None:
    root = with_masks(tmp_path / "f")
    for name in (".checkpoints", "overlays"):
        (root / name).mkdir()
    data = load(root)
    assert data.target.kind == "dense"
    assert "Ignored beside images/ and masks/: overlays." in data.notes


def test_masks_keep_their_values_or_are_refused(tmp_path: Path) -> None:
    root = with_masks(tmp_path / "f")
    for i in range(COUNT):
        mask = np.asarray(Image.open(root / "masks" / f"{i}.png"))
        deep = mask.astype(np.uint16) // 255 * 300
        deep[0] = 600
        Image.fromarray(deep).save(root / "masks" / f"{i}.png")
    assert load(root).classes == ["0", "300", "600"]
    colours = np.zeros((8, 8, 3), np.uint8)
    Image.fromarray(colours + 7).save(root / "masks" / "0.png")  # grey, saved in colours
    assert load(root).classes == ["0", "7", "300", "600"]
    colours[..., 0] = 9
    Image.fromarray(colours).save(root / "masks" / "0.png")
    with pytest.raises(RequestError, match=r"0.png is in colour: give masks in which a grey value"):
        load(root)
    (root / "masks" / "0.png").unlink()
    Image.fromarray(colours[..., 0]).save(root / "masks" / "0.jpg")
    with pytest.raises(RequestError, match=r"0.jpg is a JPEG, which blurs values"):
        load(root)


def test_masks_of_another_size_or_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"is 6×6, and its image .* is not"):
        load(with_masks(tmp_path / "f", 6))
    root = with_masks(tmp_path / "g")
    (root / "masks" / "3.png").unlink()
    with pytest.raises(RequestError, match=r"3.png has no mask"):
        load(root)
    for mask in (root / "masks").iterdir():
        mask.unlink()
    (root / "masks" / "0.txt").write_text("0 0.5 0.5 0.2 0.2")  # YOLO's boxes
    with pytest.raises(RequestError, match=r"masks holds texts and no masks, .* not boxes"):
        load(root)


@pytest.mark.parametrize("inner", [False, True])
def test_masks_in_parts(inner: bool, tmp_path: Path) -> None:
    root = tmp_path / "f"
    for part in ("train", "val", "test"):
        with_masks(root / part)
    (root / "test" / "images" / "0.png").unlink()
    if inner:  # images/train, masks/train
        for kind in ("images", "masks"):
            (root / kind).mkdir()
            for part in ("train", "val", "test"):
                (root / part / kind).rename(root / kind / part)
        for part in ("train", "val", "test"):
            (root / part).rmdir()
    data = load(root)
    assert data.target.kind == "dense"
    assert data.sizes == {"train": COUNT, "val": COUNT, "test": COUNT - 1}
    assert torch.equal(data.test.y, (data.test.x[:, 0] > 127).long())
    assert not any("gnored" in note for note in data.notes)
    bare = root / "masks" / "val" if inner else root / "val" / "masks"
    bare.rename(tmp_path / "aside")
    with pytest.raises(RequestError, match=r"val has no (images/ and )?masks"):
        load(root)


def test_odd_values_of_masks_are_said(tmp_path: Path) -> None:
    root = with_masks(tmp_path / "f")
    for i in range(COUNT):
        Image.fromarray(np.array([[0, 1], [2, 255]], np.uint8).repeat(4, 0).repeat(4, 1)).save(root / f"masks/{i}.png")
    assert any("The masks hold 255 beside 0 to 2" in note for note in load(root).notes)
    x = np.zeros((8, 4, 4), np.uint8)
    y = np.tile(np.array([[-1, 0, 1, 1]]), (8, 4, 1))
    assert "The background of masks is their lowest value, here -1, not 0." in load((x, y)).notes
