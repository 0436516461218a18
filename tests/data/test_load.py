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
from fallow.data import BUNDLED, Classes, Data, Dense, Examples, Numbers, Target, budget, load, stream
from fallow.training.prepare import prepare


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


def test_synthetic_stays_on_its_scale() -> None:
    data = load("synthetic:alpha=0.5")
    assert data.mean is None  # by its own deviation the label would be ±1, whatever alpha
    assert "not scaled" in data.understood()
    context = prepare("mlp:hidden=8", data, "normal", epochs=1)
    x, _ = next(iter(context.train.ordered()))
    assert x[:, :3].abs().unique().tolist() == [0.5]
    context.close()


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
    with pytest.raises(RequestError, match="unknown kind"):
        load("notes.txt")
    with pytest.raises(RequestError, match=r"unknown kind: give a \.npz or \.csv"):
        load("notes.txt", target="income")
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
        (np.array(["b", "a", "b", "a"], object), ["a", "b"]),  # as pandas keeps labels
        (np.array([3, np.int64(-1), 3, -1], object), ["-1", "3"]),
        (np.array([True, np.False_, True, False], object), ["False", "True"]),
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
        (
            (X, np.where(Y == 0, np.nan, 1)),
            "y of train has NaN or infinite values in 3 .*number 0",
        ),
        (
            (X, np.where(Y[:, None] == 0, 0.5, [1, np.inf])),
            "NaN or infinite values in 3 .*number 1",
        ),
        ((X, np.eye(6) * 7), "y of train holds 7 in row 0, column 0: give each label as 0 or 1"),
        ((X, np.zeros((6, 3))), "no label in any of the 6 examples"),
        ((X, Y * 0 + 0.5), "'y' is 0.5 in all 6 training examples"),
        ((X, Y * 1e300 + 0.5), "more than float32 holds"),
        ((X, np.array([["a", "b"]] * 6)), "one label for each"),
        ((X, np.zeros((6, 2, 2))), "one label for each"),
        ((X, 3), "dtype"),
        ((X, np.array(["a", "b", None] * 2, object)), "y of train is missing in 2 examples .the first is number 2"),
        ((X, np.array([*"abcd", np.nan, "a"], object)), "y of train is missing in 1 examples .the first is number 4"),
        ((X, np.array(["a", 1] * 3, object)), "holds numbers and strings: give strings only, or numbers only"),
        ((X, np.array([{}] * 6, object)), "dtype"),
        ((X, [[1], [1, 2]] * 3), "equal lengths"),
        (((X, np.eye(6)), (X, np.eye(6)[:, :3])), "y of test has shape .6, 3., y of train .6, 6."),
        ((X, Y * 0), "1 class, '0': give two"),
        ((np.where(np.arange(6)[:, None] == 4, np.nan, X), Y), "NaN or infinite.*number 4"),
        ((X + np.inf, Y), "NaN or infinite values in 6"),
        ((X + 1e300, Y), "NaN or infinite"),
        ((np.zeros(6), Y), "features N×F"),
        ((np.zeros((0, 2)), Y[:0]), "features N×F"),
        ((np.array([["a", "b", "c"]] * 6), Y), "give a text for each example, or two"),
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
        ((torch.zeros(2), "cat"), "tuple of Tensor, str"),
        ((torch.zeros(2), 0.5), "classes has 2 names, but an example has 1 numbers"),
        ((torch.zeros(2), torch.ones(3)), "classes has 2 names, but an example has 3 labels"),
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


def regression(n: int) -> tuple[Tensor, Tensor]:
    """Features that carry their own number, and fractions to learn."""
    x = torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 2)
    return x, torch.randn(n, generator=torch.Generator().manual_seed(n)).exp()


def pictures(n: int) -> tuple[Tensor, Tensor]:
    """Grey pictures of 8×6 and masks of two classes."""
    draw = torch.Generator().manual_seed(n)
    y = (torch.rand(n, 8, 6, generator=draw) > 0.6).long()
    return torch.randint(0, 99, (n, 1, 8, 6), generator=draw, dtype=torch.uint8) + 150 * y[:, None].byte(), y


SIGNS = (torch.rand(120, 3, generator=torch.Generator().manual_seed(0)) < torch.tensor([0.5, 0.2, 0.1])).float()


