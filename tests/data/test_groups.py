"""What belongs together is on one side of every split."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from fallow.base.errors import RequestError
from fallow.data import Examples, Files, load
from fallow.data.groups import grouped
from fallow.data.sources import folder as folders

N, PATIENTS = 400, 40


def patients(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Rows that carry their number; groups of many sizes, classes in no order."""
    draw = np.random.default_rng(seed)
    groups = draw.choice(PATIENTS, N, p=draw.dirichlet(np.full(PATIENTS, 5.0)))
    return torch.arange(float(N))[:, None].repeat(1, 3), torch.from_numpy(draw.choice(3, N, p=[0.6, 0.3, 0.1])), groups


def owners(part: object, groups: np.ndarray) -> set:
    assert isinstance(part, Examples)
    return set(groups[part.x[:, 0].long().numpy()].tolist())


@pytest.mark.parametrize("seed", range(3))
def test_no_group_is_on_two_sides(seed: int) -> None:
    x, y, groups = patients()
    data = load((x, y), groups=groups, seed=seed)
    train, val, test = (owners(part, groups) for part in (data.train, data.val, data.test))
    assert not train & val
    assert not train & test
    assert not val & test
    assert train | val | test == set(groups.tolist())
    sizes = data.describe()["sizes"]
    assert sum(sizes.values()) == N
    assert 0.15 < sizes["test"] / N < 0.25
    shares = [part.y.bincount(minlength=3) / len(part) for part in (data.train, data.test)]  # type: ignore[union-attr]
    assert torch.allclose(*shares, atol=0.08)
    again = load((x, y), groups=[f"patient {g}" for g in groups], seed=seed)
    assert owners(again.test, groups) == test  # names or numbers, the same choice
    assert owners(load((x, y), groups=groups, seed=seed + 1).test, groups) != test


def test_the_split_is_as_near_as_brute_force() -> None:
    draw = np.random.default_rng(0)
    for trial in range(10):
        groups = torch.from_numpy(draw.integers(0, 9, 60))
        strata = torch.from_numpy(draw.integers(0, 2, 60))
        table = np.zeros((9, 2))
        np.add.at(table, (groups.numpy(), strata.numpy()), 1)
        wanted = table.sum(0) / 4
        everything = np.array(np.meshgrid(*[[0, 1]] * 9)).reshape(9, -1).T @ table
        both = ((everything > 0) & (everything < table.sum(0))).all(1)
        least = ((everything - wanted) ** 2).sum(1)[both].min()
        _, carved = grouped(strata, groups, 15, torch.Generator().manual_seed(trial))
        found = ((strata[carved].bincount(minlength=2).numpy() - wanted) ** 2).sum()
        assert found <= least + 4, (trial, found, least)  # two examples from the best there is


@pytest.mark.parametrize("fold", [None, (1, 3)])
def test_a_few_large_groups_are_divided(fold: tuple[int, int] | None) -> None:
    """None of them is nearer to a fifth than nothing is, and yet each part can have one."""
    x, wards = torch.arange(300.0)[:, None], np.arange(300) % 3
    draw = np.random.default_rng(0)
    for y in (draw.integers(0, 2, 300), draw.normal(size=300)):
        data = load((x, y), groups=wards, fold=fold)
        assert data.describe()["sizes"] == {"train": 100, "val": 100, "test": 100}
    ill = np.arange(60) // 10 % 2  # three patients of either class
    data = load((x[:60], ill), groups=np.arange(60) // 10)
    assert data.describe()["sizes"] == {"train": 20, "val": 20, "test": 20}


def test_groups_of_an_archive(tmp_path: Path) -> None:
    x, y, groups = patients()
    np.savez(tmp_path / "own.npz", x=x, y=y, groups=groups)
    np.savez(tmp_path / "named.npz", x=x, y=y, patient=groups)
    np.save(tmp_path / "groups.npy", groups)
    (tmp_path / "groups.txt").write_text("".join(f"{g}\n" for g in groups))
    wanted = owners(load((x, y), groups=groups).test, groups)
    found = [
        load(tmp_path / "own.npz"),
        load(tmp_path / "named.npz", groups="patient"),
        load(tmp_path / "named.npz", groups=str(tmp_path / "groups.npy")),
    ]
    assert [owners(data.test, groups) for data in found] == [wanted] * 3
    assert any("39 groups" in note or "40 groups" in note for note in found[0].notes)
    lines = load(tmp_path / "named.npz", groups=tmp_path / "groups.txt")
    assert not owners(lines.test, groups) & owners(lines.train, groups)
    assert found[1].origin is not None
    assert load(found[1].origin.pop("source"), **found[1].origin).describe() == found[1].describe()
    np.savez(tmp_path / "parts.npz", x_train=x, y_train=y, groups_train=groups, x_test=x + 0.5, y_test=y,
             groups_test=groups)  # fmt: skip
    assert any("groups with the test examples" in note for note in load(tmp_path / "parts.npz").notes)


@pytest.mark.parametrize("in_memory", [True, False])
def test_groups_of_a_folder(tmp_path: Path, in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    for label in ("ill", "well"):
        (tmp_path / label).mkdir()
        for patient in range(10):
            for view in range(3):
                image = Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8))
                image.save(tmp_path / label / f"{label}{patient}_{view}.png")
    if not in_memory:
        monkeypatch.setattr(folders, "IN_MEMORY", 0)
    data = load(tmp_path, groups="_")
    assert data.describe()["sizes"] == {"train": 36, "val": 12, "test": 12}
    if isinstance(data.train, Files):
        names = [{path.name.partition("_")[0] for path in part.paths} for part in (data.train, data.val, data.test)]  # type: ignore[union-attr]
        assert not names[0] & (names[1] | names[2])
        assert not names[1] & names[2]
    with pytest.raises(RequestError, match="no file's name has '#' in it"):
        load(tmp_path, groups="#")


def test_groups_of_a_dataset() -> None:
    x, y, groups = patients()
    data = load(TensorDataset(x, y), groups=groups)
    chosen = [set(groups[part.indices].tolist()) for part in (data.train, data.val, data.test)]  # type: ignore[union-attr]
    assert not chosen[0] & (chosen[1] | chosen[2])
    assert not chosen[1] & chosen[2]


def test_what_cannot_be_kept_together_is_refused() -> None:
    x, y, groups = patients()
    for wrong, says in (
        (groups[:-1], "there are 399 groups for 400 training examples"),
        (groups.reshape(-1, 2), "a number or a name per example"),
        (np.zeros(N), "class '0' has 1 of the 3 groups that training, validation, test need"),
        (np.where(y == 2, 99, groups), "class '2' has 1 of the 3 groups"),
        ("gone.npy", "there is no file gone.npy"),
    ):
        with pytest.raises(RequestError, match=says) as error:
            load((x, y), groups=wrong)
        assert "\n" not in str(error.value)
    assert load((x, y), groups=np.where(y == 2, 99, groups % 5), val=0, test=0).test is None


def test_an_array_that_may_be_groups_is_named(tmp_path: Path) -> None:
    x, y, groups = patients()
    path = tmp_path / "scans.npz"
    for name, values, told in (("patient_train", groups, True), ("side", y % 2, False), ("weight", x[:, 0], False)):
        np.savez(path, x_train=x, y_train=y, **{name: values})
        notes = " ".join(load(path).notes)
        assert ("patient in scans.npz is ignored" in notes and "add --groups patient." in notes) == told
    np.savez(path, x_train=x, y_train=y, patient_train=groups)
    assert "Examples of a group stay together" in " ".join(load(path, groups="patient").notes)
