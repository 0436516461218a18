"""Sequential p-values, repeated intervals and what would decide: against one look, brute force, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fallow.base.errors import RequestError
from fallow.evaluate.race import (
    EARLY,
    LOOKS,
    _null,
    advice,
    chance_better,
    chance_same,
    edges,
    looks_until,
    repeated_interval,
    sequential_p,
    visible,
)
from fallow.evaluate.statistics import paired

PATH = np.random.default_rng(3).normal(0.8, 1.0, 20)
WEIGHTS = np.array([EARLY] * 7 + [1.0])


def plain(d: np.ndarray, overlap: float = 0.0, grain: float = 0.0) -> float:
    found = paired(d.tolist(), [0.0] * len(d), overlap=overlap, grain=grain)
    assert found is not None
    return found.p


@pytest.mark.parametrize("overlap", [0.0, 0.25])
@pytest.mark.parametrize("grain", [0.0, 4.0])
def test_each_look_is_the_paired_test_transformed_by_the_null_distribution(overlap: float, grain: float) -> None:
    null = _null(LOOKS, overlap)
    p = sequential_p(PATH, overlap=overlap, grain=grain)
    q = [min(1.0, plain(PATH[:k], overlap, grain) / w) for k, w in zip(LOOKS, WEIGHTS, strict=True)]
    assert p == pytest.approx(null.probability(np.minimum.accumulate(q)))
    assert len(sequential_p(PATH[:9], overlap=overlap)) == 4
    assert sequential_p(PATH[:9], overlap=overlap) == pytest.approx(sequential_p(PATH, overlap=overlap)[:4])
    assert sequential_p(PATH[:3]).shape == (0,)


@pytest.mark.parametrize("overlap", [0.0, 0.3])
def test_one_look_alone_is_the_paired_test(overlap: float) -> None:
    assert sequential_p(PATH[:8], looks=(8,), overlap=overlap) == pytest.approx([plain(PATH[:8], overlap)])
    found = repeated_interval(PATH[:8], looks=(8,), overlap=overlap)
    wanted = paired(PATH[:8].tolist(), [0.0] * 8, overlap=overlap)
    assert wanted is not None
    assert (found.mean[0], found.low[0], found.high[0]) == pytest.approx(wanted[:3])


def test_it_never_rises_and_a_direction_is_half_of_the_story() -> None:
    paths = np.random.default_rng(4).standard_normal((50, 20))
    p = sequential_p(paths)
    assert p.shape == (50, 8)
    assert (np.diff(p) <= 0).all()
    up, down = sequential_p(paths, direction=1), sequential_p(paths, direction=-1)
    assert np.minimum(up, down) == pytest.approx(p)
    assert down == pytest.approx(sequential_p(-paths, direction=1))
    assert p[7] == pytest.approx(sequential_p(paths[7] * 1000))  # the variance does not matter


@pytest.mark.parametrize("overlap", [0.0, 0.25])
def test_the_null_distribution_against_brute_force(overlap: float) -> None:
    """Every path of other draws through scipy's t-test, look by look."""
    draw = np.random.default_rng(99)
    d = draw.standard_normal((40_000, 20)) + math.sqrt(overlap) * draw.standard_normal((40_000, 1))
    q = np.full(len(d), np.inf)
    for k, weight in zip(LOOKS, WEIGHTS, strict=True):
        t = stats.ttest_1samp(d[:, :k], 0, axis=1).statistic * math.sqrt(1 / k / (1 / k + overlap))
        q = np.minimum(q, 2 * stats.t.sf(abs(t), k - 1) / weight)
    null = _null(LOOKS, overlap)
    for level in (0.005, 0.01, 0.05, 0.2, 0.5):
        error = math.sqrt(level * (1 - level) / len(d))
        assert np.mean(q <= null.quantile(level)) == pytest.approx(level, abs=4 * error)
    x = np.geomspace(1e-9, 1, 200)
    assert (np.diff(null.probability(x)) >= 0).all()
    assert (null.probability(x) >= x).all()
    assert (null.probability(x) <= 1.35 * x + 1e-15).all()
    assert null.probability(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_the_null_distribution_is_the_same_every_time() -> None:
    assert (_null.__wrapped__(LOOKS, 0.0).draws == _null(LOOKS, 0.0).draws).all()


@pytest.mark.parametrize("overlap", [0.0, 0.25])
@pytest.mark.parametrize("level", [0.95, 0.995])
def test_the_interval_is_the_inversion(overlap: float, level: float) -> None:
    found = repeated_interval(PATH, overlap=overlap, level=level)
    for i in range(len(LOOKS)):
        reached = PATH[: LOOKS[i]]
        width = found.high[i] - found.low[i]
        for bound, outward in ((found.low[i], -1), (found.high[i], 1)):
            inside = sequential_p(reached - (bound - outward * 1e-4 * width), overlap=overlap)[-1]
            outside = sequential_p(reached - (bound + outward * 1e-4 * width), overlap=overlap)[-1]
            assert outside <= 1 - level + 1e-12 < inside
            assert outside == pytest.approx(1 - level, rel=0.02)
            assert inside == pytest.approx(1 - level, rel=0.02)
    assert (np.diff(found.low) >= 0).all()
    assert (np.diff(found.high) <= 0).all()


def test_looks_that_agree_on_nothing_leave_the_last_ones_own_interval() -> None:
    d = np.array([5.0, 5.001, 5.0, 5.001] + [0.0] * 16)
    found = repeated_interval(d)
    own = edges(LOOKS, 0.0, 0.05)[-1] * d.std(ddof=1) / math.sqrt(20)
    assert (found.low[-1], found.high[-1]) == pytest.approx((d.mean() - own, d.mean() + own))


@pytest.mark.parametrize("overlap", [0.0, 0.25])
def test_size_and_coverage_at_the_least_favourable_stopping_time(overlap: float) -> None:
    """Stop as soon as anything is found: 5 % of paths without an effect, and of intervals around a true one."""
    draw = np.random.default_rng(5)
    d = draw.standard_normal((20_000, 20)) + math.sqrt(overlap) * draw.standard_normal((20_000, 1))
    alarms = (sequential_p(d, overlap=overlap) <= 0.05).any(1).mean()
    assert alarms == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 20_000))
    found = repeated_interval(d + 3.0, overlap=overlap)
    missed = ((found.low > 3.0) | (found.high < 3.0)).any(1).mean()
    assert missed == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 20_000))
    peeking = np.array([stats.ttest_1samp(d[:, :k], 0, axis=1).pvalue <= 0.05 for k in LOOKS]).any(0).mean()
    assert peeking > 0.12  # of the test made for one look