class Items(Dataset[tuple[Tensor, Any]]):
    """Pairs that only fetching shows."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        return self.x[index], self.y[index].item() if self.y.ndim == 1 else self.y[index].numpy()


DOORS = {
    "numbers": regression(120),
    "several numbers": (regression(120)[0], regression(120)[1][:, None] * torch.tensor([1.0, -2.0])),
    "labels": (regression(120)[0], SIGNS),
    "dense": pictures(120),
    "classes": (regression(120)[0], torch.arange(120) % 3),
}


@pytest.mark.parametrize("kind", DOORS)
def test_one_door_for_all_containers(kind: str, tmp_path: Path) -> None:
    """The same target, the same parts, the same scale, and batches of the same bits, whatever holds the examples."""
    x, y = DOORS[kind]
    np.savez(tmp_path / "a.npz", x=x.numpy(), y=y.numpy())
    sources: dict[str, Any] = {
        "tensors": (x, y),
        "arrays": (x.numpy(), y.numpy()),
        "examples": Examples(x, y),
        "npz": tmp_path / "a.npz",
        "tensor dataset": TensorDataset(x, y),
        "dataset": Items(x, y),
    }
    loaded = {name: load(source, seed=3) for name, source in sources.items()}
    first = loaded["tensors"]
    assert first.target.kind == kind.split()[-1]
    assert first.describe()["sizes"] == {"train": 77, "val": 19, "test": 24}
    for name, data in loaded.items():
        assert (data.shape, data.classes) == (first.shape, first.classes), name
        assert (data.target.kind, data.target.names) == (first.target.kind, first.target.names), name
        assert data.target == first.target, name
        assert data.mean is not None
        assert torch.allclose(data.mean, first.mean), name  # type: ignore[arg-type]
        for part in ("train", "val", "test"):
            ours, theirs = (
                next(iter(stream(getattr(d, part), d, batch_size=99, seed=0).ordered())) for d in (data, first)
            )
            assert torch.allclose(ours[0], theirs[0], atol=1e-5), (name, part)
            assert torch.equal(ours[1], theirs[1]), (name, part)
            assert ours[1].dtype == theirs[1].dtype
    loader = load(DataLoader(TensorDataset(x, y), batch_size=50))
    assert (loader.target.kind, loader.target.names) == (first.target.kind, first.target.names)
    assert torch.allclose(loader.mean, load((x, y), val=0, test=0).mean)  # type: ignore[arg-type]
    batches = list(stream(loader.train, loader, batch_size=1, seed=0).epoch(0))
    assert torch.allclose(torch.cat([x for x, _ in batches]).mean(), torch.zeros(()), atol=1e-4)
    assert torch.equal(torch.cat([y for _, y in batches]), y)
    assert json.loads(json.dumps(first.describe())) == first.describe()
    assert Target.of(first.describe()["target"]) == first.target


def test_numbers_are_balanced_and_scaled_by_their_training_part() -> None:
    x, y = regression(400)
    data = load((x, y))
    parts = [data.train, data.val, data.test]
    deciles = torch.quantile(y, torch.linspace(0, 1, 11))[1:-1]
    for part in parts:
        assert isinstance(part, Examples)
        counts = torch.bucketize(part.y, deciles).bincount(minlength=10)
        assert int(counts.max() - counts.min()) <= 2
        assert torch.equal(part.y, y[part.x[:, 0].long()])
    assert isinstance(data.train, Examples)
    assert isinstance(data.target, Numbers)
    assert data.target.mean == pytest.approx([float(data.train.y.mean())])
    assert data.target.std == pytest.approx([float(data.train.y.std(correction=0))])
    few = load((x, y), train=4)  # fewer than there are bins: at random
    assert few.describe()["sizes"] == {"train": 4, "val": 1, "test": 80}
    assert numbers(few.test) == numbers(data.test)


def test_labels_are_balanced_by_the_rarest() -> None:
    data = load((regression(120)[0], SIGNS), test=0.5)
    assert isinstance(data.test, Examples)
    rare = SIGNS[:, 2] > 0
    assert abs(int(data.test.y[:, 2].sum()) - int(rare.sum()) / 2) <= 1


def test_target_says_what_y_does_not() -> None:
    x, _ = regression(90)
    counts = torch.arange(90) // 2
    with pytest.raises(RequestError, match="say target='numbers' \\(--target numbers, of a table COLUMN:numbers"):
        load((x, counts))
    data = load((x, counts), target="numbers")
    assert isinstance(data.train, Examples)
    assert (data.target.kind, data.train.y.dtype) == ("numbers", torch.float32)
    assert load(TensorDataset(x, counts), target="numbers").target == data.target
    assert load(Examples(x, counts.float())).target.kind == "numbers"  # by its type
    one_hot = torch.eye(3)[counts % 3]
    taken = load((x, one_hot))
    assert taken.target.kind == "labels"
    assert any("exactly one label" in note for note in taken.notes)
    assert load((x, one_hot), target="classes").target == Classes("012")
    assert load((x, SIGNS[:90]), target="numbers").target.outputs == 3
    with pytest.raises(RequestError, match="unknown target 'number': did you mean 'numbers'"):
        load((x, counts), target="number")
    with pytest.raises(RequestError, match="this data holds classes"):
        load("digits", target="numbers")
    assert load("digits", target="classes").classes == load("digits").classes
    with pytest.raises(RequestError, match="has fractions"):
        load((x, counts / 4), target="classes")
    with pytest.raises(RequestError, match="give labels as N×L"):
        load((x, counts), target="labels")
    with pytest.raises(RequestError, match="give numbers, N or N×K"):
        load((x, ["a", "b"] * 45), target="numbers")
    with pytest.raises(RequestError, match="give examples with pixels"):
        load((x, counts), target="dense")


def test_origin_keeps_the_target(tmp_path: Path) -> None:
    np.savez(tmp_path / "counts.npz", x=np.zeros((90, 2)), y=np.arange(90) // 2)
    data = load(tmp_path / "counts.npz", target="numbers")
    assert data.origin is not None
    assert load(**data.origin).target == data.target


def test_masks() -> None:
    x, y = pictures(30)
    for masks in (y[:, None], y[..., None], y.bool(), y.float(), y * 255):
        data = load((x, masks), val=0, test=0)
        assert isinstance(data.train, Examples)
        assert (data.target.kind, data.target.outputs) == ("dense", 2)
        assert torch.equal(data.train.y, y)
    assert load((x, y * 255)).classes == ["0", "255"]
    colour = x.repeat(1, 3, 1, 1).permute(0, 2, 3, 1).numpy()  # channels last
    assert load((colour, y.numpy())).shape == (3, 8, 6)
    volumes = torch.zeros(20, 1, 4, 5, 6)
    assert load((volumes, (torch.rand(20, 4, 5, 6) > 0.5).int())).target.kind == "dense"
    for wrong, says in (
        (y[:, :4], "or masks of 8×6"),
        (y * 0, "1 class, '0': give two"),
        (y.float() + 0.5, "fractions"),
    ):
        with pytest.raises(RequestError, match=says) as error:
            load((x, wrong))
        one_line(error)
    with pytest.raises(RequestError, match="masks of 8×6, as the examples are"):
        load((x, y[:, :4]), target="dense")
    with pytest.raises(RequestError, match="class '2' is in test but not in train"):
        load(((x, y), (x, y * 2)))
    with pytest.raises(RequestError, match="the masks hold 0, 255: give class indices from 0 to 1"):
        load(TensorDataset(x, y * 255))
    assert load(TensorDataset(x, y * 2), classes=3).target == Dense("012")
    assert load(Items(x, y[:, None]), classes=["no", "yes"]).classes == ["no", "yes"]


def test_masks_move_with_their_pictures() -> None:
    draw = torch.Generator().manual_seed(0)
    y = (torch.rand(40, 16, 16, generator=draw) > 0.5).long()
    x = (200 * y[:, None].repeat(1, 3, 1, 1)).byte()
    data = load((x, y), val=0, test=0)
    batches = list(stream(data.train, data, batch_size=8, seed=0, augment="flip+crop").epoch(0))
    moved = torch.cat([y for _, y in batches])
    assert not {tuple(m.flatten().tolist()) for m in moved} <= {tuple(m.flatten().tolist()) for m in y}
    for x, y in batches:
        assert torch.equal(x[:, 0] > x.min(), y == 1)


def test_small_and_strange_data_with_numbers() -> None:
    x, y = regression(5)
    assert load((x, y)).describe()["sizes"] == {"train": 3, "val": 1, "test": 1}
    with pytest.raises(RequestError, match="there are 2 of the 3 examples that training, validation, test need"):
        load((x[:2], y[:2]))
    sizes = load((torch.cat([x] * 20), torch.cat([y] * 20)), test=0.97).describe()["sizes"]
    assert sizes == {"train": 2, "val": 1, "test": 97}  # too few to have all strata
    with pytest.raises(RequestError, match="not classes: labels are kept by class"):
        budget(load(regression(50)), 10)


class Words(Big):
    """Numbers of words: integers without a scale."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.arange(4) + index % 3, index % 5


