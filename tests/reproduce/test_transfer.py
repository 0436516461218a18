"""SEAL's transfer tables on pictures of a few pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fallow.base.errors import RequestError
from fallow.evaluate.affine import learn_affine
from fallow.evaluate.span import Protocol
from fallow.reproduce import seal_transfer
from fallow.reproduce.runs import reproduce
from tests.kill import ended
from tests.transfers.test_transfer import pictures


def small_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tiny data, and tables of their size."""
    data = tmp_path / "data"
    data.mkdir()
    pictures(data / "cifar100_sub.npz", side=8, classes=4, each=20)
    pictures(data / "cifar10_sub.npz", side=8, classes=5, each=70)
    x, y = np.random.default_rng(0).integers(0, 256, (120, 8, 8), dtype=np.uint8), np.arange(6).repeat(20)
    np.savez(data / "omniglot28.npz", x_evaluation=x, y_evaluation=y)
    tiny = {"base": "cifar100_sub", "model": "scnn:width=2,dense=4", "train": 40, "epochs": 1}
    full = tiny | {"adapted": 1, "left out": (), "fitting": {"lr": 0.05}}
    monkeypatch.setattr(seal_transfer, "SIZES", {"full": full, "small": full | {"base": "cifar10_sub", "adapted": 0}})
    monkeypatch.setattr(seal_transfer, "METHODS", {"Normal (long)": "long", "LLF": "llf"})
    monkeypatch.setattr(seal_transfer, "GENERATIONS", 2)
    monkeypatch.setattr(seal_transfer, "PROBED", 280)
    monkeypatch.setattr(seal_transfer, "CLASSES", 5)
    monkeypatch.setattr(seal_transfer, "EPISODES", dict.fromkeys((1, 5, 20, 50), 2))
    monkeypatch.setattr(learn_affine, "__kwdefaults__", {"seed": 0, "protocol": Protocol(epochs=1)})
    seal_transfer.target_data.cache_clear()
    return data


def test_the_tables_share_their_trainings_and_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = small_transfer(tmp_path, monkeypatch), tmp_path / "out"
    reproduce("seal-table1", out, seeds=1, data_dir=data, workers=1)
    before, kept = ended(out), sorted((out / "features").iterdir())
    table = reproduce("seal-table4", out, seeds=1, data_dir=data, workers=1)
    tuned = reproduce("seal-table4-affine", out, seeds=1, data_dir=data, workers=1)
    after = ended(out)
    bases = {name for name in before if name.startswith("base-")}
    assert bases == {"base-full-LLF-0", "base-full-Normal-long-0"}
    assert all(after[name] == before[name] for name in bases)
    images = data / "photos"
    for i in range(60):
        (images / f"class{i % 5}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 3 * i, np.uint8)).save(images / f"class{i % 5}" / f"{i}.png")
    columns = {c.column for c in reproduce("seal-table1", tmp_path / "more", seeds=1, data_dir=data, workers=1).cells}
    assert {"probe, photos", "probe, cifar10_sub"} < columns  # not omniglot28: the next table's
    assert set(kept) < set((out / "features").iterdir())  # those of omniglot28 are new
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    assert [name for name in columns if "long" not in name] == [
        "base, train", "base, test", "1-shot, omniglot28", "1-shot, cifar10_sub", "5-shot, omniglot28",
        "5-shot, cifar10_sub",
    ]  # fmt: skip
    columns = list(dict.fromkeys(cell.column for cell in tuned.cells))
    asked = [f"5-shot{how}, {target}" for target in ("omniglot28", "cifar10_sub") for how in ("", ", affine")]
    assert [name for name in columns if "long" not in name] == ["base, train", "base, test", *asked]


def test_the_small_table_starts_from_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_transfer(tmp_path, monkeypatch)
    with pytest.raises(RequestError, match="there is nothing to train on: --data-dir is a folder"):
        reproduce("seal-table1-small", tmp_path / "out", seeds=1, workers=1)
    (data / "omniglot28.npz").unlink()
    with pytest.raises(RequestError, match="has nothing to transfer to: put one of pets32"):
        reproduce("seal-table1-small", tmp_path / "out", seeds=1, data_dir=data, workers=1)