def test_differences_that_are_all_equal() -> None:
    assert sequential_p([0.0] * 6).tolist() == [1.0, 1.0, 1.0]
    assert sequential_p([0.25] * 6).tolist() == [0.0, 0.0, 0.0]
    assert sequential_p([0.25] * 6, direction=-1).tolist() == [1.0, 1.0, 1.0]
    known = repeated_interval([0.25] * 6)
    assert known.low.tolist() == known.high.tolist() == [0.25] * 3
    grainy = sequential_p([0.25] * 6, grain=0.25)
    assert 0 < grainy[-1] < grainy[0] < 1
    assert sequential_p([0.0] * 6, grain=0.01).tolist() == [1.0, 1.0, 1.0]
    within = repeated_interval([0.0] * 6, grain=0.01)
    assert -0.02 < within.low[-1] == -within.high[-1] < 0
    assert chance_better([0.0] * 6).max() == 0.0
    assert chance_better([0.25] * 6)[0, 1:].tolist() == [1.0] * 7
    assert chance_same([0.0] * 6, 0.1)[2].tolist() == [0.0] * 3 + [1.0] * 5


def test_a_seed_that_failed_is_left_out() -> None:
    broken = np.insert(PATH[:8], [1, 5], [math.nan, math.inf])
    assert sequential_p(broken).tolist() == sequential_p(PATH[:8]).tolist()
    two = np.stack([PATH[:8], PATH[:8] + 1])
    two[1, 2] = math.nan
    assert sequential_p(two).shape == (2, 3)  # at 4, 5 and 6 seeds that both have


@pytest.mark.parametrize("looks", [(1, 4), (4, 4, 5), (6, 4)])
def test_looks_must_rise(looks: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="looks must rise"):
        sequential_p(PATH, looks=looks)


