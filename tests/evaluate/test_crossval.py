"""The test for k-fold cross-validation: by its formula, where it must agree with others, and its false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fallow.base.errors import RequestError
from fallow.evaluate.crossval import crossval_difference


def dealt(size: int, repeats: int, draw: np.random.Generator, folds: int = 5) -> np.ndarray:
    return np.stack([draw.permutation(size) % folds for _ in range(repeats)])


def test_without_luck_between_models_it_is_the_t_test_over_examples() -> None:
    """Two folds with the same mean: nothing but the examples differs."""
    half = np.random.default_rng(0).normal(0.3, 1.0, 40)
    d = np.concatenate([half, half])
    found = crossval_difference(d, np.zeros(80), np.repeat([0, 1], 40))
    wanted = stats.ttest_1samp(d, 0)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval(0.95)))
    wider = crossval_difference(d, np.zeros(80), np.repeat([0, 1], 40), level=0.01)
    assert (wider.low, wider.high) == pytest.approx(tuple(wanted.confidence_interval(0.99)))


def test_where_models_are_all_luck_it_is_the_t_test_over_folds() -> None:
    means = np.array([1.0, 2.0, -0.5, 0.7, 1.9])
    d = np.repeat(means, 200)
    found = crossval_difference(d, np.zeros(1000), np.repeat(np.arange(5), 200))
    wanted = stats.ttest_1samp(means, 0)
    assert found.mean == pytest.approx(means.mean())
    assert found.p == pytest.approx(wanted.pvalue, rel=0.1)  # the examples' own variance, 1/200 of it, comes on top


def test_the_formula_step_by_step() -> None:
    draw = np.random.default_rng(1)
    folds = dealt(30, 2, draw)
    d = draw.normal(0.2, 1.0, (2, 30)) + draw.normal(0, 0.8, (2, 5))[np.arange(2)[:, None], folds]
    h = d.mean(0)
    between = np.mean([np.var([d[r, folds[r] == f].mean() for f in range(5)], ddof=1) for r in range(2)])
    within = np.mean([np.var(d[r, folds[r] == f], ddof=1) / 6 for r in range(2) for f in range(5)])
    assert between > within
    examples, luck = h.var(ddof=1) / 30, (between - within) / 10
    df = (examples + luck) ** 2 / (examples**2 / 29 + (between / 10) ** 2 / 8)
    p = 2 * stats.t.sf(abs(h.mean()) / math.sqrt(examples + luck), df)
    found = crossval_difference(d, np.zeros((2, 30)), folds)
    assert found.p == pytest.approx(p)
    assert found.smallest > 0
    turned = crossval_difference(np.zeros((2, 30)), d, folds)
    assert turned[:4] == pytest.approx((-found.mean, -found.high, -found.low, found.p))


def test_examples_that_belong_together_count_once() -> None:
    draw = np.random.default_rng(2)
    per_group = draw.normal(0.4, 1.0, 20)
    d, groups = np.repeat(per_group, 3), np.repeat(np.arange(20), 3)
    together = crossval_difference(d, np.zeros(60), groups % 5, groups=groups)
    once = crossval_difference(per_group, np.zeros(20), np.arange(20) % 5)
    assert together[:4] == pytest.approx(once[:4])
    even = np.concatenate([per_group[:10], per_group[:10]])  # equal folds: no luck, the t-test over groups
    same = crossval_difference(np.repeat(even, 3), np.zeros(60), np.repeat([0, 1], 30), groups=groups)
    assert same.p == pytest.approx(stats.ttest_1samp(even, 0).pvalue)


def test_equal_methods_and_a_constant_difference() -> None:
    ones, folds = np.ones(10), np.arange(10) % 5
    assert crossval_difference(ones, ones, folds) == (0.0, 0.0, 0.0, 1.0, 0.0)
    assert crossval_difference(ones, 0 * ones, folds) == (1.0, 1.0, 1.0, 0.0, 0.0)
    with pytest.raises(RequestError, match="folds are given for"):
        crossval_difference(ones, ones, folds[:5])


@pytest.mark.parametrize(("repeats", "luck"), [(1, 0.0), (3, 0.0), (2, 0.5)])
def test_false_alarms_of_two_learners_that_are_equally_good(repeats: int, luck: float) -> None:
    """The nearest mean, on two views of the same examples, with and without luck of its own in every model."""
    draw = np.random.default_rng(3)
    pools, size, alarms, over_folds = 400, 150, 0, 0
    for _ in range(pools):
        y = draw.integers(0, 2, size)
        x = draw.normal(size=(2, size, 6)) + 0.35 * (2 * y[:, None] - 1)
        folds = dealt(size, repeats, draw)
        right = np.zeros((2, repeats, size))
        for repeat, fold in np.ndindex(repeats, 5):
            test = folds[repeat] == fold
            for side in (0, 1):
                one, other = (x[side][~test & (y == label)].mean(0) for label in (1, 0))
                way = one - other + luck * draw.standard_normal(6)
                right[side, repeat, test] = ((x[side][test] - (one + other) / 2) @ way > 0) == y[test]
        alarms += crossval_difference(*right, folds).p <= 0.05
        d = right[0] - right[1]
        means = [d[r, folds[r] == f].mean() for r, f in np.ndindex(repeats, 5)]
        over_folds += stats.ttest_1samp(means, 0).pvalue <= 0.05
    assert alarms / pools < 0.05 + 2 * math.sqrt(0.05 * 0.95 / pools)
    if repeats == 3:
        assert over_folds / pools > 0.12  # what one must not do: folds of several repeats are no sample
