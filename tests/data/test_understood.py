"""What `load` takes examples for: by shape and content, not by type, and what it says of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import fallow
from fallow.base.errors import RequestError
from fallow.data import Data, Examples, load
from fallow.data.layout import like_images


def digits(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits of 16×16, in bytes."""
    data = load("digits", val=0, test=0)
    assert isinstance(data.train, Examples)
    large = torch.nn.functional.interpolate(data.train.x[:n].float(), size=(16, 16), mode="bilinear")
    return large[:, 0].round().numpy().astype(np.uint8), data.train.y[:n].numpy()


X, Y = digits()
TYPES = {
    "uint8": X,
    "int64": X.astype(np.int64),
    "int16": X.astype(np.int16),
    "float of bytes": X.astype(np.float32),
    "float of 0 to 1": X / 255,
    "standardised": (X - X.mean()) / X.std(),
    "one channel last": X[..., None] / 255,
    "one channel first": X[:, None].astype(np.float32),
}


def examples(data: Data, part: str = "train") -> Examples:
    held = getattr(data, part)
    assert isinstance(held, Examples)
    return held


@pytest.mark.parametrize("kind", TYPES)
def test_the_same_images_are_understood_alike_whatever_their_type(kind: str) -> None:
    data = load((TYPES[kind], Y))
    assert data.understood("none") == (
        "300 grey images of 16×16, 10 classes, 192 for training, 48 for validation, 60 for testing; "
        "scaled inside the model; not augmented"
    )
    scaled = [(examples(d).x.float() - d.mean) / d.std for d in (data, load((X, Y)))]
    assert torch.allclose(*scaled, atol=1e-4)
    in_bytes = kind not in ("float of 0 to 1", "standardised", "one channel last")
    assert data.pictures == in_bytes == (examples(data).x.dtype == torch.uint8)


def test_they_train_alike(tmp_path: Path) -> None:
    np.savez(tmp_path / "floats.npz", x=X / 255, y=Y)
    np.savez(tmp_path / "bytes.npz", x=X, y=Y)
    for i, (image, label) in enumerate(zip(X, Y, strict=True)):
        (tmp_path / "rgb" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).convert("RGB").save(tmp_path / "rgb" / str(label) / f"{i}.png")
    scores = {
        name: fallow.fit("scnn:width=4,dense=32", str(tmp_path / name), generations=1, epochs=12, lr=0.03).last
        for name in ("floats.npz", "bytes.npz", "rgb")
    }
    found = {name: score["test_accuracy"] for name, score in scores.items()}
    assert found["floats.npz"] == pytest.approx(found["bytes.npz"], abs=0.05)
    assert found["rgb"] == pytest.approx(found["bytes.npz"], abs=0.15)  # 60 test examples, other starts
    data = load(str(tmp_path / "rgb"))
    assert "grey images of 16×16 in 3 equal channels" in data.understood()
    assert "not augmented" in data.understood()
    assert any("three channels of every image are equal" in note for note in data.notes)


def signals(kind: str) -> np.ndarray:
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(60, 16, 32)).astype(np.float32)
    return {
        "noise": noise,
        "walks": noise.cumsum(2),  # smooth in time, not across channels
        "positive walks": np.abs(noise.cumsum(2)),
        "common mode": noise[:, :1].cumsum(2) + 0 * noise,  # the same in every channel: far from alike both ways
        "long": np.abs(noise.reshape(60, 4, 128)).cumsum(1).cumsum(2),  # no image is so long
        "few channels": np.abs(noise[:, :3, :6]).cumsum(1).cumsum(2),
        "constant": np.ones((60, 8, 8), np.float32),
    }[kind]


@pytest.mark.parametrize("kind", ["noise", "walks", "positive walks", "long", "few channels", "constant"])
def test_signals_stay_signals(kind: str) -> None:
    x = signals(kind)
    data = load((x, np.arange(60) % 2))
    assert data.shape == x.shape[1:]
    assert f"60 signals of length {x.shape[2]} in {x.shape[1]} channels" in data.understood()
    assert not data.pictures


def test_images_have_sides_that_are_smooth() -> None:
    assert like_images(X)
    assert like_images(X / 255)
    assert like_images(X[:, ::2, ::2] - 100.0)  # negative, but black is black
    shuffled = X.reshape(len(X), -1)[:, np.random.default_rng(0).permutation(256)].reshape(X.shape)
    assert not like_images(shuffled.astype(float))
    assert load((shuffled, Y)).shape == (1, 16, 16)  # bytes of three axes are images, as ever
    said = "Arrays of three axes in bytes were read as grey images, and do not look like any"
    assert any(note.startswith(said) for note in load((shuffled, Y)).notes)
    assert not any(note.startswith(said) for note in [*load((X, Y)).notes, *load((shuffled, Y), as_="images").notes])


