"""Folders of texts and of arrays, one in every file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fallow
from fallow import Predictor
from fallow.base.errors import RequestError
from fallow.data import load
from fallow.data.texts import to_strings


def written(root: Path, parts: tuple[str, ...] = ("",), count: int = 30) -> Path:
    for part in parts:
        for kind, word in (("pos", "great"), ("neg", "dull")):
            place = root / part / kind
            place.mkdir(parents=True)
            for i in range(count):
                (place / f"{i % 10}_{i}.txt").write_text(f"The film was {word},\nand it was no{i}.\n", "utf-8")
    return root


def test_a_folder_of_texts(tmp_path: Path) -> None:
    root = written(tmp_path / "films")
    (root / "pos" / "about.md").write_text("found somewhere")
    (root / "pos" / "cover.png").write_bytes(b"")  # one picture makes no folder of images
    (root / "neg" / "1_1.txt").write_text("")
    (root / "neg" / "0_0.txt").write_bytes("caf\xe9".encode("cp1252"))
    data = load(root, groups="_")
    assert data.texts
    assert data.classes == ["neg", "pos"]
    texts = {text for part in (data.train, data.val, data.test) for (text,) in to_strings(part.x)}
    assert "café" in texts
    assert "The film was great,\nand it was no3.\n" in texts
    assert len(texts) == 60
    assert "2 files in films ignored: not .txt." in data.notes
    assert "1 file is empty." in data.notes
    assert "Files of one name before '_' stay together: 10 groups." in data.notes


def test_parts_of_their_own(tmp_path: Path) -> None:
    root = written(tmp_path / "films", ("train", "test"), 8)
    (root / "more").mkdir()
    data = load(root)
    assert "Ignored beside train/, test/: more." in data.notes
    assert data.sizes["test"] == 16
    assert data.sizes["train"] + data.sizes["val"] == 16


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    root = written(tmp_path / "films", count=4)
    (root / "none").mkdir()
    with pytest.raises(RequestError, match=r"class 'none' in .* has no \.txt: add some"):
        load(root)
    (root / "none").rmdir()
    with pytest.raises(RequestError, match="as_=images is for numbers, and these are texts"):
        load(root, as_="images")
    with pytest.raises(RequestError, match="size=32 is for folders of images"):
        load(root, size=32)


def test_a_new_file_is_one_text(tmp_path: Path) -> None:
    root = written(tmp_path / "films")
    fallow.fit(None, root, generations=1, epochs=10, lr=0.01, out=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["texts"] == "files"
    predictor = Predictor(tmp_path / "run")
    (new := tmp_path / "new.txt").write_text("Is it dull?\n\nIt is,\ndull.\n")
    assert [(p.name, p.label) for p in predictor(new)] == [(str(new), "neg")]
    assert {p.label for p in predictor(root / "pos")} == {"pos"}
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match=r"empty holds no \.txt files"):
        predictor(empty)
    with pytest.raises(RequestError, match="there is no file"):
        predictor(tmp_path / "nowhere")


def test_a_folder_of_arrays(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    root = tmp_path / "spectra"
    for k, kind in enumerate(("low", "high")):
        (root / kind).mkdir(parents=True)
        for i in range(20):
            np.save(root / kind / f"{i}.npy", (draw.normal(size=(2, 64)) + 3 * k).astype(np.float32))
    (root / "low" / "notes.txt").write_text("of Monday")
    data = load(root, groups=None)
    assert data.shape == (2, 64)
    assert data.classes == ["high", "low"]
    assert "1 file in spectra ignored: not .npy." in data.notes
    held = load(root, val=0, test=0).train
    assert torch.equal(held.x[held.y == 1][3], torch.from_numpy(np.load(root / "low" / "11.npy")))  # 0, 1, 10, 11
    fallow.fit("mlp:hidden=8", root, generations=1, epochs=5, lr=0.05, out=tmp_path / "run")
    assert [p.label for p in Predictor(tmp_path / "run")(root / "high" / "3.npy")] == ["high"]
    np.save(root / "low" / "0.npy", np.zeros((2, 63)))
    with pytest.raises(RequestError, match=r"has shape \(2, 63\), and|has shape \(2, 64\), and"):
        load(root)
    (root / "low" / "0.npy").write_bytes(b"no array")
    with pytest.raises(RequestError, match="is not a readable"):
        load(root)
    np.save(root / "low" / "0.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(RequestError, match="is not a readable"):
        load(root)
