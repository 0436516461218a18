"""The losses of masks, by hand; chosen by name; refused where there is no choice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import fallow
from fallow.base.errors import RequestError
from fallow.data.dice import LOSSES, dice_loss
from fallow.data.targets import Classes, Dense, Target


def test_dice_is_the_formula() -> None:
    torch.manual_seed(0)
    output, y = torch.randn(2, 3, 4, 5, dtype=torch.float64), torch.randint(3, (2, 4, 5))
    each = []
    for logits, wanted in zip(output, y, strict=True):
        p = logits.softmax(0)
        for label in (1, 2):
            g = (wanted == label).double()
            each.append((2 * (p[label] * g).sum() + 1) / (p[label].square().sum() + g.sum() + 1))
    assert torch.allclose(dice_loss(output, y), 1 - torch.stack(each).mean(), rtol=1e-14)
    both = dice_loss(output, y) + functional.cross_entropy(output, y, label_smoothing=0.1)
    assert torch.allclose(LOSSES["dice+cross-entropy"](output, y, label_smoothing=0.1), both, rtol=1e-14)


def test_a_class_that_is_not_there_is_unlearned() -> None:
    output = torch.zeros(1, 2, 4, 4, requires_grad=True)
    dice_loss(output, torch.zeros(1, 4, 4, dtype=torch.long)).backward()
    assert (output.grad[:, 1] > 0).all()


def test_the_target_owns_its_loss() -> None:
    target = Dense(["ground", "shape"]).minimising("dice")
    assert Target.of(target.describe()) == target
    assert "objective" not in Dense(["ground", "shape"]).describe()
    output, y = torch.randn(2, 2, 4, 4), torch.randint(2, (2, 4, 4))
    for criterion in (target.loss, target.training_loss()):
        assert torch.equal(criterion(output, y), dice_loss(output, y))
    with pytest.raises(RequestError, match="did you mean 'dice'"):
        target.minimising("dise")
    with pytest.raises(RequestError, match="loss=dice is for masks"):
        Classes(["a", "b"]).minimising("dice")


def test_fit_takes_it_by_name(tmp_path) -> None:
    draw = np.random.default_rng(0)
    y = np.zeros((20, 8, 8), np.int64)
    y[:, 2:6, 2:6] = 1
    x = (y + draw.normal(0, 0.3, y.shape)).astype(np.float32)
    options = {"generations": 1, "epochs": 2, "lr": 0.05, "target": "dense", "as_": "images"}
    result = fallow.fit("unet:width=4", (x, y), loss="dice", out=tmp_path / "run", **options)
    assert 0 < result.last["val_loss"] < 1  # that of Dice, too
    again = fallow.fit("unet:width=4", (x, y), loss="dice", out=tmp_path / "run", resume=True, **options)
    assert again.last == result.last
    with pytest.raises(RequestError, match="loss=dice is for masks: classes have one loss"):
        fallow.fit("mlp", "digits", loss="dice")