def test_as_says_it_where_the_content_does_not() -> None:
    floats = X / 255
    assert load((floats, Y), as_="signals").shape == (16, 16)
    assert load((floats, Y), as_="features").shape == (256,)
    assert load((floats.reshape(300, -1), Y)).shape == (256,)
    assert load((floats.reshape(300, -1), Y), as_="images").shape == (1, 16, 16)
    assert load((floats.reshape(300, -1), Y), as_="signals").shape == (1, 256)
    noise = np.random.default_rng(0).normal(size=(40, 8, 9))
    assert load((noise, np.arange(40) % 2)).shape == (8, 9)
    assert load((noise, np.arange(40) % 2), as_="images").shape == (1, 8, 9)
    assert load((np.zeros((40, 6, 8, 5)), np.arange(40) % 2), as_="images").shape == (5, 6, 8)
    assert load("digits", as_="features").shape == (64,)
    assert load("digits", as_="features").understood().startswith("1,797 rows of 64 features, 10 classes")
    assert load(examples(load("digits")), as_="features").shape == (64,)
    for source, as_, says in (
        ((floats, Y), "image", "did you mean 'images'"),
        ((floats[:, :3].reshape(300, -1), Y), "images", r"shape \(300, 48\) cannot be images"),
        ((floats[..., None], Y), "signals", "cannot be signals"),
        ("digits", "signals", "cannot be signals: leave as_"),
        (TensorDataset(torch.zeros(9, 4), torch.arange(9) % 3), "features", "let the Dataset give"),
    ):
        with pytest.raises(RequestError, match=says):
            load(source, as_=as_)


def test_what_is_known_of_masks_decides_too() -> None:
    noise = np.random.default_rng(0).normal(size=(30, 8, 8))
    data = load((noise, (noise > 0).astype(int)))
    assert data.shape == (1, 8, 8)
    assert "2 classes of pixels" in data.understood()


def test_a_printed_data_set_is_a_line() -> None:
    data = load((X, np.array(["bee", "ant", "wasp"])[Y % 3]))
    assert repr(data).startswith("Data(")
    assert "3 classes (ant, bee, wasp), " in repr(data)
    sizes = "×".join(map(str, data.train.x.shape))
    assert repr(data.train) == f"Examples(x: uint8 {sizes}, y: int64 {len(data.train)})"


def test_parts_of_two_scales_are_refused() -> None:
    standardised = (X - X.mean()) / X.std()
    for train, test in (
        (X, X / 255), (X.astype(float), X / 255), (X / 255, X.astype(float)), (X, X / 127.5 - 1),
        (X, standardised), (standardised, X), (X.astype(np.uint16) * 257, X),
        (X / 255, X / 127.5 - 1), (standardised, X / 255),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=r"x of (train|test) goes from .* give all parts the same scale"):
            load(((train, Y), (test, Y)))
    resized = X / 255 * 1.1 - 0.05  # bicubic, say, which goes a little beyond black and white
    assert load(((X / 255, Y), (resized, Y))).shape == (1, 16, 16)
    data = load(((X.astype(np.int64), Y), (X.astype(np.int64) + 40, Y)))  # beyond bytes: no part is in bytes
    assert examples(data).x.dtype == examples(data, "test").x.dtype == torch.float32


def test_dark_bytes_are_no_pictures() -> None:
    assert load((X, Y)).pictures
    assert not load((X // 16, Y)).pictures  # 0 to 15: an image file would be 16 times as bright


@pytest.mark.parametrize(
    ("x", "y", "augment", "says"),
    [
        (X, Y, "crop", "300 grey images of 16×16, 10 classes, 192 for training, 48 for validation, 60 for testing; "
         "scaled inside the model; augmented by shifts"),
        (np.random.default_rng(0).integers(0, 256, (50, 20, 16, 3), np.uint8), np.arange(50) % 2, "auto",
         "50 colour images of 20×16, 2 classes, 32 for training, 8 for validation, 10 for testing; "
         "scaled inside the model; augmented by shifts"),
        (np.random.default_rng(0).normal(size=(50, 4)), np.random.default_rng(1).normal(size=50), "auto",
         "50 rows of 4 features, a number to predict, 32 for training, 8 for validation, 10 for testing; "
         "scaled inside the model; not augmented"),
    ],
)  # fmt: skip
def test_what_was_understood_is_a_sentence(x: Any, y: Any, augment: str, says: str) -> None:
    assert load((x, y)).understood(augment) == says


def test_names_of_classes_are_said_where_they_tell_something(tmp_path: Path) -> None:
    assert "3 classes (ant, bee, wasp), " in load((X, np.array(["bee", "ant", "wasp"])[Y % 3])).understood()
    assert "3 classes (1, 2, 3), " in load((X, Y % 3 + 1)).understood()
    assert "3 classes, " in load((X, Y % 3)).understood()


def test_channels_of_volumes_may_come_last() -> None:
    volumes = np.random.default_rng(0).normal(size=(20, 6, 5, 7, 2))
    for channels in (1, 3):
        last = np.repeat(volumes[..., :1], channels, -1)
        data = load((last, np.arange(20) % 2), val=0, test=0)
        assert data.shape == (channels, 6, 5, 7)
        assert np.allclose(examples(data).x[:, 0], volumes[..., 0])
    assert load((np.moveaxis(volumes, -1, 1)[:, :1], np.arange(20) % 2)).shape == (1, 6, 5, 7)


def test_many_channels_of_images_come_first_or_last() -> None:
    first = np.random.default_rng(0).normal(size=(20, 7, 12, 12))
    for x in (first, np.moveaxis(first, 1, -1)):
        assert any("as_='images'" in note for note in load((x, np.arange(20) % 2)).notes)
        data = load((x, np.arange(20) % 2), as_="images", val=0, test=0)
        assert data.shape == (7, 12, 12)
        assert np.allclose(examples(data).x, first)


def test_it_is_kept_in_the_record(tmp_path: Path) -> None:
    fallow.fit("mlp:hidden=4", (X, Y), epochs=1, generations=1, out=tmp_path / "run", as_="features", augment="none")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["understood"].startswith("300 rows of 256 features, 10 classes")
    with pytest.raises(RequestError, match="unknown kind of examples"):
        fallow.fit("mlp:hidden=4", (X, Y), as_="pictures")
