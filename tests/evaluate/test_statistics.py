from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from scipy import stats

from fallow.evaluate.statistics import (
    Difference,
    Estimate,
    binomial_test,
    detectable,
    holm,
    interval,
    level_means,
    paired,
    share,
    sign_test,
    significance,
)


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


OURS, THEIRS = [0.93, 0.95, 0.91, 0.96, 0.94], [0.91, 0.92, 0.92, 0.93, 0.90]


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("values", [OURS, OURS[:2]])
def test_interval_is_students(values: list[float], level: float) -> None:
    found = interval(values, level)
    low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert found == pytest.approx((np.mean(values), low, high))


def test_an_interval_of_overlapping_splits_is_wider() -> None:
    plain, wide = interval(OURS), interval(OURS, overlap=0.25)
    assert wide.mean == plain.mean
    assert plain.high is not None
    assert wide.high is not None
    assert wide.high - wide.mean == pytest.approx((plain.high - plain.mean) * math.sqrt((0.2 + 0.25) / 0.2))


@pytest.mark.parametrize(("right", "n"), [(0, 5), (18, 18), (7, 30), (1, 2)])
def test_a_share_has_wilsons_interval(right: int, n: int) -> None:
    wanted = stats.binomtest(right, n).proportion_ci(method="wilson")
    assert share([1.0] * right + [0.0] * (n - right)) == pytest.approx((right / n, wanted.low, wanted.high))


def test_one_value_has_no_interval() -> None:
    assert interval([0.9]) == Estimate(0.9, None, None)
    assert interval([0.9, math.inf]) == Estimate(math.inf, None, None)  # a task on which adaptation diverged
    assert math.isnan(interval([0.9, math.nan, 1.0]).mean)
    assert paired([0.9], [0.8]) is None
    assert paired([], []) is None
    assert paired([0.9, math.nan], [0.8, 0.7]) is paired([0.9, math.inf], [0.8, math.inf]) is None


def test_equal_values_are_known_to_the_grain_of_the_score() -> None:
    assert interval([0.9, 0.9, 0.9]) == pytest.approx((0.9, 0.9, 0.9))
    found = interval([0.9, 0.9, 0.9], grain=0.01)
    assert found.high == pytest.approx(0.9 + stats.t.ppf(0.975, 2) * 0.01 / math.sqrt(12 * 3))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_paired_is_scipys_where_nothing_overlaps(n: int) -> None:
    found = paired(OURS[:n], THEIRS[:n])
    wanted = stats.ttest_rel(OURS[:n], THEIRS[:n])
    assert found is not None
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(wanted.confidence_interval(0.95)))
    turned = paired(THEIRS[:n], OURS[:n])
    assert turned is not None
    assert turned[:4] == pytest.approx((-found.mean, -found.high, -found.low, found.p))


def test_paired_corrects_for_overlap_as_nadeau_and_bengio() -> None:
    d = np.array(OURS) - np.array(THEIRS)
    t = d.mean() / math.sqrt((1 / 5 + 0.3) * d.var(ddof=1))
    found = paired(OURS, THEIRS, overlap=0.3)
    assert found is not None
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 4))
    half = stats.t.ppf(0.975, 4) * math.sqrt((1 / 5 + 0.3) * d.var(ddof=1))
    assert (found.low, found.high) == pytest.approx((d.mean() - half, d.mean() + half))


def test_differences_that_happen_to_be_equal() -> None:
    same = paired([0.5, 0.7], [0.5, 0.7], grain=0.01)
    assert same is not None
    assert same.p == 1.0
    assert same.low == -same.high < 0 < same.smallest
    shifted = paired([0.6, 0.8], [0.5, 0.7], grain=0.01)  # a tenth both times: sure only to the grain
    assert shifted is not None
    assert 0.01 < shifted.p < 0.05
    assert paired([0.5, 0.7], [0.5, 0.7]) == Difference(0.0, 0.0, 0.0, 1.0, 0.0)
    assert paired([0.75, 0.75], [0.5, 0.5]) == Difference(0.25, 0.25, 0.25, 0.0, 0.0)


