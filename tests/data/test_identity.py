"""Data that changed are other data: in pixels, labels, test labels, files, classes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import fallow
from fallow.base.errors import RequestError
from fallow.data import Files, load
from fallow.data.sources import folder as folders


def images(root: Path) -> None:
    draw = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 6)):
        for label in ("cat", "dog"):
            (root / part / label).mkdir(parents=True)
            for i in range(count):
                Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(root / part / label / f"{i:02}.png")


def pixels(root: Path) -> None:
    path = root / "test" / "cat" / "03.png"
    image = np.array(Image.open(path))
    image[2, 3] ^= 1
    Image.fromarray(image).save(path)


def labels(root: Path) -> None:
    for name in ("05.png",):
        one, other = root / "train" / "cat" / name, root / "train" / "dog" / name
        one.rename(root / "held")
        other.rename(one)
        (root / "held").rename(other)


def swapped_test_labels(root: Path) -> None:
    (root / "test" / "cat" / "05.png").rename(root / "test" / "dog" / "06.png")


def added(root: Path) -> None:
    Image.new("L", (8, 8), 77).save(root / "test" / "dog" / "99.png")


def removed(root: Path) -> None:
    (root / "train" / "dog" / "11.png").unlink()


def renamed(root: Path) -> None:
    for part in ("train", "test"):
        (root / part / "cat").rename(root / part / "bat")


CHANGES: tuple[Callable[[Path], None], ...] = (pixels, labels, swapped_test_labels, added, removed, renamed)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_folder_is_noticed(
    change: Callable[[Path], None], in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.setattr(folders, "IN_MEMORY", 0)
    root = tmp_path / "images"
    images(root)
    how = {"model": "mlp:hidden=4", "data": str(root), "epochs": 1, "generations": 1, "workers": 0}
    fallow.fit(out=tmp_path / "run", **how)
    before = load(root)
    assert isinstance(before.train, Files) != in_memory
    digests = before.describe()["digest"], before.content()
    fallow.fit(out=tmp_path / "run", resume=True, **how)  # unchanged, it is the same run
    change(root)
    after = load(root)
    assert after.describe()["digest"] != digests[0]
    assert after.content() != digests[1]
    with pytest.raises(RequestError, match="holds another run: its data"):
        fallow.fit(out=tmp_path / "run", resume=True, **how)


def test_a_copy_is_the_same_data(tmp_path: Path) -> None:
    images(tmp_path / "images")
    shutil.copytree(tmp_path / "images", tmp_path / "copy")
    assert load(tmp_path / "images").describe()["digest"] == load(tmp_path / "copy").describe()["digest"]


def rows(n: int = 60) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 3


def test_what_another_seed_would_see_is_content() -> None:
    x, y = rows()
    few = [load((x, y), train=9, seed=seed) for seed in range(2)]
    assert few[0].content() == few[1].content()
    assert few[0].describe()["digest"] != few[1].describe()["digest"]
    used = torch.cat([few[0].train.x, few[0].val.x, few[0].test.x])  # type: ignore[union-attr]
    unused = int(((x[:, None] == used[None]).all(2).any(1)).logical_not().nonzero()[0])
    x[unused] += 1
    changed = load((x, y), train=9)
    assert changed.describe()["digest"] == few[0].describe()["digest"]
    assert changed.content() != few[0].content()


def test_datasets_are_told_apart_by_what_can_be_had() -> None:
    x, y = rows()

    def known(x: Tensor, y: Tensor) -> list[str]:
        kinds = TensorDataset(x, y), DataLoader(TensorDataset(x, y), 8)
        return [load(data).describe()["digest"] for data in kinds]

    before = known(x, y)
    assert known(x.clone(), y.clone()) == before
    other = x.clone()
    other[5, 2] += 1e-3
    assert not set(known(other, y)) & set(before)
    swapped = y.clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert not set(known(x, swapped)) & set(before)
