"""The networks of tables and signals against the same by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fallow.base.errors import RequestError
from fallow.models import build
from fallow.models.periodic import Periodic


def test_periodic_embeddings_by_hand() -> None:
    torch.manual_seed(0)
    layer = Periodic(3, size=2).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    f, phase, weight, bias = (p.detach().numpy() for p in layer.parameters())
    expected = np.zeros((5, 3, 2))
    for n in range(5):
        for j in range(3):
            waves = np.cos(2 * np.pi * f[j] * x[n, j].item() + phase[j])
            expected[n, j] = np.maximum(weight[j].T @ waves + bias[j], 0)
    found = layer(x).detach().numpy()
    np.testing.assert_allclose(found, expected.reshape(5, -1), atol=1e-14)
    assert f.std() == pytest.approx(0.1, rel=0.4)


def test_a_signal_network_by_hand() -> None:
    """Its length is halved three times, its means are of eight stretches, and a block is a sum."""
    torch.manual_seed(0)
    model = build("resnet1d:width=4", shape=(2, 128), classes=3).eval()
    x = torch.randn(5, 2, 128)
    one = model.block1(x)
    assert torch.equal(one, torch.relu(model.block1.steps(x) + model.block1.shortcut(x)))
    last = model.block4(model.block3(model.block2(one)))
    assert last.shape == (5, 16, 16)
    means = last.view(5, 16, 8, 2).mean(3).flatten(1)
    torch.testing.assert_close(model(x), model.head(model.dense[2:](means)))
    assert build("resnet1d", shape=(2, 17), classes=3).dense.linear.in_features == 64 * 3
    with pytest.raises(RequestError, match="signals should have 16 samples"):
        build("resnet1d", shape=(2, 15), classes=3)
    with pytest.raises(RequestError, match="resnet1d cannot take shape"):
        build("resnet1d", shape=(1, 28, 28), classes=3)


def test_a_volume_network_by_hand() -> None:
    """Every axis has about 16 positions after the first convolution, no voxel is stepped over, a block is a sum."""
    torch.manual_seed(0)
    model = build("resnet3d:width=4", shape=(1, 64, 30, 16), classes=3).eval()
    assert model.conv1.conv.stride == (4, 2, 1)
    assert all(side >= stride for side, stride in zip(model.conv1.conv.kernel_size, (4, 2, 1), strict=True))
    first = model.conv1(torch.randn(5, 1, 64, 30, 16))
    assert first.shape == (5, 4, 16, 15, 16)
    one = model.block1(first)
    assert torch.equal(one, torch.relu(model.block1.steps(first) + first))
    last = model.block3(model.block2(one))
    assert last.shape == (5, 16, 4, 4, 4)
    means = last.view(5, 16, 2, 2, 2, 2, 2, 2).mean((3, 5, 7)).flatten(1)
    torch.testing.assert_close(model.dense(last), model.dense[2:](means))
    with pytest.raises(RequestError, match="volumes should have 4 voxels a side"):
        build("resnet3d", shape=(1, 8, 3, 8), classes=3)