def test_smallest_is_the_classical_power() -> None:
    power = pytest.importorskip("statsmodels.stats.power").TTestPower()
    for n in (2, 4, 5, 10, 30):
        for questions in (1, 8):
            found = paired([0.01 * i for i in range(n)], [0.0] * n, questions=questions)
            assert found is not None
            spread = 0.01 * math.sqrt(n * (n + 1) / 12)
            seen = power.power(found.smallest / spread, n, 0.025 / questions, alternative="larger")
            assert seen == pytest.approx(0.8, abs=1e-6)


def test_smallest_is_found_four_times_in_five() -> None:
    draw = np.random.default_rng(0)
    shift = detectable(3, 0.05) / 2  # four seeds, of deviation 1
    d = draw.normal(shift, 1, (4000, 4))
    assert np.mean(stats.ttest_1samp(d, 0, axis=1).pvalue <= 0.05) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("questions", [1, 5, 10, 20, 100])
def test_smallest_can_always_be_told(questions: int) -> None:
    """The noncentral distribution is not a number far out, where a search must not go."""
    shifts = [detectable(freedom, 0.05 / questions) for freedom in (*range(1, 60), 99, 499)]
    assert shifts == sorted(shifts, reverse=True)
    assert shifts[-1] > stats.norm.ppf(1 - 0.025 / questions)


def test_false_alarms_where_every_seed_splits_the_same_pool() -> None:
    """Two learners that are equally good, on many pools: the plain test sees differences, the corrected one does not.

    Also where most of the pool is left out of training, as by ``--train``: what overlaps is the pool.
    """
    draw = np.random.default_rng(1)
    alarms = {"all": [0, 0], "few": [0, 0]}
    pools, size, test, seeds = 400, 300, 60, 4
    for _ in range(pools):
        y = draw.integers(0, 2, size)
        x = draw.normal(size=(2, size, 6)) + 0.35 * (2 * y[:, None] - 1)
        for name, train in (("all", 240), ("few", 40)):
            splits = [draw.permutation(size) for _ in range(seeds)]
            ours, theirs = ([_accuracy(side, y, s[:test], s[test:][:train]) for s in splits] for side in x)
            for i, overlap in enumerate((0.0, test / (size - test))):
                found = paired(ours, theirs, overlap=overlap, grain=1 / test)
                assert found is not None
                alarms[name][i] += found.p <= 0.05
    for plain, corrected in alarms.values():
        assert plain / pools > 0.06
        assert corrected / pools < 0.06
        assert corrected < 0.7 * plain


def _accuracy(x: np.ndarray, y: np.ndarray, test: np.ndarray, train: np.ndarray) -> float:
    """Of the nearest mean."""
    one, other = (x[train][y[train] == label].mean(0) for label in (1, 0))
    return float(np.mean(((x[test] - (one + other) / 2) @ (one - other) > 0) == y[test]))


def test_means_as_if_all_had_run_on_all_seeds() -> None:
    """Against averaging runners and seeds in turns, which ends at the same least squares."""
    rng = random.Random(0)
    values = {name: {s: rng.gauss(0, 1) for s in range(8) if s < 3 or rng.random() < 0.5} for name in "abcd"}
    runner, seed = dict.fromkeys(values, 0.0), dict.fromkeys(range(8), 0.0)
    for _ in range(3000):
        for name, each in values.items():
            runner[name] = statistics.fmean(v - seed[s] for s, v in each.items())
        for s in seed:
            here = [each[s] - runner[name] for name, each in values.items() if s in each]
            seed[s] = statistics.fmean(here) if here else 0.0
    ran = {s for each in values.values() for s in each}
    easy = statistics.fmean(seed[s] for s in ran)
    assert level_means(values) == pytest.approx({name: runner[name] + easy for name in values}, abs=1e-9)


def test_means_of_equal_seeds_are_plain() -> None:
    values = {"a": {0: 1.0, 4: 3.0}, "b": {0: 0.0, 4: 7.0}, "none": dict[int, float]()}
    assert level_means(values) == pytest.approx({"a": 2.0, "b": 3.5})
    assert level_means({}) == {}
