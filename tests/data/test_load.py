"""What `load` makes of names, arrays and Datasets: parts, statistics, refusals."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from fallow.base.errors import RequestError
from fallow.data import BUNDLED, Data, Examples, load


def rows(n: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Examples that carry their own number."""
    return torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 2), torch.arange(n) % classes


def numbers(part: Any) -> set[int]:
    assert isinstance(part, Examples)
    return set(part.x[:, 0].int().tolist())


def one_line(error: pytest.ExceptionInfo[RequestError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_importing_is_light() -> None:
    code = "import sys, fallow.data; print({'sklearn', 'PIL', 'scipy', 'kornia'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_parts_are_disjoint_complete_and_stratified() -> None:
    data = load(rows(300))
    parts = [numbers(data.train), numbers(data.val), numbers(data.test)]
    assert [len(part) for part in parts] == [192, 48, 60]
    assert set.union(*parts) == set(range(300))
    for part in (data.train, data.val, data.test):
        assert isinstance(part, Examples)
        assert torch.bincount(part.y).unique().numel() == 1
        assert torch.equal(part.x[:, 0].long() % 3, part.y)  # labels stay with their examples
    assert numbers(load(rows(300)).test) == parts[2]
    assert numbers(load(rows(300), seed=1).test) != parts[2]


def test_train_keeps_a_number_and_sizes_validation_by_it() -> None:
    data = load(rows(1000), train=90, val=0.25)
    sizes = data.describe()["sizes"]
    assert sizes == {"train": 90, "val": 30, "test": 200}
    assert not numbers(data.train) & numbers(data.val)
    assert not (numbers(data.train) | numbers(data.val)) & numbers(data.test)
    # The test set does not depend on how much training data is kept.
    assert numbers(data.test) == numbers(load(rows(1000)).test)


def test_train_may_leave_less_for_validation_but_not_nothing() -> None:
    assert load(rows(100), train=70, test=0).describe()["sizes"] == {"train": 70, "val": 18, "test": 0}
    assert load(rows(100), train=95, test=0).describe()["sizes"] == {"train": 95, "val": 5, "test": 0}
    assert load(rows(100), train=100, test=0, val=0).describe()["sizes"]["train"] == 100
    with pytest.raises(RequestError, match="at most 97, or val=0"):
        load(rows(100), train=99, test=0)
    with pytest.raises(RequestError, match="more than the 100"):
        load(rows(100), train=101, test=0, val=0)
    with pytest.raises(RequestError, match="too few for 3 classes"):
        load(rows(100), train=2)
    with pytest.raises(RequestError, match="at least 1"):
        load(rows(100), train=0)


def test_no_validation_no_test() -> None:
    data = load(rows(30), val=0, test=0)
    assert data.val is None
    assert data.test is None
    assert numbers(data.train) == set(range(30))
    for wrong in (-0.1, 1.0):
        with pytest.raises(RequestError, match="fraction"):
            load(rows(30), val=wrong)


def test_own_parts_are_kept() -> None:
    x, y = rows(100)
    data = load(((x[:60], y[:60]), (x[60:], y[60:])))
    assert numbers(data.test) == set(range(60, 100))
    assert numbers(data.train) | numbers(data.val) == set(range(60))
    data = load(((x[:50], y[:50]), (x[50:90], y[50:90]), (x[90:], y[90:])))
    assert [numbers(part) for part in (data.train, data.val, data.test)] == [
        set(range(50)),
        set(range(50, 90)),
        set(range(90, 100)),
    ]
    data = load([Examples(x[:60], y[:60]), Examples(x[60:90], y[60:90]), Examples(x[90:], y[90:])], train=12)
    assert data.describe()["sizes"] == {"train": 12, "val": 3, "test": 10}  # validation shrinks with train
    assert load(((x[:50], y[:50]), (x[50:90], y[50:90]), (x[90:], y[90:])), val=0).val is None


def test_statistics_are_of_the_training_part_alone() -> None:
    data = load(rows(300), train=30)
    assert isinstance(data.train, Examples)
    assert data.mean is not None
    assert data.std is not None
    x = data.train.x.double()
    assert torch.allclose(data.mean.double(), x.mean(0))
    assert torch.allclose(data.std.double(), x.std(0, correction=0))
    assert data.mean.shape == (2,)


def test_scarce_classes_are_named() -> None:
    x, y = rows(30)
    y[7] = 9
    with pytest.raises(RequestError) as error:
        load((x, y))
    assert "class '9' has 1 of the 3 examples" in one_line(error)
    with pytest.raises(RequestError, match="class '9' has 1 of the 2 examples"):
        load((x, y), test=0)
    assert load((x, y), test=0, val=0).classes[-1] == "9"
    y[8] = y[9] = 9
    data = load((x, y))
    for part in (data.train, data.val, data.test):
        assert isinstance(part, Examples)
        assert set(part.y.tolist()) == {0, 1, 2, 3}


def test_digits() -> None:
    data = load("digits")
    assert isinstance(data.train, Examples)
    assert data.train.x.dtype == torch.uint8
    assert data.shape == (1, 8, 8)
    assert data.train.x.max() == 255
    assert set(data.train.x.unique().tolist()) == {round(v * 255 / 16) for v in range(17)}
    assert data.describe()["sizes"] == {"train": 1150, "val": 288, "test": 359}


def test_synthetic_spells_the_label() -> None:
    data = load("synthetic:alpha=0.5", n_test=80)
    assert data.describe()["sizes"] == {"train": 256, "val": 64, "test": 80}
    for part in (data.train, data.val, data.test):
        assert isinstance(part, Examples)
        for x, y in zip(part.x, part.y.tolist(), strict=True):
            assert x[:3].tolist() == [0.5 if bit == "1" else -0.5 for bit in f"{y:03b}"]
    assert isinstance(data.train, Examples)
    counts = torch.bincount(data.train.y, minlength=8)  # uniform labels: 32 ± 5 of each
    assert counts.min() > 12
    assert 2 < counts.float().std() < 12
    noise = data.train.x[:, 3:]
    assert noise.shape == (256, 125)
    assert abs(float(noise.mean())) < 0.03
    assert abs(float(noise.std()) - 1) < 0.03
    same, other = load("synthetic", alpha=0.5), load("synthetic", alpha=0.5, seed=1)
    assert isinstance(same.train, Examples)
    assert isinstance(other.train, Examples)
    assert torch.equal(same.train.x, data.train.x)
    assert not torch.equal(other.train.x, data.train.x)
    assert load("synthetic", train=1000, val=0).describe()["sizes"] == {"train": 1000, "val": 0, "test": 2000}


def test_bundled_options_are_checked() -> None:
    with pytest.raises(RequestError, match="did you mean 'alpha'"):
        load("synthetic:alpa=2")
    with pytest.raises(RequestError, match="digits has no options"):
        load("digits", alpha=2)
    for wrong in ("alpha=-1", "alpha=big", "n_test=2.5", "n_test=3"):
        with pytest.raises(RequestError, match="give a"):
            load(f"synthetic:{wrong}")
    with pytest.raises(RequestError, match="for folders of images"):
        load("digits", size=32)
    assert all(entry.summary for entry in BUNDLED.values())


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as error:
        load("digit")
    assert "did you mean 'digits'" in one_line(error)
    with pytest.raises(RequestError, match=r"there is no .*nothing.*bundled name \(digits, synthetic\)"):
        load(tmp_path / "nothing.npz")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(RequestError, match="no known kind"):
        load("notes.txt")
    with pytest.raises(RequestError, match="is a int"):
        load(3)


def test_data_comes_back_as_it_is() -> None:
    data = load("digits")
    assert load(data) is data


def test_describe_is_json_and_knows_the_data() -> None:
    described = load(rows(30)).describe()
    assert json.loads(json.dumps(described)) == described
    x, y = rows(30)
    x[int(next(iter(numbers(load(rows(30)).train)))), 1] += 1  # one value of one training example
    assert load((x, y)).describe()["digest"] != described["digest"]
    assert load(rows(30)).describe()["digest"] == described["digest"]
    assert load(rows(30), seed=1).describe()["digest"] != described["digest"]


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (np.zeros((9, 5, 6), np.uint8), (1, 5, 6), torch.uint8),
        (np.zeros((9, 5, 6), np.float64), (5, 6), torch.float32),
        (np.zeros((9, 5), np.int64), (5,), torch.float32),
        (np.zeros((9, 5), np.uint8), (5,), torch.float32),
        (np.zeros((9, 5, 6, 3), np.uint8), (3, 5, 6), torch.uint8),
        (np.zeros((9, 3, 5, 6), np.uint8), (3, 5, 6), torch.uint8),
        (np.zeros((9, 5, 6, 1), np.float32), (1, 5, 6), torch.float32),
        (np.zeros((9, 5, 6, 3), np.int64), (3, 5, 6), torch.uint8),
        (np.zeros((9, 5, 6, 7), np.uint8), (1, 5, 6, 7), torch.uint8),
        (np.zeros((9, 5, 6), bool), (1, 5, 6), torch.uint8),
        (torch.zeros(9, 3, 5, 3), (3, 5, 3), torch.float32),
        (np.zeros((9, 3, 5, 1)), (1, 3, 5), torch.float32),
        ([[0.0, 1.0]] * 9, (2,), torch.float32),
    ],
)
def test_layouts(x: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    data = load((x, np.arange(9) % 3), val=0, test=0)
    assert isinstance(data.train, Examples)
    assert data.shape == shape
    assert data.train.x.dtype == dtype


def test_channels_last_pixels_stay_in_place() -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), np.uint8)
    data = load((x, [0, 1] * 3), val=0, test=0)
    assert isinstance(data.train, Examples)
    for n, row, column, channel in np.ndindex(x.shape):
        assert data.train.x[n, channel, row, column] == x[n, row, column, channel]