def test_datasets_are_scaled_unless_there_is_no_scale() -> None:
    x, y = rows(100)
    for source in (TensorDataset(x.double(), y), TensorDataset(x, y), DataLoader(TensorDataset(x, y), 7, shuffle=True)):
        data = load(source, val=0, test=0)
        assert data.mean is not None
        assert data.mean.tolist() == [49.5, 49.5]
        batch, _ = next(stream(data.train, data, batch_size=10, seed=0).epoch(0))
        assert batch.dtype == torch.float32
        assert float(batch.abs().max()) < 2
    words = load(Words(), classes=5)
    assert words.mean is None
    assert next(stream(words.train, words, batch_size=10, seed=0).epoch(0))[0].dtype == torch.int64
    big = load(Big(), classes=5)
    assert any("those of 2048 training examples" in note for note in big.notes)
    with pytest.raises(RequestError, match="NaN or infinite"):
        load(TensorDataset(x / 0, y))
    with pytest.raises(RequestError, match="1 class, 0: give two"):
        load(TensorDataset(x, y * 0))


def test_numbers_of_a_long_dataset_are_known_by_a_sample() -> None:
    class Long(Big):
        def __getitem__(self, index: int) -> tuple[Tensor, Any]:
            return torch.tensor([index, -index]) / 10_000, index / 10_000

    data = load(Long())
    assert isinstance(data.target, Numbers)
    assert data.target.mean == pytest.approx([0.5], abs=0.02)
    assert data.target.std == pytest.approx([12**-0.5], abs=0.02)
    assert any("at random" in note for note in data.notes)
