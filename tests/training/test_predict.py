"""The model of a run, used: on files of many kinds, past bad ones, and never by code that a record names."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fallow
from fallow import Predictor, RequestError
from fallow.data import Examples, load
from fallow.diagnose.subjects import subjects

HOW = {"epochs": 4, "generations": 1, "lr": 0.05, "batch_size": 8}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Bright cats and dark dogs."""
    draw = np.random.default_rng(0)
    for label, low in (("cat", 150), ("dog", 0)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(12):
            pixels = draw.integers(low, low + 100, (8, 8), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i:02}.png")
    return tmp_path / "images"


@pytest.fixture
def predictor(images: Path, tmp_path: Path) -> Predictor:
    fallow.fit("mlp:hidden=16", images, out=tmp_path / "run", **HOW)
    return Predictor(tmp_path / "run")


def test_which_of_several_arrays_is_predicted_is_said(predictor: Predictor, tmp_path: Path) -> None:
    x = np.arange(6 * 64, dtype=np.uint8).reshape(6, 8, 8)
    np.savez(tmp_path / "parts.npz", x_train=x, y_train=np.arange(6), x_test=x[:2], y_test=np.arange(2))
    with pytest.warns(UserWarning, match=r"of .*parts.npz only x_test is predicted, not x_train"):
        assert len(predictor(tmp_path / "parts.npz")) == 2


def test_folders_arrays_and_bad_files(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    found = predictor(images)
    assert [p.name for p in found] == sorted(str(path) for path in images.rglob("*.png"))
    assert [p.label for p in found] == ["cat"] * 12 + ["dog"] * 12
    assert not found.failed
    (images / "dog" / ".checkpoints").mkdir()
    (images / "dog" / ".checkpoints" / "old.png").write_bytes(Path(found[0].name).read_bytes())
    assert list(predictor(images)) == list(found)  # hidden folders are left alone, as in training
    shutil.rmtree(images / "dog" / ".checkpoints")
    (images / "dog" / "bad.png").write_text("no image")
    again = predictor([images, tmp_path / "gone.png"])
    assert list(again) == list(found)
    assert list(again.failed) == [str(images / "dog" / "bad.png"), str(tmp_path / "gone.png")]
    x = np.stack([np.array(Image.open(p.name)) for p in found])
    np.savez(tmp_path / "x.npz", images=x)
    np.save(tmp_path / "x.npy", x)
    for kind in ("npz", "npy"):
        rows = predictor(tmp_path / f"x.{kind}")
        assert [p.label for p in rows] == [p.label for p in found]
        assert rows[3].name == f"{tmp_path / 'x'}.{kind}:3"
    for same in (x, x[:, None], x[..., None], x.reshape(24, -1), x.astype(np.float64), torch.from_numpy(x)):
        assert [p.label for p in predictor(same)] == [p.label for p in found]
    assert predictor(x[0])[0].label == "cat"
    with pytest.raises(RequestError, match=r"have shape \(9, 9\): the model was trained on \(1, 8, 8\)"):
        predictor(np.zeros((2, 9, 9)))


def test_another_scale_is_refused(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    x = np.stack([np.array(Image.open(path)) for path in sorted(images.rglob("*.png"))])
    with pytest.raises(RequestError, match=r"scale cannot be right: x is in 0…1, .* bytes of 0…255"):
        predictor(x / 255)
    for other in (x / 127.5 - 1, (x - x.mean()) / x.std()):
        with pytest.raises(RequestError, match=r"scale cannot be right: x goes from -"):
            predictor(other)
    assert predictor(x.astype(float) - 0.5)[0].label == "cat"  # a little below 0, by some resizing
    assert predictor(x.astype(float))[0].label == "cat"
    assert predictor(np.zeros((1, 8, 8), np.uint8))[0].label == "dog"  # black is black
    floats_and_classes = (x / 255).astype(np.float32), np.repeat([0, 1], 12)
    fallow.fit("mlp:hidden=16", floats_and_classes, out=tmp_path / "floats", as_="images", **HOW)
    floats = Predictor(tmp_path / "floats")
    assert floats(x / 255)[0].label == "0"
    with pytest.raises(RequestError, match="scale cannot be right: x goes from 0 to 2"):
        floats(x)


def test_another_scale_than_that_of_arrays_is_refused(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).uniform(0, 200, (24, 8, 8)), np.arange(24) % 2
    x[y == 1, :4] += 55.5
    for name, scale in (("fine", 1.0), ("deep", 200.0)):
        fallow.fit("mlp:hidden=4", (scale * x, y), out=tmp_path / name, as_="images", **HOW)
    with pytest.raises(RequestError, match=r"scale cannot be right: x goes from .* trained on about"):
        Predictor(tmp_path / "fine")(x / 256)
    with pytest.raises(RequestError, match=r"scale cannot be right: x goes from .* trained on about"):
        Predictor(tmp_path / "deep")(x.astype(np.uint8))
    assert len(Predictor(tmp_path / "deep")(x.astype(np.uint8) * 0.0 + 1)) == 24  # dark, but no fractions


def test_channels_of_any_number_may_come_last(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(24, 8, 8, 5)), np.arange(24) % 2
    fallow.fit("mlp:hidden=4", (x, y), out=tmp_path / "run", as_="images", **HOW)
    predictor = Predictor(tmp_path / "run")
    assert list(predictor(x)) == list(predictor(np.moveaxis(x, -1, 1)))


def test_the_reported_accuracy_to_the_digit(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    data, result = load(images), json.loads((tmp_path / "run" / "result.json").read_text())
    assert isinstance(data.test, Examples)
    right = [p.label == data.classes[y] for p, y in zip(predictor(data.test.x), data.test.y.tolist(), strict=True)]
    assert np.mean(right) == result["best"]["test_accuracy"]


def test_tables_numbers_and_labels(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=draw) * torch.tensor([1.0, 100.0, 0.01])
    fallow.fit("mlp:hidden=16", (x, x[:, 0] * 7 + 50.5), out=tmp_path / "numbers", **(HOW | {"epochs": 20}))
    numbers = Predictor(tmp_path / "numbers")
    (tmp_path / "x.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in x[:20].tolist()) + "\n")
    found = numbers(tmp_path / "x.csv")
    assert [p.name for p in found] == [f"{tmp_path / 'x.csv'}:{row}" for row in range(20)]
    assert np.allclose([p.label for p in found], 7 * x[:20, 0] + 50.5, atol=4)
    assert {p.confidence for p in found} == {None}
    (tmp_path / "bad.csv").write_text("a,b,c\n1,2,three\n")
    with pytest.raises(RequestError, match="holds more than numbers"):
        numbers(tmp_path / "bad.csv")
    (tmp_path / "gap.csv").write_text("a,b,c\n1,2,3\n4,,6\n7,8,nan\n1,2,3\n")  # rows with gaps are left out and told
    found = numbers(tmp_path / "gap.csv")
    assert [p.name.rpartition(":")[2] for p in found] == ["0", "3"]
    assert found[0].label == found[1].label
    assert list(found.failed) == [f"{tmp_path / 'gap.csv'}:{row}" for row in (1, 2)]
    with pytest.raises(RequestError, match="gaps or values that are not finite"):
        numbers(torch.tensor([[1.0, float("nan"), 2.0]]))
    y = torch.stack([x[:, 0] > 0, x[:, 1] > 0], 1).float()
    fallow.fit("mlp:hidden=16", (x, y), out=tmp_path / "labels", **(HOW | {"epochs": 20}))
    for p, wanted in zip(Predictor(tmp_path / "labels")(x[:10]), y[:10].tolist(), strict=True):
        assert p.label == [name for name, there in zip("01", wanted, strict=True) if there] or p.confidence < 0.8


class Frame(dict):
    """As much of a DataFrame as is read: columns of several kinds, by name."""

    columns = property(dict.keys)

    def to_numpy(self):
        return np.array([column.tolist() for column in self.values()], object).T


def test_a_data_frame_is_read_by_its_names(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    age, ward = draw.normal(50, 20, 80), draw.choice(["north", "south"], 80)
    late = np.where((age > 50) == (ward == "north"), "yes", "no")
    rows = zip(age.tolist(), ward.tolist(), late.tolist(), strict=True)
    (tmp_path / "t.csv").write_text("age,ward,late\n" + "".join(f"{a!r},{w},{y}\n" for a, w, y in rows))
    fallow.fit("mlp:hidden=16", tmp_path / "t.csv", target="late", out=tmp_path / "r", **(HOW | {"epochs": 20}))
    predictor = Predictor(tmp_path / "r")
    frame = Frame(ward=ward.astype(object), extra=np.zeros(80), age=age)
    assert [p.label for p in predictor(frame)] == [p.label for p in predictor(tmp_path / "t.csv")]
    frame["ward"][3] = float("nan")  # as pandas has what is missing
    assert len(predictor(frame)) == 80
    for strange in ([[1.0, 2.0]], None, [np.zeros(2)]):
        with pytest.raises(RequestError, match="give an array, a tensor, a DataFrame, or paths of files"):
            predictor(strange)


def test_numbers_of_a_data_frame_need_no_reading(tmp_path: Path) -> None:
    """1.125 is no thousand and a half, though the file of training would have had it so."""
    dose = (np.arange(80) % 8 + 1.125).tolist()
    rows = "".join(f"{value:.3f};{'ny'[value > 5]}\n".replace(".", ",") for value in dose)
    (tmp_path / "t.csv").write_text("dose;y\n" + rows)
    fallow.fit("mlp:hidden=4", tmp_path / "t.csv", target="y", out=tmp_path / "r", **(HOW | {"epochs": 1}))
    predictor = Predictor(tmp_path / "r")
    found, expected = (predictor(rows) for rows in (Frame(dose=np.array(dose)), tmp_path / "t.csv"))
    assert [p.confidence for p in found] == [p.confidence for p in expected]


def test_more_outputs_than_classes_are_never_the_answer(tmp_path: Path) -> None:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.bias[2] = 50.0  # an output that no example belongs to
    fallow.fit(net, (x, (x[:, 0] > 0).long()), out=tmp_path / "r", **(HOW | {"epochs": 1, "lr": 1e-6}))
    assert {p.label for p in Predictor(tmp_path / "r", model=nn.Linear(4, 3))(x)} <= {"0", "1"}


FACTORY = """
from pathlib import Path
from torch import nn
Path({trace!r}).write_text("imported")
def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


def test_nothing_is_imported_because_a_record_says_so(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    trace = tmp_path / "trace"
    Path("foreign_factory.py").write_text(FACTORY.format(trace=str(trace)))
    fallow.fit("foreign_factory:net", images, out="run", **HOW)
    assert trace.exists()
    monkeypatch.delitem(sys.modules, "foreign_factory")
    trace.unlink()
    for attempt in (lambda: Predictor("run"), lambda: subjects([Path("run")]), lambda: Predictor("run", model="mlp")):
        with pytest.raises(RequestError, match=r"trained foreign_factory:net, (which is not fallow's own|not mlp)"):
            attempt()
    assert not trace.exists()
    assert Predictor("run", model="foreign_factory:net")(images)[0].label == "cat"
    assert trace.exists()
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    assert Predictor("run", model=module)(images)[0].label == "cat"


def test_few_shot_runs_are_refused_with_a_reason(tmp_path: Path) -> None:
    from fallow.data.tasks import Sinusoid

    tasks = Sinusoid(shots=2, val_tasks=4, test_tasks=4)
    fallow.fewshot(None, tasks, "maml:steps=1", iterations=2, every=1, out=tmp_path / "run")
    with pytest.raises(RequestError, match="learned to learn from few shots"):
        Predictor(tmp_path / "run")
