"""Networks that give numbers: curvature by squared error, depth by neighbours' means; margins are of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor
from torch import nn

import fallow
from fallow.base.errors import RequestError
from fallow.diagnose.depth import prediction_depth
from fallow.diagnose.run import diagnose
from fallow.diagnose.subjects import subjects
from tests.data.test_tables import columns, written


def test_depth_by_neighbours_of_numbers() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    x, more = torch.randn(60, 3).double(), torch.randn(20, 3).double()
    y, truth = x.sum(1, keepdim=True), more.sum(1, keepdim=True)
    found = prediction_depth(net, (x, y), (more, truth))
    with torch.no_grad():
        blocks = [(net[:2](x), net[:2](more)), (net[:4](x), net[:4](more))]  # after their ReLU
        own = net(more).numpy()
    expected = []
    for i, (known, asked) in enumerate(blocks):
        probe = KNeighborsRegressor(5).fit(known, y)
        expected.append(probe.predict(asked))
        assert found.accuracies[i] == pytest.approx(probe.score(asked, truth), abs=1e-12)
    same = [(np.abs(each - own) < 0.5 * y.numpy().std()).all(1) for each in expected]
    assert found.depths.tolist() == [0 if a and b else 1 if b else 2 for a, b in zip(*same, strict=True)]


def test_a_run_on_a_table(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", **columns(120))
    fallow.fit("mlp:hidden=8", path, target="price", generations=1, epochs=2, out=tmp_path / "run")
    looked = subjects([tmp_path / "run"])
    assert looked[0].loss == "squared_error"
    assert looked[0].metric.name == "rmse"
    assert looked[0].accuracy is not None
    x, y = looked[0].train
    assert y.shape == (len(x), 1)
    assert float(y.mean()) == pytest.approx(0, abs=1e-5)
    found = diagnose(looked, ("spectrum", "depth", "flatness", "margins", "weights"), quick=True)
    assert set(found.records) == {"spectrum", "depth", "flatness", "weights"}
    assert found.failures["margins"]["normal"] == "classes have margins, numbers have none"
    assert diagnose(looked, quick=True).failures == {}  # and nobody asked for them


def test_other_targets_are_refused(tmp_path: Path) -> None:
    x, y = torch.randn(40, 3), torch.randint(0, 2, (40, 3)).float()
    y[:20, 0], y[20:, 0] = 1, 0
    fallow.fit("mlp:hidden=4", (x.numpy(), y.numpy()), target="labels", generations=1, epochs=1, out=tmp_path / "run")
    with pytest.raises(
        RequestError, match="has labels to learn, and diagnose measures networks for classes and numbers"
    ):
        subjects([tmp_path / "run"])