def test_looks_until() -> None:
    assert looks_until(20) == LOOKS
    assert looks_until(7) == (4, 5, 6, 7)
    assert looks_until(3) == (3,)
    for seeds in (24, 33, 100):
        looks = looks_until(seeds)
        assert looks[:8] == LOOKS
        assert looks[-1] == seeds
        assert list(looks) == sorted(set(looks))


def test_the_predictive_chance_against_simulation() -> None:
    """Draw the truth from what six seeds say of it (flat priors), then the seeds to come."""
    draw = np.random.default_rng(6)
    d = np.array([0.9, -0.2, 1.4, 0.3, 1.1, 0.6])
    n, draws = len(d), 40_000
    spread = d.std(ddof=1) * np.sqrt((n - 1) / draw.chisquare(n - 1, draws))
    truth = d.mean() + spread / math.sqrt(n) * draw.standard_normal(draws)
    later = truth[:, None] + spread[:, None] * draw.standard_normal((draws, 20 - n))
    chances = chance_better(d, level=0.005)[2]
    ties = chance_same(d, 2.0, level=0.005)[2]
    for i, k in enumerate(LOOKS):
        if k <= n:
            assert chances[i] == ties[i] == 0.0
            continue
        mean = (d.sum() + later[:, : k - n].sum(1)) / k
        half = edges(LOOKS, 0.0, 0.005)[i] * d.std(ddof=1) / math.sqrt(k)
        assert chances[i] == pytest.approx(np.mean(mean > half), abs=0.01)
        assert ties[i] == pytest.approx(np.mean(abs(mean) < 2.0 - half), abs=0.01)


def test_visible_is_found_four_times_in_five() -> None:
    draw = np.random.default_rng(7)
    for overlap in (0.0, 0.25):
        shift = visible(20, overlap=overlap, level=0.005)
        d = shift + draw.standard_normal((8_000, 20)) + math.sqrt(overlap) * draw.standard_normal((8_000, 1))
        t = d.mean(1) / (d.std(1, ddof=1) * math.sqrt(1 / 20 + overlap))
        assert np.mean(t > edges(LOOKS, overlap, 0.005)[-1]) == pytest.approx(0.8, abs=0.02)
    assert visible(8) > visible(20)


def test_what_would_decide_it() -> None:
    unsure = np.array([0.9, -0.2, 1.4, 0.3, 1.1, -0.6])
    found = advice(unsure)
    assert found.seeds is not None
    assert found.sentence == f"about {found.seeds} more seeds would decide this, likely as better"
    assert advice(-unsure) == (found.seeds, found.sentence.replace("better", "worse"), "worse")
    after = 6 + found.seeds
    draw = np.random.default_rng(8)
    scaled = draw.standard_normal((10_000, found.seeds)) * unsure.std(ddof=1) + unsure.mean()
    d = np.concatenate([np.tile(unsure, (10_000, 1)), scaled], axis=1)
    edge = stats.t.isf(_null(LOOKS, 0.0).quantile(0.05) * (EARLY if after < 20 else 1) / 2, after - 1)
    decided = d.mean(1) > edge * unsure.std(ddof=1) / math.sqrt(after)
    assert decided.mean() == pytest.approx(0.8, abs=0.06)  # the number of seeds is whole
    assert advice(unsure, overlap=1.0) == (None, "more seeds cannot decide this; more test data can", "")
    small = advice(unsure - unsure.mean())
    assert small == (None, "the difference is too small to be seen even with 1,000 seeds", "")
    same = advice(unsure - unsure.mean(), same=1.0)
    assert same.verdict == "no different"
    for margin in (0.0, 0.1):  # far above one and far below the other is not too small to be seen
        between = advice(np.stack([unsure, unsure - 2]), same=margin)
        assert between.sentence.startswith("between the controls")
    near = unsure - unsure.mean()
    assert advice(np.stack([near + 0.1, near - 0.1]), same=1.0).seeds is not None  # as no different from either
    assert advice(unsure[:3]) == (None, "4 seeds are needed for a first look", "")
    both = advice(np.stack([unsure, unsure + 1]))
    assert both.seeds == found.seeds  # the nearer control decides
