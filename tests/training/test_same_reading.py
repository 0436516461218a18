"""What a training takes, its model and ``predict`` take, and read alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fallow
from fallow import Predictor
from fallow.data import load

DRAW = np.random.default_rng(0)
SHORT = {"generations": 1, "epochs": 2, "batch_size": 16}


def labels(model: Predictor, x) -> list[str]:
    return [found.label for found in model(x)]


def test_truth_values_of_features_are_0_and_1(tmp_path: Path) -> None:
    x = DRAW.random((60, 6)) < 0.5
    assert set(load((x, x[:, 0].astype(int))).train.x.unique().tolist()) == {0.0, 1.0}
    result = fallow.fit("mlp:hidden=8", (x, x[:, 0].astype(int)), out=tmp_path / "run", **SHORT)
    model = Predictor(tmp_path / "run")
    np.savetxt(tmp_path / "x.csv", x.astype(int), "%d", ",")
    told = [labels(model, x), labels(model, x.astype(float)), labels(model, tmp_path / "x.csv")]
    told.append([model.classes[place] for place in result.model(torch.tensor(x)).argmax(1)])
    assert told[0] == told[1] == told[2] == told[3]


def test_truth_values_of_pictures_are_black_and_white(tmp_path: Path) -> None:
    x = DRAW.random((60, 8, 8)) < 0.5
    result = fallow.fit("scnn:width=2,dense=4", (x, np.arange(60) % 2), out=tmp_path / "run", **SHORT)
    model = Predictor(tmp_path / "run")
    told = labels(model, x)
    assert told == labels(model, x.astype(np.uint8) * 255)
    assert told == [model.classes[place] for place in result.model(torch.tensor(x)[:, None]).argmax(1)]
    assert labels(model, x[3]) == told[3:4]


def test_steps_before_channels(tmp_path: Path) -> None:
    """As Keras and others keep them: the longer axis is time, and it is said."""
    x, y = DRAW.standard_normal((60, 32, 3)), np.arange(60) % 2
    data = load((x, y))
    assert data.shape == (3, 32)
    assert "32 steps of 3 channels, N×time×channels: as_='signals'" in " ".join(data.notes)
    assert load((x, y), as_="signals").shape == (32, 3)
    assert load((np.moveaxis(x, 1, 2), y)).shape == (3, 32)
    fallow.fit("resnet1d:width=4", (x, y), out=tmp_path / "run", **SHORT)
    model = Predictor(tmp_path / "run")
    assert labels(model, x) == labels(model, np.moveaxis(x, 1, 2))
    assert labels(model, x[0]) == labels(model, x)[:1]


def test_transparent_pictures_and_other_names(tmp_path: Path) -> None:
    x = DRAW.integers(0, 256, (40, 8, 8, 4), np.uint8)
    y = np.arange(40) % 2
    np.savez(tmp_path / "d.npz", train_images=x, train_labels=y, test_images=x[:9], test_labels=y[:9])
    fallow.fit("scnn:width=2,dense=4", tmp_path / "d.npz", out=tmp_path / "run", augment="none", **SHORT)
    model = Predictor(tmp_path / "run")
    assert model.shape == (3, 8, 8)
    told = labels(model, x[:9])
    assert told == labels(model, np.moveaxis(x[:9], -1, 1))
    with pytest.warns(UserWarning, match="only test_images is predicted, not train_images"):
        assert told == labels(model, tmp_path / "d.npz")
    held = load(tmp_path / "d.npz").test.x
    assert told == labels(model, held)


@pytest.mark.parametrize("header", ["0,1,2", "a,b,c", "", "length,3,4"])
def test_a_first_row_of_names_is_no_example(header: str, tmp_path: Path) -> None:
    x = DRAW.random((30, 3))
    fallow.fit("mlp:hidden=4", (x, np.arange(30) % 2), out=tmp_path / "run", **SHORT)
    rows = "\n".join(",".join(map(str, row)) for row in x[:5])
    (tmp_path / "x.csv").write_text(f"{header}\n{rows}\n" if header else rows)
    assert len(Predictor(tmp_path / "run")(tmp_path / "x.csv")) == 5
