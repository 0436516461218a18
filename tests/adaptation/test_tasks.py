from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fallow import Episodes, Mixture, RequestError, Sinusoid
from fallow.data.tasks.episodes import turn
from fallow.data.tasks.load import load_tasks
from fallow.data.tasks.mixture import KINDS as MIXED


def labelled(classes: int = 12, each: int = 6, side: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Images whose first pixel names the class and whose second names the example."""
    y = torch.arange(classes).repeat_interleave(each)
    x = torch.zeros(len(y), 1, side, side, dtype=torch.uint8)
    x[:, 0, 0, 0], x[:, 0, 0, 1] = y.to(torch.uint8), torch.arange(len(y)).to(torch.uint8)
    return x, y


def raw(tasks: Episodes, x: torch.Tensor) -> torch.Tensor:
    """Undo the normalisation."""
    return (x * tasks.std + tasks.mean).round().long()


SPLITS = {"train": range(6), "val": range(6, 9), "test": range(9, 12)}


def test_episodes_have_distinct_classes_and_distinct_examples() -> None:
    x, y = labelled()
    tasks = Episodes(x=x, y=y, splits=SPLITS, ways=3, shots=2, queries=3)
    for split, held in SPLITS.items():
        sx, sy, qx, qy = tasks.draw(split, 0, 40)
        assert sx.shape == (40, 6, 1, 4, 4)
        assert qx.shape == (40, 9, 1, 4, 4)
        support, query = raw(tasks, sx)[:, :, 0, 0], raw(tasks, qx)[:, :, 0, 0]
        for task in range(40):
            named = [set(support[task, sy[task] == way, 0].tolist()) for way in range(3)]
            assert all(len(labels) == 1 for labels in named)  # a way is one class, in support and in queries
            assert len(set.union(*named)) == 3
            assert set.union(*named) <= set(held)
            assert all(set(query[task, qy[task] == way, 0].tolist()) == named[way] for way in range(3))
            ids = support[task, :, 1].tolist() + query[task, :, 1].tolist()
            assert len(set(ids)) == len(ids)
        assert set(support[..., 0].flatten().tolist()) == set(held)  # all classes come up


def test_tasks_that_judge_show_every_class_equally_often() -> None:
    x, y = labelled(classes=20)
    tasks = Episodes(x=x, y=y, splits={"train": range(8), "test": range(8, 20)}, ways=3, shots=1, queries=2)
    support = raw(tasks, tasks.draw("test", 0, 64)[0])[:, :, 0, 0, 0]
    assert support.flatten().bincount()[8:].tolist() == [16] * 12
    assert all(len(set(row)) == 3 for row in support.tolist())
    other = tasks.changed(seed=1).draw("test", 0, 64)[0]
    assert not torch.equal(raw(tasks, other), raw(tasks, tasks.draw("test", 0, 64)[0]))  # which, is still drawn


def test_tasks_known_by_name_have_their_class_splits(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8), np.repeat(np.arange(10), 6)
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=y, class_names=[f"kind {i}" for i in range(10)])
    with pytest.raises(RequestError, match="does not say which classes fc100 holds out"):
        load_tasks("fc100", data_dir=tmp_path)
    held = {"train": [0, 1, 2, 3], "val": ["kind 4", "kind 5"], "test": [6, 7, 8, 9]}
    (tmp_path / "cifar100_fewshot_splits.json").write_text(json.dumps({"splits": {"fc100": held}}))
    tasks = load_tasks("fc100", data_dir=tmp_path, ways=2)
    assert tasks.name == "fc100"
    assert tasks.describe()["splits"] == {"train": [0, 1, 2, 3], "val": [4, 5], "test": [6, 7, 8, 9]}
    assert (tasks.model, tasks.recipe.steps) == ("conv4:width=32", 1)
    with pytest.raises(RequestError, match="cifar-fs is not installed: give --data-dir, a folder with cifar100"):
        load_tasks("cifar-fs")
    with pytest.raises(RequestError, match="has no images of omniglot: it should hold omniglot28"):
        load_tasks("omniglot", data_dir=tmp_path)


def test_a_mixture_holds_its_kinds_alike_and_as_the_paper_has_them() -> None:
    tasks = Mixture(shots=5, of="/".join(MIXED), noise=0.0)
    kinds, curves, x, noise = tasks.block("test", torch.Generator().manual_seed(0))
    assert kinds.bincount().tolist() == [13, 13, 13, 13, 12]
    assert not noise.any()
    y = tasks.answers(kinds, curves, x)
    shapes = {
        "sinusoid": lambda x, c: math.sin(x - c), "linear": lambda x, c: x, "tanh": lambda x, c: math.tanh(x - c),
        "quadratic": lambda x, c: (x - c) ** 2, "abs": lambda x, c: abs(x - c),
    }  # fmt: skip
    for i in range(10):
        a, c, b = curves[i].tolist()
        right = a * shapes[MIXED[kinds[i]]](float(x[i, 3]), c) + b
        assert float(y[i, 3]) == pytest.approx(right, abs=1e-5)
    parabolas = curves[kinds == MIXED.index("quadratic"), 0]
    assert parabolas.min() < 0 < parabolas.max()
    assert parabolas.abs().max() <= 0.15
    noisy = load_tasks("mixture:of=linear/tanh,noise=0.5", shots=3).draw("train", 0, 64)
    assert noisy[0].shape == (64, 3, 1)
    with pytest.raises(RequestError, match="unknown kind of curve 'tan'"):
        load_tasks("mixture:of=tan")


def test_a_task_depends_on_seed_split_and_number_alone() -> None:
    x, y = labelled()
    tasks = Episodes(x=x, y=y, splits=SPLITS, ways=3, shots=1, queries=2)
    whole = tasks.draw("train", 60, 10)  # across two blocks
    for i in range(10):
        for a, b in zip(tasks.draw("train", 60 + i, 1), whole, strict=True):
            assert torch.equal(a[0], b[i])
    assert not torch.equal(tasks.draw("train", 0, 10, seed=1)[0], tasks.draw("train", 0, 10)[0])
    curves = Sinusoid(shots=3)
    assert torch.equal(curves.draw("val", 5, 1)[0][0], curves.draw("val", 0, 9)[0][5])
    assert not torch.equal(curves.draw("val", 0, 5)[1], curves.draw("test", 0, 5)[1])


def test_classes_with_fewer_examples_are_drawn_without_their_padding() -> None:
    x, y = labelled(classes=3, each=9)
    keep = torch.cat([torch.arange(9), torch.arange(9, 13), torch.arange(18, 27)])  # the second has four
    tasks = Episodes(x=x[keep], y=y[keep], splits={"train": [0, 1, 2]}, ways=3, shots=2, queries=2)
    sx, _, qx, _ = tasks.draw("train", 0, 64)
    ids = torch.cat([raw(tasks, sx)[:, :, 0, 0, 1], raw(tasks, qx)[:, :, 0, 0, 1]], 1)
    assert all(len(set(row)) == len(row) for row in ids.tolist())


def test_rotations_are_classes_of_their_own() -> None:
    x = torch.arange(4 * 4).view(1, 1, 1, 1, 4, 4).expand(1, 4, 2, 1, 4, 4)
    turned = turn(x, torch.tensor([[0, 1, 2, 3]]))
    for k in range(4):
        assert torch.equal(turned[0, k], x[0, k].rot90(k, (-2, -1)))
    images, y = labelled(classes=2)
    tasks = Episodes(x=images, y=y, splits={"train": [0, 1]}, ways=8, shots=1, queries=1, rotations=True)
    assert tasks.draw("train", 0, 3)[0].shape == (3, 8, 1, 4, 4)


@pytest.mark.parametrize("setting", ["standard", "hard"])
def test_curves_follow_the_ranges_of_the_setting(setting: str) -> None:
    tasks = Sinusoid(shots=5, setting=setting)
    for split in ("train", "test"):
        curves, x = tasks._rows(split, 0, 640, None)
        for column, (low, high) in zip(curves.T, tasks.ranges(split), strict=True):
            assert low <= column.min() < low + 0.05 * (high - low)
            assert high >= column.max() > high - 0.05 * (high - low)
        assert x.abs().max() <= 5
        sx, sy, qx, qy = tasks.draw(split, 0, 640)
        a, w, b = curves[7].tolist()
        assert sy[7, 2].item() == pytest.approx(a * math.sin(w * sx[7, 2].item() + b), abs=1e-5)
        assert qx.shape[1] == (5 if split == "train" else 100)
        assert qy.shape == qx.shape


def test_bad_requests_say_what_would_be_right() -> None:
    x, y = labelled()
    with pytest.raises(RequestError, match="'val' has 3 classes: 4-way tasks need 4"):
        Episodes(x=x, y=y, splits=SPLITS, ways=4, shots=1, queries=1)
    with pytest.raises(RequestError, match="class 'cat 0' has 6 images: 5 shots and 2 queries need 7"):
        Episodes(x=x, y=y, names=[f"cat {i}" for i in range(12)], splits=SPLITS, ways=3, shots=5, queries=2)
    with pytest.raises(RequestError, match="class '5' is in both train and test"):
        Episodes(x=x, y=y, splits={"train": [0, 1, 5], "test": [5, 6, 7]}, ways=3, shots=1, queries=1)
    with pytest.raises(RequestError, match="unknown setting of sinusoid 'har': did you mean 'hard'"):
        Sinusoid(setting="har")
    with pytest.raises(RequestError, match="there is no"):
        load_tasks("nowhere.npz")


def test_tables_and_texts_are_refused(tmp_path: Path) -> None:
    """A network of images would read a text's bytes as numbers."""
    (tmp_path / "tickets.csv").write_text("text,department\nno light,b\n")
    with pytest.raises(RequestError, match="is a table: few-shot tasks need"):
        load_tasks(tmp_path / "tickets.csv")
    for name in "abcdefghij":
        (tmp_path / "texts" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "texts" / name / f"{i}.txt").write_text(f"{name} is dark {i}")
    with pytest.raises(RequestError, match="these are texts"):
        load_tasks(tmp_path / "texts", ways=2)


@pytest.mark.parametrize("named", [False, True])
def test_arrays_are_read_as_everywhere(named: bool) -> None:
    x, y = labelled()
    names = [f"cat {chr(97 + i)}" for i in range(12)]
    given = np.array(names)[y] if named else y.numpy()
    wanted = Episodes(x=x, y=y, splits=SPLITS, ways=3, shots=1, queries=2)
    found = Episodes(x=x.numpy()[:, 0], y=given, splits=SPLITS, ways=3, shots=1, queries=2)
    assert found.labels == (names if named else wanted.labels)
    for mine, theirs in zip(found.draw("train", 0, 4), wanted.draw("train", 0, 4), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("y", "more", "line"),
    [
        (torch.arange(72) // 6 - 1, {}, "give a class from 0 for each"),
        (torch.randn(72), {}, "y has shape \\(72,\\) and type torch.float32: give a class from 0 for each"),
        (["a", "b"] * 36, {"names": ["a", "c"]}, "unknown class in y 'b'"),
        (torch.arange(72) // 6, {"names": ["a"]}, "y holds class 11, and there are 1 names"),
        (
            torch.arange(72) // 6,
            {"splits": {"train": [0, 1, 12]}},
            "names class 12: give names, or numbers from 0 to 11",
        ),
        (torch.arange(72) // 6, {"splits": {"train": [0, 1.5]}}, "'train' names class 1.5: give names, or numbers"),
        (["a", "b"] * 36, {"splits": {"train": ["a", "c"]}}, "'train' names class 'c': give names, or numbers"),
        (torch.arange(72) // 6, {"splits": {"train": [0, 1], "test": [2, 3, 2]}}, "class '2' is twice in test"),
    ],
)
def test_labels_that_are_none_are_said_in_a_line(y: Any, more: dict[str, Any], line: str) -> None:
    with pytest.raises(RequestError, match=line):
        Episodes(x=labelled()[0], y=y, ways=2, shots=1, queries=1, **more)


def test_splits_name_classes_as_labels_do() -> None:
    x, y = labelled()
    words = np.array([f"cat {chr(97 + i)}" for i in range(12)])
    by_name = {split: words[list(held)].tolist() for split, held in SPLITS.items()}
    found = Episodes(x=x, y=words[y], splits=by_name, ways=3, shots=1, queries=2)
    assert found.describe()["splits"] == {split: sorted(held) for split, held in SPLITS.items()}


def test_classes_are_split_by_seed_without_overlap() -> None:
    x, y = labelled(classes=50, each=3)
    held = [Episodes(x=x, y=y, ways=2, shots=1, queries=1, seed=seed).describe()["splits"] for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]
    assert [len(held[0][split]) for split in ("train", "val", "test")] == [32, 8, 10]
    assert sorted(label for split in held[0].values() for label in split) == list(range(50))


def test_loads_archives_folders_and_splits(tmp_path: Path) -> None:
    x, y = labelled(classes=10)
    np.savez(tmp_path / "plain.npz", x_train=x[::2].numpy(), y_train=y[::2], x_test=x[1::2].numpy(), y_test=y[1::2])
    (tmp_path / "splits.json").write_text(json.dumps({"mine": {"train": [0, 1, 2], "val": ["3"], "test": [4, 5]}}))
    with pytest.raises(RequestError, match="'val' has 1 classes"):
        load_tasks(tmp_path / "plain.npz", ways=2, queries=5, splits=f"{tmp_path / 'splits.json'}:mine")
    with pytest.raises(RequestError, match=r"write FILE\.json:NAME"):
        load_tasks(tmp_path / "plain.npz", splits=tmp_path / "splits.json")
    (tmp_path / "splits.json").write_text(json.dumps({"train": [0, 1, 2], "test": ["4", "5"]}))
    tasks = load_tasks(tmp_path / "plain.npz", ways=2, queries=5, splits=tmp_path / "splits.json")
    assert tasks.describe()["splits"] == {"train": [0, 1, 2], "val": [], "test": [4, 5]}
    assert tasks.val_tasks == 0

    halves = {}
    for half, first, last in (("background", 0, 8), ("evaluation", 8, 10)):
        part = (y >= first) & (y < last)
        halves |= {f"x_{half}": x[part, 0].numpy(), f"y_{half}": (y[part] - first).numpy()}
    np.savez(tmp_path / "halves.npz", **halves)
    with pytest.raises(RequestError, match="'val' has 1 classes"):  # a tenth of eight
        load_tasks(tmp_path / "halves.npz", ways=2, queries=2)
    found = load_tasks(tmp_path / "halves.npz", ways=2, queries=2, rotations=True).describe()["splits"]
    assert found["test"] == [8, 9]
    assert sorted(found["train"] + found["val"]) == list(range(8))

    for part, classes in (("train", "abc"), ("val", "de"), ("test", "fg")):
        for name in classes:
            (tmp_path / "folder" / part / name).mkdir(parents=True)
            for i in range(3):
                Image.new("L", (8, 8), i).save(tmp_path / "folder" / part / name / f"{i}.png")
    tasks = load_tasks(tmp_path / "folder", ways=2, shots=1, queries=2)
    assert isinstance(tasks, Episodes)
    assert [[tasks.labels[i] for i in held] for held in tasks.describe()["splits"].values()] == [
        ["a", "b", "c"], ["d", "e"], ["f", "g"],
    ]  # fmt: skip


def test_class_splits_go_by_the_names_of_classes(tmp_path: Path) -> None:
    """Number 5 is the class called 5, wherever it stands; a part of another name is no part."""
    x, y = labelled()
    np.savez(tmp_path / "far.npz", x=x.numpy(), y=y.numpy() + 5)
    file = tmp_path / "splits.json"
    for held in ([5, 6, 7], ["5", "6", "7"]):
        file.write_text(json.dumps({"train": held, "test": [14, 15, 16]}))
        tasks = load_tasks(tmp_path / "far.npz", ways=2, queries=2, splits=file)
        assert tasks.describe()["splits"] == {"train": [0, 1, 2], "val": [], "test": [9, 10, 11]}
    file.write_text(json.dumps({"train": [0, 1], "test": [15, 16]}))
    with pytest.raises(RequestError, match="names class 0, which the data does not have"):
        load_tasks(tmp_path / "far.npz", splits=file)
    file.write_text(json.dumps({"train": [5, 6], "validation": [7, 8], "test": [15, 16]}))
    with pytest.raises(RequestError, match="holds 'validation': give train, val and test"):
        load_tasks(tmp_path / "far.npz", splits=file)


def test_examples_that_are_not_finite_are_refused() -> None:
    x, y = labelled()
    x = x.float()
    x[3, 0, 0, 0] = float("nan")
    with pytest.raises(RequestError, match="x has NaN or infinite values in 1 examples"):
        Episodes(x=x, y=y, splits=SPLITS, ways=2, shots=1, queries=1)
