"""What would hang, crash or fill the memory is refused in one line, or left alone and said."""

import gzip
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fallow
from fallow import models
from fallow.base import files
from fallow.base.errors import RequestError
from fallow.base.spec import parse
from fallow.core.settings import Settings
from fallow.data import add_unlabelled, load
from fallow.data.given import from_paths
from fallow.data.normalise import normalise
from fallow.data.sources import idx


def pictures(root: Path, count: int = 6, names: tuple[str, ...] = ("cat", "dog")) -> Path:
    draw = np.random.default_rng(0)
    for label in names:
        (root / label).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(root / label / f"{i}.png")
    return root


def test_a_fifo_among_the_images_is_left_alone(tmp_path: Path) -> None:
    root = pictures(tmp_path / "images")
    os.mkfifo(root / "cat" / "pipe.png")
    (root / "dog" / "gone.png").symlink_to(tmp_path / "nothing.png")
    data = load(root)
    assert sum(data.describe()["sizes"].values()) == 12
    assert any(note.startswith("2 images in images are not files (FIFOs") for note in data.notes)
    os.mkfifo(tmp_path / "more.png")
    more = add_unlabelled(load(root), root)
    assert more.unlabelled is not None
    assert len(more.unlabelled) == 12


@pytest.mark.parametrize("name", ["pipe.npz", "train-images-idx3-ubyte", "data_batch_1"])
def test_a_fifo_as_data_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(RequestError, match=r"neither a file nor a folder|no class folders"):
        load(tmp_path / name if name == "pipe.npz" else tmp_path)


def test_an_idx_that_cannot_be_held_is_refused_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">III", 8_000_000, 32, 32)
    with gzip.open(tmp_path / "train-images-idx3-ubyte.gz", "wb") as file:
        file.write(header + bytes(1000))
    with gzip.open(tmp_path / "train-labels-idx1-ubyte.gz", "wb") as file:
        file.write(bytes([0, 0, 8, 1]) + struct.pack(">I", 8_000_000))
    with pytest.raises(RequestError, match="its header announces 8192000000 bytes"):  # 1,064 bytes cannot give them
        load(tmp_path)
    with open(tmp_path / "train-images-idx3-ubyte.gz", "ab") as file:
        file.write(os.urandom(8_100_000))  # large enough to be possible
    monkeypatch.setattr(idx, "memory", lambda: 8 << 30)
    with pytest.raises(RequestError, match="announces 7 GiB, more than half of this machine's memory"):
        load(tmp_path)


def test_an_archive_that_cannot_be_held_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fallow.data.sources import npz

    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros((4000, 100)), y=np.arange(4000) % 2)
    monkeypatch.setattr(npz, "memory", lambda: 1 << 20)
    with pytest.raises(RequestError, match="more than half of this machine's memory"):
        load(tmp_path / "zeros.npz")
    with pytest.raises(RequestError, match="more than half of this machine's memory"):  # to predict, too
        from_paths([tmp_path / "zeros.npz"], (100,), pictures=False)


def test_an_unknown_home_is_refused() -> None:
    with pytest.raises(RequestError, match="home of a user unknown here"):
        load("~nosuchuser/x")


def huge_png(path: Path, side: int) -> None:
    """The header of a PNG of so many pixels: Pillow refuses it before it decodes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))


def test_a_png_beyond_pillows_limit_is_named(tmp_path: Path) -> None:
    root = pictures(tmp_path / "images")
    huge_png(root / "cat" / "huge.png", 20_000)
    assert any("1 of them have more pixels than Pillow opens" in note for note in load(root).notes)
    for i in range(20):
        huge_png(root / "cat" / f"huge{i}.png", 20_000)
    with pytest.raises(RequestError, match="more pixels than Pillow opens"):
        load(root)


def test_numbers_too_small_to_scale(tmp_path: Path) -> None:
    x, y = torch.randn(60, 3, dtype=torch.float64), torch.arange(60) % 2
    with pytest.raises(RequestError, match="too little to scale in float32: multiply it by a power of ten"):
        load((x * 1e-40, y))
    data = load((torch.cat([x, x * 1e-40], 1), y))  # one column among others is as good as constant
    scaled = normalise(data.train.x, data.mean, data.std)  # type: ignore[union-attr]
    assert scaled.isfinite().all()
    assert torch.allclose(scaled[:, :3].std(0, correction=0), torch.ones(3))
    fallow.fit("mlp:hidden=4", (x * 1e-30, y), epochs=1, generations=1)  # small, but float32 holds it


@pytest.mark.parametrize("digits", [26, 5000])
def test_numbers_of_many_digits(digits: int) -> None:
    with pytest.raises(RequestError) as error:
        fallow.fit(f"mlp:hidden={'9' * digits}", "digits")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 6000
    with pytest.raises(RequestError, match="26 digits"):
        parse(f"seal:scale={'9' * 26}")
    for name in ("epochs", "seed", "lr", "batch_size", "weight_decay", "clip", "patience"):
        with pytest.raises(RequestError, match=name):
            Settings.of(**{name: 10**digits})


@pytest.mark.parametrize(
    "spec", ["mlp:hidden=999999999999", "mlp:hidden=9999999,9999999", "scnn:width=9999999", "wideresnet:depth=9999994"]
)
def test_networks_that_no_machine_holds(spec: str) -> None:
    with pytest.raises(RequestError, match=r"give (smaller sizes|a size that a network can have)"):
        models.build(spec, shape=(3, 32, 32), classes=10)


def test_a_large_network_that_fits_draws_as_ever() -> None:
    torch.manual_seed(0)
    large = models.build("mlp:hidden=2000", shape=(4,), classes=2)
    torch.manual_seed(0)
    again = models.MODELS["mlp"].factory((4,), 2, hidden=(2000,))
    assert all(torch.equal(a, b) for a, b in zip(large.parameters(), again.parameters(), strict=True))


def test_paths_that_are_not_utf8(tmp_path: Path) -> None:
    strange = os.fsdecode(b"caf\xe9")
    try:
        root = pictures(tmp_path / strange, names=(strange, "dog"))
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    (root / "dog" / os.fsdecode(b"\xff.png")).write_text("no image")
    data = load(root)
    assert data.classes == ["caf\\xe9", "dog"]
    assert any("\\xff.png" in note for note in data.notes)
    fallow.fit("mlp:hidden=4", root, epochs=1, generations=1, out=tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert load(record["origin"].pop("source"), **record["origin"]).describe()["digest"] == record["data"]["digest"]
    files.write_json(tmp_path / "x.json", {"path": str(root)})
    assert json.loads((tmp_path / "x.json").read_text("utf-8")) == {"path": str(root)}


def test_what_to_type_is_said() -> None:
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    y[:2] = 2
    with pytest.raises(RequestError, match=r"or say val=0 or test=0 \(fallow train --val 0, --test 0\)"):
        load((x, y))
    with pytest.raises(RequestError, match="leaves 1 of 32 examples for validation"):
        load((x, torch.arange(40) % 2), train=31)
