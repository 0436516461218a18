"""Real files of every kind, whole and damaged."""

import gzip
import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fallow.base.errors import RequestError, WorkError
from fallow.data import Examples, Files, load, stream
from fallow.data.images import probe
from fallow.data.sources import folder as folders

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, shape, np.uint8)


def train_of(source: Path, **options: Any) -> Examples:
    """Everything there is, in its order."""
    data = load(source, **({"val": 0, "test": 0} | options))
    assert isinstance(data.train, Examples)
    return data.train


# ---------------------------------------------------------------- .npz


def test_npz_with_parts_names_and_strangers(tmp_path: Path) -> None:
    x, y = pixels(40, 6, 6, 3), np.arange(40, dtype=np.uint8) % 4
    np.savez(
        tmp_path / "a.npz",
        x_train=x[:30],
        y_train=y[:30],
        x_test=x[30:],
        y_test=y[30:],
        species_train=y[:30] // 2,
        class_names=np.array(list("abcd")),
        note=np.array("hello"),
    )
    data = load(tmp_path / "a.npz")
    assert (data.name, data.shape, data.classes) == ("a", (3, 6, 6), list("abcd"))
    assert data.describe()["sizes"] == {"train": 24, "val": 6, "test": 10}
    assert isinstance(data.test, Examples)
    assert np.array_equal(data.test.x.permute(0, 2, 3, 1).numpy(), x[30:])
    assert data.test.y.tolist() == y[30:].tolist()


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("x", "y"),
        ("X", "Y"),
        ("images", "labels"),
        ("train_images", "train_labels"),
        ("data", "target"),
        ("signals", "label"),
    ],
)
def test_npz_spellings(tmp_path: Path, x: str, y: str) -> None:
    np.savez_compressed(tmp_path / "a.npz", **{x: RNG.normal(size=(10, 3)), y: np.arange(10) % 2})
    assert train_of(tmp_path / "a.npz").x.shape == (10, 3)


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        ([0, 1, 2], ["a", "b", "c"], ["a", "b", "c"]),
        ([1, 2, 3], ["a", "b", "c"], ["a", "b", "c"]),  # counted from one
        ([0, 2], ["a", "b", "c"], ["a", "c"]),  # some classes only
        ([0, 7], ["a", "b", "c"], ["0", "7"]),  # names of something else
    ],
)
def test_npz_class_names_where_they_fit(
    tmp_path: Path, labels: list[int], names: list[str], expected: list[str]
) -> None:
    y = np.array(labels * 4)
    np.savez(tmp_path / "a.npz", x=np.zeros((len(y), 2)), y=y, classes=np.array(names))
    assert load(tmp_path / "a.npz").classes == expected


