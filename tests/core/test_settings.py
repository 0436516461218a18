from __future__ import annotations

import pytest

from fallow.base.errors import RequestError
from fallow.core.settings import Settings

NAN, INF = float("nan"), float("inf")
BAD = {
    "generations": [0, -1, 1.5, "two", True],
    "epochs": [0, 2.0],
    "batch_size": [0, None],
    "accumulate": [0, 33],  # the batch size is 32
    "evaluate_every": [0],
    "plateau": [0],
    "lr": [0, -1, NAN, INF, "high", None],
    "momentum": [-0.1, 1.0, NAN],
    "weight_decay": [-1e-4, NAN, INF],
    "warmup": [-1, INF],
    "label_smoothing": [-0.1, 1.0],
    "clip": [0, -1.0, NAN, "some"],
    "patience": [0, 2.5, -1],
    "seed": [-1, 0.5, "x"],
    "optimizer": ["sdg", None, 3],
    "schedule": ["cosin", ""],
    "precision": ["fp16", 16],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        Settings.of(**{name: value})
    words = str(caught.value)
    assert name in words
    assert str(value) in words
    assert "\n" not in words


def test_good_values() -> None:
    edge = Settings.of(momentum=0, weight_decay=0, label_smoothing=0, clip=1, patience=1, accumulate=32, warmup=0.5)
    assert Settings(**edge.describe()) == edge
    assert Settings.of(batch_size=1, lr=1).lr == 1  # a whole number is a number


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(RequestError, match=r"unknown setting 'batchsize': did you mean 'batch_size'\?"):
        Settings.of(batchsize=3)
    with pytest.raises(RequestError, match=r"unknown optimizer 'adam': did you mean 'adamw'\?"):
        Settings.of(optimizer="adam")