def test_transparency_is_laid_on_white() -> None:
    x = np.full((4, 2, 2, 4), 100, np.uint8)
    x[..., 3] = np.array([0, 255, 51, 255])[:, None, None]
    data = load((x, [0, 1, 0, 1]), val=0, test=0)
    assert isinstance(data.train, Examples)
    assert data.train.x[:, 0, 0, 0].tolist() == [255, 100, 224, 100]
    assert any("white" in note for note in data.notes)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([3, -1, 3, -1]), ["-1", "3"]),
        (np.array([1.0, 0.0, 1.0, 0.0]), ["0", "1"]),
        (np.array(["b", "a", "b", "a"]), ["a", "b"]),
        (np.array([b"b", b"a", b"b", b"a"]), ["a", "b"]),
        (np.array([[1], [0], [1], [0]], np.uint8), ["0", "1"]),
        (["b", "a", "b", "a"], ["a", "b"]),
    ],
)
def test_labels(y: Any, classes: list[str]) -> None:
    data = load((np.zeros((4, 2)), y), val=0, test=0)
    assert isinstance(data.train, Examples)
    assert data.classes == classes
    assert data.train.y.tolist() == [1, 0, 1, 0]


X = np.zeros((6, 2))
Y = np.arange(6) % 2


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ((X, Y[:5]), "6 examples but 5 labels"),
        ((X, Y + 0.5), "fractions"),
        ((X, np.where(Y == 0, np.nan, 1)), "fractions"),
        ((X, np.eye(6)), "one label for each"),
        ((X, Y * 0), "1 class: give two"),
        ((np.where(np.arange(6)[:, None] == 4, np.nan, X), Y), "NaN or infinite.*number 4"),
        ((X + np.inf, Y), "NaN or infinite values in 6"),
        ((X + 1e300, Y), "NaN or infinite"),
        ((np.zeros(6), Y), "features N×F"),
        ((np.zeros((0, 2)), Y[:0]), "features N×F"),
        ((np.array([["a", "b"]] * 6), Y), "give numbers"),
        ((np.zeros((6, 2), complex), Y), "give numbers"),
        (([[1.0], [1.0, 2.0]] * 3, Y), "equal lengths"),
        (((X, Y), (X, Y + 1)), "class '2' is in test but not in train"),
        (((X, Y), (X[:, :1], Y)), "same kind"),
        (((X, Y), Examples(torch.zeros(2, 2), torch.arange(2))), "give \\(x, y\\) for each"),
        ((X, Y, X), "sequence of 3"),
        ((X,), "sequence of 1"),
    ],
)
def test_bad_arrays(source: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says) as error:
        load(source, val=0, test=0)
    one_line(error)