class Bomb:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_npz_refusals(tmp_path: Path) -> None:
    path, trace = tmp_path / "a.npz", tmp_path / "trace"

    def refused(says: str, **arrays: Any) -> None:
        np.savez(path, **arrays)
        with pytest.raises(RequestError, match=says):
            load(path)

    refused("holds a, b: name its arrays x and y", a=np.zeros(3), b=np.zeros(3))
    refused(
        "x_test without its labels",
        x_train=np.zeros((9, 2)),
        y_train=np.arange(9) % 3,
        x_test=np.zeros((9, 2)),
    )
    refused(
        "labels without its examples; if they are among recordings, call them x",
        recordings=np.zeros((4, 2)),
        labels=np.arange(4),
    )
    refused("array of objects", x=np.array([Bomb(trace)] * 4, object), y=np.arange(4))
    unequal = np.array([*map(np.zeros, (3, 4, 5)), None], object)
    refused("array of objects: .* unequal lengths cut or filled", x=unequal, y=np.arange(4))
    refused("array of objects", x=np.zeros((4, 2)), y=np.array(["a", 1, None, 2], object))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RequestError, match=r"not a readable \.npz"):
        load(path)
    path.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(RequestError, match=r"not a readable \.npz"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(RequestError, match=r"not a readable \.npz"):
        load(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(RequestError, match="single array"):
        load(path)
    assert not trace.exists()


def test_npz_with_damaged_content(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=RNG.normal(size=(200, 10)), y=np.arange(200) % 2)
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"not a readable \.npz|array of objects"):
        load(path)


# ---------------------------------------------------------------- idx


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    content = header + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx(tmp_path: Path, suffix: str) -> None:
    x, y = pixels(30, 7, 5), np.arange(30, dtype=np.uint8) % 3
    for part, rows in (("train", slice(0, 20)), ("t10k", slice(20, 30))):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte{suffix}", x[rows])
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte{suffix}", y[rows])
    data = load(tmp_path, val=0)
    assert data.name == tmp_path.name
    assert isinstance(data.train, Examples)
    assert isinstance(data.test, Examples)
    assert np.array_equal(data.train.x[:, 0].numpy(), x[:20])
    assert np.array_equal(data.test.x[:, 0].numpy(), x[20:])
    assert data.test.y.tolist() == y[20:].tolist()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damaged_idx_is_named(tmp_path: Path, suffix: str) -> None:
    images, labels = (tmp_path / f"train-{name}-ubyte{suffix}" for name in ("images-idx3", "labels-idx1"))
    write_idx(images, pixels(20, 7, 5))
    with pytest.raises(RequestError, match="lacks the images or labels for train"):
        load(tmp_path)
    write_idx(labels, np.arange(20, dtype=np.uint8) % 2)
    assert len(train_of(tmp_path)) == 20
    whole = images.read_bytes()
    for cut in (len(whole) - 30, len(whole) - 5, 30, 3, 0):
        images.write_bytes(whole[:cut])
        with pytest.raises(RequestError, match=images.name):
            load(tmp_path)
    write_idx(images, pixels(20, 7))
    with pytest.raises(RequestError, match=f"{images.name} begins with 00000802.*00000803"):
        load(tmp_path)
    content = bytes([0, 0, 8, 3]) + np.array([20, 7, 5], ">u4").tobytes() + bytes(20 * 35 + 1)
    images.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(RequestError, match="longer than"):
        load(tmp_path)
    huge = bytes([0, 0, 8, 3]) + np.array([2**31, 2**15, 2**15], ">u4").tobytes()  # must not reserve 2⁶¹ bytes
    images.write_bytes(gzip.compress(huge) if suffix else huge)
    with pytest.raises(RequestError, match="truncated"):
        load(tmp_path)


# ---------------------------------------------------------------- CIFAR


def write_cifar(path: Path, x: NDArray[Any], y: list[int], key: Any = b"labels", protocol: int = 2) -> None:
    data = key[:0] + (b"data" if isinstance(key, bytes) else "data")
    path.write_bytes(pickle.dumps({data: x, key: y, data[:0]: [data]}, protocol=protocol))


def python2_batch(x: NDArray[np.uint8], y: list[int]) -> bytes:
    """The pickle that Python 2 and its NumPy wrote: strings of bytes (opcode T), old module names."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    shape = b"(" + b"".join(b"M" + n.to_bytes(2, "little") for n in x.shape) + b"t"
    dtype = (
        b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
        b"(K\x01" + shape + dtype + b"\x89" + text(x.tobytes()) + b"tb"
    )
    labels = b"](" + b"".join(b"K" + bytes([n]) for n in y) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("key", [b"labels", "labels"])
def test_cifar10(tmp_path: Path, key: Any, protocol: int) -> None:
    x, y = pixels(30, 3072), [n % 3 for n in range(30)]
    write_cifar(tmp_path / "data_batch_1", x[:10], y[:10], key, protocol)
    write_cifar(tmp_path / "data_batch_2", x[10:20], y[10:20], key, protocol)
    write_cifar(tmp_path / "test_batch", x[20:], y[20:], key, protocol)
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({"label_names": ["plane", "car", "bird"]}))
    data = load(tmp_path, val=0)
    assert data.classes == ["plane", "car", "bird"]
    assert isinstance(data.train, Examples)
    assert isinstance(data.test, Examples)
    assert np.array_equal(data.train.x.numpy(), x[:20].reshape(20, 3, 32, 32))
    assert np.array_equal(data.test.x.numpy(), x[20:].reshape(10, 3, 32, 32))
    assert data.test.y.tolist() == y[20:]


def test_cifar_as_python_2_wrote_it(tmp_path: Path) -> None:
    x, y = pixels(12, 3072), [n % 3 for n in range(12)]
    content = python2_batch(x, y)
    assert np.array_equal(pickle.loads(content, encoding="bytes")[b"data"], x)  # the test's pickle is a true one
    (tmp_path / "data_batch_1").write_bytes(content)
    assert np.array_equal(train_of(tmp_path).x.numpy(), x.reshape(12, 3, 32, 32))


def test_cifar100(tmp_path: Path) -> None:
    x, y = pixels(30, 3072), [n % 5 for n in range(30)]
    write_cifar(tmp_path / "train", x[:20], y[:20], b"fine_labels")
    write_cifar(tmp_path / "test", x[20:], y[20:], b"fine_labels")
    (tmp_path / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"a", b"b", b"c", b"d", b"e"]}, 2))
    data = load(tmp_path)
    assert data.classes == list("abcde")
    assert data.describe()["sizes"] == {"train": 15, "val": 5, "test": 10}


def test_malicious_pickles_do_not_run(tmp_path: Path) -> None:
    trace, batch = tmp_path / "trace", tmp_path / "data_batch_1"

    def refused(content: bytes, says: str) -> None:
        batch.write_bytes(content)
        with pytest.raises(RequestError, match=says) as error:
            load(tmp_path)
        assert batch.name in str(error.value)
        assert "\n" not in str(error.value)
        assert not trace.exists()

    for protocol in (0, 2, 4, 5):
        refused(
            pickle.dumps({b"data": Bomb(trace), b"labels": [0]}, protocol),
            "mkdir, which no CIFAR batch needs",
        )
    refused(b"cbuiltins\neval\n(Vopen('trace', 'w')\ntR.", "builtins.eval")
    refused(b"cnumpy\nload\n(Vx\ntR.", "numpy.load")
    refused(b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "rot13")
    # STACK_GLOBAL with a dotted name would reach through an allowed module
    refused(b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.", "numpy.ndarray.dumps")
    refused(b"\x80\x02}(U\x04datacnumpy\nndarray\nu.", "not a CIFAR batch")
    refused(pickle.dumps([1, 2]), "should be a dict")
    refused(pickle.dumps({b"data": pixels(3, 3072), b"labels": [0, 1, 2]})[:5000], "not a readable")
    refused(b"", "not a readable")
    refused(pickle.dumps({b"data": pixels(3, 3000), b"labels": [0, 1, 2]}, 2), "N×3072")
    refused(pickle.dumps({b"data": np.zeros((3, 3072)), b"labels": [0, 1, 2]}, 2), "N×3072")
    refused(pickle.dumps({b"data": np.zeros((3, 3072), object), b"labels": [0, 1, 2]}, 2), "N×3072")
    refused(pickle.dumps({b"data": pixels(3, 3072), b"labels": [0, 1]}, 2), "one for each image")
    refused(pickle.dumps({b"data": pixels(3, 3072)}, 2), "'labels' or 'fine_labels'")
    # An array that claims more than its bytes
    lying = python2_batch(pixels(3, 3072), [0, 1, 2]).replace(b"(M\x03\x00M\x00\x0c", b"(M\xff\x00M\x00\x0c")
    refused(lying, "not a CIFAR batch")


# ---------------------------------------------------------------- folders of images


def write_folder(root: Path, classes: str = "abc", n: int = 6, size: tuple[int, int] = (9, 7)) -> dict[str, Any]:
    """PNG files of noise; returns the pixels by class/name."""
    written = {}
    for name in classes:
        (root / name).mkdir(parents=True)
        for i in range(n):
            written[f"{name}/{i}.png"] = image = pixels(*size, 3)
            Image.fromarray(image).save(root / name / f"{i}.png")
    return written


def test_folder_of_png(tmp_path: Path) -> None:
    written = write_folder(tmp_path)
    data = load(tmp_path, val=0, test=0)
    assert isinstance(data.train, Examples)
    assert (data.classes, data.shape) == (["a", "b", "c"], (3, 9, 7))
    assert data.notes == []
    found = [image.permute(1, 2, 0).numpy() for image in data.train.x]
    assert all(np.array_equal(image, written[key]) for image, key in zip(found, sorted(written), strict=True))
    assert data.train.y.tolist() == [0] * 6 + [1] * 6 + [2] * 6


def test_folder_with_parts(tmp_path: Path) -> None:
    written = {part: write_folder(tmp_path / part, n=n) for part, n in (("train", 8), ("valid", 2), ("test", 3))}
    data = load(tmp_path)
    assert data.describe()["sizes"] == {"train": 24, "val": 6, "test": 9}
    assert isinstance(data.test, Examples)
    assert np.array_equal(data.test.x[0].permute(1, 2, 0).numpy(), written["test"]["a/0.png"])
    assert not np.array_equal(data.test.x[0].permute(1, 2, 0).numpy(), written["train"]["a/0.png"])
    write_folder(tmp_path / "test", classes="z")
    with pytest.raises(RequestError, match="class 'z' is in test but not in train"):
        load(tmp_path)


def test_jpeg_and_upper_case_and_nested(tmp_path: Path) -> None:
    smooth = np.linspace(0, 255, 16 * 16).reshape(16, 16).astype(np.uint8)
    for name in "ab":
        (tmp_path / name / "deep").mkdir(parents=True)
        Image.fromarray(smooth).save(tmp_path / name / "one.JPG", quality=95)
        Image.fromarray(smooth).save(tmp_path / name / "deep" / "two.jpeg", quality=95)
        (tmp_path / name / "notes.txt").write_text("not an image")
        (tmp_path / name / ".hidden.png").write_text("not an image")
    (tmp_path / ".git").mkdir()
    data = load(tmp_path, val=0, test=0)
    assert isinstance(data.train, Examples)
    assert data.train.x.shape == (4, 1, 16, 16)  # grey
    assert (data.train.x[0, 0].float() - torch.from_numpy(smooth).float()).abs().max() < 12
    assert any("2 files" in note for note in data.notes)


def test_modes_become_eight_bits_without_transparency(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        red = Image.new("RGBA", (4, 4), (200, 0, 0, 255))
        red.putpixel((0, 0), (200, 0, 0, 0))
        red.save(tmp_path / name / "1rgba.png")
        palette = Image.new("P", (4, 4), 1)
        palette.putpalette([0, 0, 0, 10, 20, 30])
        palette.save(tmp_path / name / "2palette.png")
        palette.save(tmp_path / name / "3clear.png", transparency=1)
        Image.new("L", (4, 4), 77).save(tmp_path / name / "4grey.png")
        Image.fromarray(np.full((4, 4), 257 * 250, np.uint16)).save(tmp_path / name / "5deep.png")
        Image.new("1", (4, 4), 1).save(tmp_path / name / "6bit.png")
        Image.new("LA", (4, 4), (50, 0)).save(tmp_path / name / "7la.png")
        Image.new("CMYK", (4, 4), (0, 0, 0, 0)).save(tmp_path / name / "8cmyk.jpg")
    x = train_of(tmp_path).x
    assert x.shape == (16, 3, 4, 4)
    assert x[0, :, 0, 0].tolist() == [255, 255, 255]
    corners = x[:8, :, 3, 3].tolist()
    assert corners[:5] == [[200, 0, 0], [10, 20, 30], [255] * 3, [77] * 3, [250] * 3]
    assert corners[5:] == [[255] * 3, [255] * 3, [255] * 3]


def test_grey_folders_have_one_channel(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        for i, image in enumerate((Image.new("L", (4, 4), 7), Image.new("LA", (4, 4), (9, 0)))):
            image.save(tmp_path / name / f"{i}.png")
    x = train_of(tmp_path).x
    assert x.shape == (4, 1, 4, 4)
    assert x[:, 0, 0, 0].tolist() == [7, 255, 7, 255]


def test_photographs_stand_upright(tmp_path: Path) -> None:
    upright = np.zeros((8, 16, 3), np.uint8)
    upright[:, 8:] = 255  # the right half is white
    for name in "ab":
        (tmp_path / name).mkdir()
        lying = Image.fromarray(np.rot90(upright).copy())  # turned to the left
        exif = Image.Exif()
        exif[0x0112] = 6  # turn to the right to view
        lying.save(tmp_path / name / "0.jpg", quality=95, exif=exif)
    x = train_of(tmp_path).x
    assert x.shape == (2, 3, 8, 16)
    assert x[0, 0, :, :6].max() < 20
    assert x[0, 0, :, 10:].min() > 235


def test_mixed_sizes_are_cut_to_the_centre_and_resized(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        wide = np.zeros((40, 120, 3), np.uint8)
        wide[:, 36:84] = (0, 100, 200)  # the centre square, and what an edge pixel may mix in
        Image.fromarray(wide).save(tmp_path / name / "wide.png")
        Image.new("RGB", (20, 20), (9, 9, 9)).save(tmp_path / name / "small.png")
    data = load(tmp_path, val=0, test=0)
    assert isinstance(data.train, Examples)
    assert data.shape == (3, 64, 64)
    resized, lost = data.notes
    assert resized == "Images of 20×20 to 40×120 pixels were cut to the centre and resized to 64×64."
    assert lost.startswith("The cut leaves 33 % of an image of 40×120: ")
    assert data.train.x[1].flatten(1).unique(dim=1).T.tolist() == [[0, 100, 200]]
    assert load(tmp_path, size=16, val=0, test=0).shape == (3, 16, 16)
    with pytest.raises(RequestError, match="size is 0"):
        load(tmp_path, size=0)


def test_large_images_of_one_size_shrink_too(tmp_path: Path) -> None:
    write_folder(tmp_path, size=(65, 65), n=1)
    assert load(tmp_path, val=0, test=0).shape == (3, 64, 64)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "not an image":
        path.write_bytes(b"<html>404</html>")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "header only":
        path.write_bytes(content[:40])
    else:  # another format under a familiar name
        stream = io.BytesIO()
        Image.new("RGB", (9, 7)).save(stream, how)
        path.write_bytes(stream.getvalue())


@pytest.mark.parametrize("suffix", ["bmp", "gif", "tif", "TIFF", "webp"])
def test_other_kinds_of_images(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shown = np.repeat(np.array([0, 60, 120, 250], np.uint8), 16).reshape(8, 8)
    exact = {"webp": {"lossless": True}}.get(suffix, {})
    for i, name in enumerate("ab"):
        Image.fromarray(shown if i else shown.T).save(tmp_path / name / f"1.{suffix}", **exact)
    assert np.array_equal(train_of(tmp_path).x[:, 0], np.stack([shown.T, shown]))


@pytest.mark.parametrize("suffix", ["jpg", "webp", "tif", "png"])
def test_photographs_of_any_kind_stand_upright(tmp_path: Path, suffix: str) -> None:
    """Twice as wide as high, and to be turned: the header must say twice as high as wide."""
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels(8, 16, 3)).save(tmp_path / f"a.{suffix}", exif=turned)
    assert probe(tmp_path / f"a.{suffix}").size == (16, 8)


def test_dark_files_are_pictures_and_grey_palettes_are_grey(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.fromarray(pixels(8, 8) % 2).save(tmp_path / name / f"{i}.png")
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).convert("P").save(tmp_path / name / "4.gif")
    data = load(tmp_path, val=0, test=0)
    assert data.pictures
    assert data.shape[0] == 1
    deep = (np.arange(64).reshape(8, 8) * 65).astype(np.uint16)  # 12 of 16 bits
    for path in tmp_path.glob("*/*.*"):
        path.unlink()
    for name in ("a", "b"):
        Image.fromarray(deep).save(tmp_path / name / "1.tif")
    assert any("of their range, and become bytes of 0 to 16" in note for note in load(tmp_path, val=0, test=0).notes)


def test_what_lies_beside_is_said(tmp_path: Path) -> None:
    for part in ("train", "test", "eval"):
        write_folder(tmp_path / part)
    Image.fromarray(pixels(9, 7, 3)).save(tmp_path / "train" / "loose.png")
    notes = load(tmp_path).notes
    assert "Ignored beside train/, test/: eval (fallow reads what is called val/)." in notes
    assert "1 image in train ignored: in no class folder." in notes


def test_annotations_and_tables_are_no_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path / "voc" / "JPEGImages")
    (tmp_path / "voc" / "Annotations").mkdir()
    (tmp_path / "voc" / "Annotations" / "0.xml").write_text("<annotation/>")
    with pytest.raises(RequestError, match=r"images and annotations \(Annotations/\): .* not boxes"):
        load(tmp_path / "voc")
    write_images(tmp_path / "listed" / "images")
    (tmp_path / "listed" / "annotations.csv").write_text("file,label\n0.png,a\n1.png,b\n")
    with pytest.raises(RequestError, match=r"single class folder, images: .* name a table, as in .*annotations.csv"):
        load(tmp_path / "listed")


def test_images_that_their_transparency_leaves_blank_are_said(tmp_path: Path) -> None:
    """White drawings on nothing, as icons are."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(4):
            drawing = np.full((8, 8, 4), 255, np.uint8)
            drawing[..., 3] = pixels(8, 8)
            drawing[..., :3] = 0 if name == "b" else 255
            Image.fromarray(drawing).save(tmp_path / name / f"{i}.png")
    (said,) = (note for note in load(tmp_path, val=0, test=0).notes if "transparency" in note)
    assert said.startswith("4 of 8 images are blank now that their transparency is laid on white")


def test_of_several_frames_the_first_is_taken_and_said(tmp_path: Path) -> None:
    frames = [Image.new("L", (8, 8), value) for value in (40, 200)]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        frames[0].save(tmp_path / name / "1.gif", save_all=True, append_images=frames[1:])
    data = load(tmp_path, val=0, test=0)
    assert "2 files with several pages or frames: the first of each was taken." in data.notes
    assert isinstance(data.train, Examples)
    assert data.train.x.unique().tolist() == [40]


def test_pixels_of_32_bits_are_not_guessed_at(tmp_path: Path) -> None:
    write_folder(tmp_path)
    Image.fromarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)).save(tmp_path / "a" / "scan.tif")
    whole = np.arange(64, dtype=np.int32).reshape(8, 8) * 70000
    Image.fromarray(whole).save(tmp_path / "a" / "whole.tif")
    assert "2 unreadable images skipped: a/scan.tif, a/whole.tif." in load(tmp_path, val=0, test=0).notes


