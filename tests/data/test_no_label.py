"""What has no label, by torch's −100, is neither learned nor judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fallow
from fallow.base.errors import RequestError
from fallow.data.targets import Dense
from fallow.evaluate.score import right


def with_gaps() -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures with a bright and a dark side; of every mask, a row has no label."""
    x = torch.randn(24, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    y[:, 2] = -100
    return x, y


@pytest.mark.parametrize("loss", ["cross-entropy", "dice", "dice+cross-entropy"])
def test_pixels_without_a_label_are_neither_learned_nor_judged(loss: str) -> None:
    target = Dense(["0", "1", "2"]).minimising(loss)
    _, y = with_gaps()
    output = torch.randn(24, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    labelled = [0, 1, 3, 4, 5]
    found, wanted = target.loss(output, y), target.loss(output[:, :, labelled], y[:, labelled])
    torch.testing.assert_close(found, wanted)
    (slope,) = torch.autograd.grad(found, output)
    assert not slope[:, :, 2].any()
    assert slope[:, :, labelled].all()
    decoded = target.decode(output).numpy()
    for name in ("dice", "iou"):
        metric = target.metrics[name]
        assert metric.compute(decoded, y.numpy()) == metric.compute(decoded[:, :, labelled], y[:, labelled].numpy())
    assert target.metrics["hd95"].compute(np.where(y < 0, 1, y), y.numpy()) == 0
    assert right(output, y) == right(output[:, :, labelled], y[:, labelled])
    assert target.chance(y) == target.chance(y[:, labelled])


def test_pixels_without_a_label_are_no_class_wherever_they_come_from() -> None:
    x, y = with_gaps()
    results = {}
    for kind, data in (("arrays", (x, y)), ("dataset", TensorDataset(x, y))):
        torch.manual_seed(0)
        results[kind] = fallow.fit(torch.nn.Conv2d(1, 2, 1), data, epochs=2, batch_size=8, label_smoothing=0.1)
        assert 0 <= results[kind].last["test_dice"] <= 1
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    balanced = fallow.fit(torch.nn.Conv2d(1, 2, 1), (loader, loader), "balanced", epochs=2)
    assert balanced.last["test_loss"] > 0
    data = fallow.data.load((x, y))
    assert data.classes == ["0", "1"]
    assert "17 % of the pixels have no label (-100): they are not learned or judged." in data.notes
    y[3] = -100
    with pytest.raises(RequestError, match=r"1 masks of train have no labelled pixel \(the first is number 3\)"):
        fallow.data.load((x, y))


def test_examples_without_a_label_are_no_class() -> None:
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    y[:5] = -100
    with pytest.raises(RequestError, match="y is -100 in 5 examples, by which torch means that they have no label"):
        fallow.data.load((x, y))
    assert fallow.data.load((x, [str(each) for each in y.tolist()])).classes == ["-100", "0", "1", "2"]
    assert fallow.data.load((x, y - 1)).classes == ["-101", "-1", "0", "1"]
