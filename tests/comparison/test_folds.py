"""Cross-validation: every example is a test example once in a repeat, and the test knows that folds are correlated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.base.errors import RequestError
from fallow.comparison.work import read
from fallow.data import load
from fallow.data.examples import Examples
from fallow.data.split import folds
from fallow.evaluate.race import sequential_p
from tests.comparison.small import arrays, plan, ran


@pytest.mark.parametrize("number", [2, 3, 5, 10])
def test_strata_are_dealt_out_evenly(number: int) -> None:
    y = torch.tensor([0] * 37 + [1] * 20 + [2] * 3)
    found = folds(y, number, torch.Generator().manual_seed(0))
    assert set(found.tolist()) == set(range(number))
    for stratum in range(3):
        counts = found[y == stratum].bincount(minlength=number)
        assert counts.max() - counts.min() <= 1
    sizes = found.bincount(minlength=number)
    assert sizes.max() - sizes.min() <= 1
    assert not found.equal(folds(y, number, torch.Generator().manual_seed(1)))


def test_groups_stay_in_one_fold() -> None:
    groups = torch.arange(120) // 4
    found = folds((groups % 3), 5, torch.Generator().manual_seed(0), groups)
    assert found.unique().tolist() == list(range(5))
    assert all(len(found[groups == group].unique()) == 1 for group in groups.unique())


def test_every_example_is_a_test_example_once_in_a_repeat(tmp_path: Path) -> None:
    source, number = arrays(tmp_path / "few.npz", n=63, classes=3), 4
    asked = plan(source, "ema", folds=number, seeds=7)
    assert (asked.seeds, asked.looks, asked.first) == (8, (4, 8), 0)
    with np.load(source) as whole:
        every = sorted(map(tuple, whole["x"].round(4).tolist()))
    for repeat in range(2):
        parts = [read(source, number * repeat + fold, asked.load_options()) for fold in range(number)]
        seen = [tuple(row) for part in parts for row in part.test.x.numpy().round(4).tolist()]
        assert sorted(seen) == every
        for part in parts:
            assert not set(map(tuple, part.train.x.tolist())) & set(map(tuple, part.test.x.tolist()))
            assert part.overlap == pytest.approx(len(part.test) / len(part.train))
            assert len(part.train) + len(part.val) + len(part.test) == 63


def test_a_race_over_folds_looks_after_whole_repeats(tmp_path: Path) -> None:
    done = ran(plan(arrays(tmp_path / "few.npz"), "ema", folds=3, seeds=3), tmp_path / "out")
    (setting,) = done.findings().settings
    assert setting.race.looks == (3,)
    assert {row.method: len(row.scores) for row in setting.rows} == {"normal": 3, "long": 3, "ema": 3}
    tested = [read(done.plan.data[0], seed, done.plan.load_options()).test for seed in range(3)]
    assert sum(map(len, tested)) == 60
    assert setting.overlap == pytest.approx(20 / 32)  # of 40 examples, 8 are for validation
    for row in setting.rows:
        assert all((60 / 3 * score) == pytest.approx(round(60 / 3 * score)) for score in row.scores.values())


def test_tuning_has_a_partition_of_its_own(tmp_path: Path) -> None:
    asked = plan(arrays(tmp_path / "few.npz"), "ema", folds=5, seeds=5, seed=1, tune=4)
    assert (list(asked.held), asked.first) == ([5, 6], 10)


def test_data_with_a_test_part_of_their_own_have_no_folds() -> None:
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    with pytest.raises(RequestError, match="test part of their own"):
        load((Examples(x, y), Examples(x, y)), fold=(0, 5))
    with pytest.raises(RequestError, match="fold is"):
        load((x.numpy(), y.numpy()), fold=(5, 5))


def test_equal_learners_on_folds_are_seldom_told_apart() -> None:
    """Nearest centroids on two fixed halves of the features: the plain test is wrong in a third of the pools."""
    draw, differences = np.random.default_rng(0), []
    for _ in range(120):
        y = draw.integers(0, 2, 200)
        x = draw.normal(size=(200, 20)) + 0.25 * y[:, None]
        for _ in range(4):
            fold = draw.permutation(200) % 5
            for k in range(5):
                train, test = fold != k, fold == k
                ends = np.stack([x[train & (y == c)].mean(0) for c in (0, 1)])
                far = (x[test, None] - ends) ** 2
                right = [(far[..., half].sum(-1).argmin(1) == y[test]).mean() for half in (slice(10), slice(10, 20))]
                differences.append(right[0] - right[1])
    paths, looks = np.reshape(differences, (120, 20)), (5, 10, 15, 20)
    assert (sequential_p(paths, looks, 0.25, grain=1 / 40)[:, -1] <= 0.05).mean() <= 0.05
    assert (sequential_p(paths, looks, 0.0, grain=1 / 40)[:, -1] <= 0.05).mean() > 0.2