@pytest.mark.parametrize("how", ["truncated", "not an image", "empty", "header only", "PPM"])
def test_damaged_images(tmp_path: Path, how: str) -> None:
    written = write_folder(tmp_path)
    damage(tmp_path / "b" / "3.png", how)
    data = load(tmp_path, val=0, test=0)
    assert isinstance(data.train, Examples)
    assert data.notes == ["1 unreadable image skipped: b/3.png."]
    assert data.train.y.tolist() == [0] * 6 + [1] * 5 + [2] * 6
    good = [image for key, image in sorted(written.items()) if key != "b/3.png"]
    assert np.array_equal(data.train.x.permute(0, 2, 3, 1).numpy(), np.stack(good))
    with pytest.raises(RequestError, match=r"3\.png cannot be read"):
        load(tmp_path, strict=True)
    for name in "abc":
        for i in range(4):
            damage(tmp_path / name / f"{i}.png", how) if (name, i) != ("b", 3) else None
    with pytest.raises(RequestError, match="12 of 18 images cannot be read"):
        load(tmp_path)


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has no class folders"):
        load(tmp_path)
    Image.new("L", (4, 4)).save(tmp_path / "loose.png")
    with pytest.raises(RequestError, match="has images but no class folders"):
        load(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(RequestError, match="holds no images"):
        load(tmp_path)
    Image.new("L", (4, 4)).save(tmp_path / "a" / "1.png")
    with pytest.raises(RequestError, match="1 class, 'a': give two"):
        load(tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(RequestError, match=r"class 'b' .* has 0 images"):
        load(tmp_path)
    Image.new("L", (4, 4)).save(tmp_path / "b" / "1.png")
    with pytest.raises(RequestError, match="class 'a' has 1 of the 3 examples"):
        load(tmp_path)


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    write_folder(tmp_path, n=10, size=(16, 16))
    in_memory = load(tmp_path, seed=3)
    monkeypatch.setattr(folders, "IN_MEMORY", 1000)
    on_disk = load(tmp_path, seed=3)
    assert isinstance(on_disk.train, Files)
    assert on_disk.describe()["sizes"] == in_memory.describe()["sizes"]
    assert on_disk.describe()["digest"] == load(tmp_path, seed=3).describe()["digest"]
    for part in ("train", "val", "test"):
        a, b = getattr(in_memory, part), getattr(on_disk, part)
        assert torch.equal(torch.stack([x for x, _ in (b[i] for i in range(len(b)))]), a.x)
        assert torch.equal(b.y, a.y)
    assert torch.allclose(on_disk.mean, in_memory.mean)  # type: ignore[arg-type]
    assert torch.allclose(on_disk.std, in_memory.std)  # type: ignore[arg-type]
    settings: dict[str, Any] = {"batch_size": 5, "seed": 1, "workers": workers}
    fast = list(stream(in_memory.train, in_memory, **settings).epoch(2))
    slow = list(stream(on_disk.train, on_disk, **settings).epoch(2))
    assert len(fast) == len(slow)
    for (x, y), (u, v) in zip(fast, slow, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
    moved = stream(on_disk.train, on_disk, augment="flip+crop", **settings)
    whole = list(moved.epoch(2))
    assert not torch.equal(whole[2][0], slow[2][0])
    assert torch.equal(next(iter(moved.epoch(2, start=2)))[0], whole[2][0])
    ranks = [stream(on_disk.train, on_disk, augment="flip+crop", rank=r, world=2, **settings) for r in (0, 1)]
    for step, parts in enumerate(zip(*(rank.epoch(2) for rank in ranks), strict=True)):
        assert torch.equal(torch.cat([x for x, _ in parts]), whole[step][0])


def test_a_file_that_is_damaged_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path)
    monkeypatch.setattr(folders, "IN_MEMORY", 1000)
    data = load(tmp_path, val=0, test=0)
    damage(tmp_path / "b" / "3.png", "truncated")
    with pytest.raises(WorkError, match=r"3\.png cannot be read"):
        list(stream(data.train, data, batch_size=4, seed=0).epoch(0))


def test_a_folder_around_the_class_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "wrap" / "pack" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "wrap" / "pack" / name / "0.png")
    with pytest.raises(RequestError, match=r"wrap holds a single folder, pack, .* did you mean .*pack\?"):
        load(tmp_path / "wrap")


def write_images(place: Path, n: int = 4) -> None:
    place.mkdir(parents=True)
    for i in range(n):
        Image.fromarray(pixels(9, 7, 3)).save(place / f"{i}.png")


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (
            "training_set/a training_set/b test_set/a test_set/b other/a",
            "holds test_set, training_set: these look like",
        ),
        ("Train_data/a Train_data/b", "holds Train_data: these look like parts"),
        ("val/a val/b test/a test/b", "holds test, val: these look like parts, not classes"),
        ("train test", "holds test, train: these look like parts"),  # without class folders
        ("train2017 val2017", "holds train2017, val2017: these look like parts"),  # COCO's
        ("cat/train cat/test dog/train dog/test", r"cat holds parts, train/ and test/: put them first, train/cat"),
        ("trainval/a trainval/b test/a test/b", "holds test, trainval: these look like parts"),
        ("fold1/a fold1/b fold2/a fold2/b fold_3/a fold_3/b", "holds fold1, fold2, fold_3: these look like parts"),
        ("development/a development/b evaluation/a evaluation/b", "holds development, evaluation: these look"),
        ("labelled/a labelled/b unlabelled/a unlabelled/b", "or put all examples of a class into one folder"),
        ("labelled/a labelled/b unlabelled", "holds labelled, unlabelled: these look like parts"),
        ("train/a train/b test", r"test/ has no labels, keep it elsewhere"),
        ("train bus car", ""),  # a class that is called so
        ("valid/2020 valid/2021 invalid/2020", ""),
        ("bullet_train test_tube", ""),
        ("development evaluation", ""),  # of a company
        ("fold/2020 plain/2020", ""),
    ],
)
def test_parts_are_not_learned_as_classes(places: str, says: str, tmp_path: Path) -> None:
    for place in places.split():
        write_images(tmp_path / place)
    if not says:
        assert load(tmp_path, val=0, test=0).classes == sorted({place.split("/")[0] for place in places.split()})
        return
    with pytest.raises(RequestError, match=says):
        load(tmp_path)


