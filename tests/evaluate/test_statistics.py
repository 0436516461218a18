from __future__ import annotations

import pytest
from scipy import stats

from fallow.evaluate.statistics import binomial_test, holm, sign_test, significance


@pytest.mark.parametrize(("wins", "trials"), [(0, 1), (3, 4), (9, 12), (40, 60), (12, 12)])
def test_binomial_test_is_scipys(wins: int, trials: int) -> None:
    assert binomial_test(wins, trials) == pytest.approx(stats.binomtest(wins, trials, alternative="greater").pvalue)


def test_sign_test_leaves_ties_out() -> None:
    assert sign_test([2, 2, 2, 5], [1, 1, 1, 5]) == binomial_test(3, 3)


def test_holm_step_by_step() -> None:
    """By its definition: reject the smallest while p ≤ level / (m − i), stop at the first that fails."""
    p_values = [0.011, 0.02, 0.001, 0.3, 0.013]
    adjusted = holm(p_values)
    for level in (0.005, 0.02, 0.05, 0.06, 0.5):
        order, rejected = sorted(range(5), key=p_values.__getitem__), set()
        for rank, i in enumerate(order):
            if p_values[i] > level / (5 - rank):
                break
            rejected.add(i)
        assert rejected == {i for i in range(5) if adjusted[i] <= level}


def test_significance_marks() -> None:
    worse, better = [float(i) for i in range(12)], [float(i) + 1 for i in range(12)]
    marks = significance({"B": worse, "L": better, "M": [*better[:9], *worse[9:]]})
    assert marks["B", "L"] == "○"
    assert marks["L", "B"] == ""
    assert marks["M", "L"] in ("", "★")
