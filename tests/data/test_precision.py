"""What float32 cannot tell apart is refused with the true reason, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from fallow.base.errors import RequestError
from fallow.data import load

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(60, 3)), np.arange(60) % 2
STAMPS = 1.7e9 + np.linspace(0, 3000, 60)


def test_features_and_signals() -> None:
    with pytest.raises(RequestError, match=r"column 1 of x varies by 0\.\d+ around 1e\+08, too little for float32"):
        load((X + np.array([0, 1e8, 0]), Y))
    signals = np.stack([DRAW.normal(size=(60, 40)), DRAW.normal(size=(60, 40)) + 1e9], axis=1)
    with pytest.raises(RequestError, match="channel 1 of x varies by"):
        load((signals, Y), as_="signals")
    far = load((X * [1, 1e6, 1] + [0, 1e8, 5], Y))  # a year of seconds among the seconds of half a century
    assert far.shape == (3,)
    assert load((np.c_[X, np.full(60, 1e9)], Y)).shape == (4,)  # what does not vary at all has nothing to lose


def test_numbers_to_predict() -> None:
    with pytest.raises(RequestError, match=r"y of train varies by \d+\.?\d* around 1\.7e\+09, too little for float32"):
        load((X, STAMPS), target="numbers")
    with pytest.raises(RequestError, match="y of train, column 1, varies by"):
        load((X, np.c_[X[:, 0], STAMPS]), target="numbers")
    assert load((X, STAMPS - 1.7e9), target="numbers").target.kind == "numbers"
