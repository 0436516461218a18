"""Label budgets and images from elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fallow.base.errors import RequestError
from fallow.data import FOREIGN, UNKNOWN, Data, Examples, add_unlabelled, budget, load, mix_in, set_apart
from tests.conftest import small_images


@pytest.fixture
def digits() -> Data:
    return load("digits", seed=0)


def test_labels_are_balanced_and_all_images_become_unlabelled(digits: Data) -> None:
    few = budget(digits, 25, val=60, seed=1)
    counts = few.train.y.bincount(minlength=10)
    assert counts.sum() == 25
    assert counts.min() == 2
    assert counts.max() == 3
    assert len(few.val) == 60
    assert len(few.unlabelled) == len(digits.train) + len(digits.val) - 60
    known = {x.numpy().tobytes() for x in few.unlabelled.x}
    assert all(x.numpy().tobytes() in known for x in few.train.x)  # the labelled are among them
    assert few.test is digits.test
    assert "25 of 1150 training labels were kept" in few.notes[-1]


def test_a_budget_is_seeded(digits: Data) -> None:
    first, again, other = (budget(digits, 20, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.train.x, again.train.x)
    assert not torch.equal(first.train.x, other.train.x)


def test_a_class_with_few_gives_what_it_has() -> None:
    y = torch.tensor([0] * 20 + [1] * 2 + [2] * 20)
    data = Data("few", Examples(torch.zeros(42, 1, 8, 8, dtype=torch.uint8), y), None, None, list("abc"), (1, 8, 8))
    assert budget(data, 12).train.y.bincount().tolist() == [5, 2, 5]


def test_some_unlabelled_images_can_be_left_out(digits: Data) -> None:
    few = budget(digits, 20, unlabelled=100)
    assert len(few.unlabelled) == 100
    known = {x.numpy().tobytes() for x in few.unlabelled.x}
    assert all(x.numpy().tobytes() in known for x in few.train.x)


def test_refusals(digits: Data) -> None:
    for labels, line in (
        (2000, "labels=2000 is more than the 1150 labelled training images there are"),
        (5, "labels=5 would leave class '5' without one: ask for at least 10"),
    ):
        with pytest.raises(RequestError, match=line):
            budget(digits, labels)
    x = torch.zeros(9, 1, 8, 8, dtype=torch.uint8)
    data = Data("x", Examples(x, torch.tensor([0, 2] * 4 + [0])), None, None, ["cat", "dog", "eel"], (1, 8, 8))
    with pytest.raises(RequestError, match="class 'dog' has no labelled image"):
        budget(data, 6)
    with pytest.raises(RequestError, match="unlabelled=5 is not between"):
        budget(digits, 20, unlabelled=5)
    with pytest.raises(RequestError, match="val=5000 validation labels cannot be kept"):
        budget(digits, 20, val=5000)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_foreign_images_are_the_share_asked_for(share: float) -> None:
    data = small_images()
    foreign = Examples(torch.full((80, 1, 8, 8), 7, dtype=torch.uint8), torch.zeros(80, dtype=torch.long))
    mixed = mix_in(data, foreign, share, seed=3).unlabelled
    strange = mixed.y == FOREIGN
    assert strange.float().mean() == pytest.approx(share, abs=0.01)
    assert (mixed.x[strange] == 7).all()
    assert not (mixed.x[~strange] == 7).flatten(1).all(1).any()
    assert strange.sum() == 80 or (~strange).sum() == 60  # one of the two is used up


def test_mix_refuses() -> None:
    data = small_images()
    with pytest.raises(RequestError, match="foreign share is 1: it must be above 0 and below 1"):
        mix_in(data, data.test, 1)
    with pytest.raises(RequestError, match="no unlabelled images to mix"):
        mix_in(load("digits"), data.test, 0.5)


def test_classes_set_apart_leave_every_part(digits: Data) -> None:
    left, foreign = set_apart(digits, ["3", "7"])
    assert left.classes == ["0", "1", "2", "4", "5", "6", "8", "9"]
    for part, whole in ((left.train, digits.train), (left.val, digits.val), (left.test, digits.test)):
        stays = ~torch.isin(whole.y, torch.tensor([3, 7]))
        assert torch.equal(part.x, whole.x[stays])
        assert [left.classes[i] for i in part.y.tolist()] == [digits.classes[i] for i in whole.y[stays].tolist()]
    assert set(foreign.y.tolist()) == {3, 7}
    with pytest.raises(RequestError, match="unknown class 'x'"):
        set_apart(digits, ["x"])
    with pytest.raises(RequestError, match="fewer than two classes left"):
        set_apart(digits, digits.classes[:9])


def test_a_folder_of_images_is_read_resized_and_that_is_said(tmp_path: Path) -> None:
    for i, size in enumerate([(12, 10), (8, 8), (30, 40)]):
        (tmp_path / f"{i % 2}").mkdir(exist_ok=True)
        pixels = np.full((*size, 3), 50 * i, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i % 2}" / f"{i}.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    data = small_images()
    more = add_unlabelled(data, tmp_path)
    assert len(more.unlabelled) == 63
    assert (more.unlabelled.y[60:] == UNKNOWN).all()
    assert more.unlabelled.x[60:, 0, 0, 0].sort().values.tolist() == [0, 50, 100]
    assert "The unlabelled images were resized to 8×8." in more.notes
    assert "1 unreadable unlabelled image skipped: broken.png." in more.notes


def test_arrays_of_another_shape_are_fitted(tmp_path: Path) -> None:
    np.savez(tmp_path / "more.npz", x_train=np.full((6, 16, 16, 3), 90, np.uint8), y_train=np.arange(6) % 2)
    more = add_unlabelled(small_images(), tmp_path / "more.npz")
    assert tuple(more.unlabelled.x.shape) == (66, 1, 8, 8)
    assert (more.unlabelled.x[60:] == 90).all()
    assert any("resized from 16×16 to 8×8" in note for note in more.notes)
    assert any("made grey" in note for note in more.notes)


def test_empty_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is empty: give a folder with images"):
        add_unlabelled(small_images(), tmp_path)
    with pytest.raises(RequestError, match="there is no"):
        add_unlabelled(small_images(), tmp_path / "nowhere.x")
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(RequestError, match="none of the 1 images"):
        add_unlabelled(small_images(), tmp_path)


def test_unlabelled_images_are_part_of_what_identifies_the_data() -> None:
    data = small_images()
    other = add_unlabelled(data, Examples(data.test.x, data.test.y))
    assert data.describe()["sizes"]["unlabelled"] == 60
    assert other.describe()["digest"] != data.describe()["digest"]