def test_folders_in_all_class_folders_are_said(tmp_path: Path) -> None:
    for place in ("cat/ann", "cat/ben", "cat/cy", "dog/ann", "dog/ben", "dog/cy"):
        write_images(tmp_path / "by" / place)
    said = "The classes are the folders cat, dog; ann, ben, … in each of them are no classes."
    assert said in load(tmp_path / "by").notes
    Image.fromarray(pixels(9, 7, 3)).save(tmp_path / "by" / "dog" / "0.png")
    assert not any("no classes" in note for note in load(tmp_path / "by").notes)


def test_hidden_folders_are_left_alone_at_any_depth(tmp_path: Path) -> None:
    write_folder(tmp_path)
    for name in (".ipynb_checkpoints", "__MACOSX"):
        write_images(tmp_path / "a" / "deep" / name)
    assert len(train_of(tmp_path)) == 18


def test_what_a_cut_loses_is_said(tmp_path: Path) -> None:
    write_folder(tmp_path / "wide", size=(16, 100))
    assert any("The cut leaves 16 % of an image of 16×100" in note for note in load(tmp_path / "wide").notes)
    write_folder(tmp_path / "photos", size=(60, 80))
    assert not any("The cut leaves" in note for note in load(tmp_path / "photos").notes)


def test_folders_of_almost_the_same_name(tmp_path: Path) -> None:
    """One may be a slip; letters of two sizes are none."""
    draw = np.random.default_rng(0)
    for root, names in (("pets", ("Cat ", "cat", "dog")), ("letters", ("A", "a", "b"))):
        for name in names:
            (tmp_path / root / name).mkdir(parents=True)
            for i in range(4):
                Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(tmp_path / root / name / f"{i}.png")
    said = "'Cat ' and 'cat' in 'pets' are treated as two classes: spell them alike if they are one."
    assert said in load(tmp_path / "pets").notes
    assert not any("two classes" in note for note in load(tmp_path / "letters").notes)


def test_why_images_of_floats_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "floats" / "data" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((8, 8), i / 7, np.float32)).save(tmp_path / "floats" / "data" / name / f"{i}.tif")
    with pytest.raises(RequestError, match="8 have pixels of 32 bits, whose black and white are not known"):
        load(tmp_path / "floats" / "data")
    (tmp_path / "floats" / "data").rename(tmp_path / "floats" / "train")
    (tmp_path / "outer").mkdir()
    (tmp_path / "floats").rename(tmp_path / "outer" / "floats")
    with pytest.raises(RequestError, match=r"did you mean .*floats\?"):  # it holds train/ alone
        load(tmp_path / "outer")