def test_examples_must_be_laid_out() -> None:
    with pytest.raises(RequestError, match="uint8 images"):
        Examples(torch.zeros(3, 4, dtype=torch.float64), torch.arange(3))
    with pytest.raises(RequestError, match="uint8 images"):
        Examples(torch.zeros(3, 4, 4, dtype=torch.uint8), torch.arange(3))
    with pytest.raises(RequestError, match="one int64"):
        Examples(torch.zeros(3, 4), torch.arange(2))
    ten = Examples(torch.zeros(20, 10, 4, 4, dtype=torch.uint8), torch.arange(20) % 2)  # ten channels: as they are
    assert load(ten).shape == (10, 4, 4)
    with pytest.raises(RequestError, match="NaN"):
        load(Examples(torch.full((9, 2), torch.nan), torch.arange(9) % 3))


class Big(Dataset[tuple[Tensor, int]]):
    """Too long to look at every item."""

    def __len__(self) -> int:
        return 10_001

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(2), index % 5


def test_dataset_is_split_by_its_labels() -> None:
    x, y = rows(100, classes=4)
    data = load(TensorDataset(x, y), train=40)
    assert data.describe()["sizes"] == {"train": 40, "val": 10, "test": 20}
    chosen = [part.indices for part in (data.train, data.val, data.test) if isinstance(part, Subset)]
    assert len(set().union(*chosen)) == 70
    assert torch.bincount(y[chosen[0]]).tolist() == [10] * 4
    assert load(Subset(TensorDataset(x, y), range(10, 50)), test=0).describe()["sizes"]["train"] == 32
    own = load((TensorDataset(x, y), TensorDataset(x[:8], y[:8])))
    assert own.describe()["sizes"] == {"train": 80, "val": 20, "test": 8}
    assert own.describe()["digest"] != data.describe()["digest"]
    three = load((TensorDataset(x, y), TensorDataset(x[:9], y[:9]), DataLoader(TensorDataset(x[:8], y[:8]))))
    assert three.describe()["sizes"] == {"train": 100, "val": 9, "test": 8}


def test_classes_of_a_dataset() -> None:
    with pytest.raises(RequestError, match="classes=NUMBER"):
        load(Big())
    data = load(Big(), classes=5)
    assert data.classes == list("01234")
    assert any("at random" in note for note in data.notes)
    assert data.describe()["sizes"] == {"train": 6401, "val": 1600, "test": 2000}

    class Named(Big):
        targets = [i % 5 for i in range(10_001)]
        classes = list("abcde")

    assert load(Named()).classes == list("abcde")
    assert load(DataLoader(Named(), batch_size=100)).classes == list("abcde")
    assert load(Named(), classes=list("vwxyz")).classes == list("vwxyz")
    with pytest.raises(RequestError, match="indices from 0 to 2"):
        load(Named(), classes=3)
    with pytest.raises(RequestError, match="unknown option"):
        load(Named(), clases=3)


def test_looking_at_a_dataset_leaves_no_trace() -> None:
    class Noisy(Big):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            np.random.rand()
            return torch.rand(2), index % 2

    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    load(Noisy())
    load(DataLoader(Noisy(), shuffle=True))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (torch.zeros(2), "a Tensor: return \\(x, label\\)"),
        ({"x": 1}, "a dict"),
        ((torch.zeros(2), 0.5), "tuple of Tensor, float"),
        ((torch.zeros(2), torch.zeros(3)), "label an integer"),
        (("text", 1), "x in an item of the Dataset is a str"),
    ],
)
def test_bad_items(item: Any, says: str) -> None:
    class Items(Big):
        def __getitem__(self, index: int) -> Any:
            return item

    with pytest.raises(RequestError, match=says):
        load(Items(), classes=2)


def test_data_is_plain() -> None:
    data = Data("d", Examples(torch.zeros(2, 2), torch.arange(2)), None, None, ["a", "b"], (2,))
    assert data.describe()["sizes"] == {"train": 2, "val": 0, "test": 0}
