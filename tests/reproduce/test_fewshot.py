"""The few-shot tables: a stack trains as its learners would alone; images are asked for where there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from fallow.base.errors import RequestError
from fallow.data.tasks import Sinusoid
from fallow.reproduce import fewshot_images, l2f_leo, l2f_sinusoid, stored
from fallow.reproduce.runs import reproduce
from fallow.reproduce.stacked_tasks import train
from fallow.training.meta import fewshot


@pytest.mark.parametrize("method", ["maml:steps=2", "maml:steps=2+l2f:depth=2,per=tensor"])
def test_a_stack_trains_every_learner_as_it_would_train_alone(method: str) -> None:
    members = [(Sinusoid(shots=5), 0), (Sinusoid(shots=5, setting="hard"), 3)]
    learners, lost = train(members, method, iterations=5, meta_batch=3, compile=False)
    assert lost == [0, 0]
    for learner, (tasks, seed) in zip(learners, members, strict=True):
        few = tasks.changed(val_tasks=2, test_tasks=2)
        alone = fewshot(None, few, method, iterations=5, every=5, meta_batch=3, seed=seed, clip=10.0).model
        for (name, value), (_, expected) in zip(learner.named_parameters(), alone.named_parameters(), strict=True):
            torch.testing.assert_close(value, expected, atol=2e-6, rtol=0, msg=name)


def test_an_inner_loop_that_diverges_costs_an_iteration_and_not_the_learner() -> None:
    (learner,), (lost,) = train([(Sinusoid(shots=5), 0)], "maml:rate=1e15", iterations=3, compile=False)
    assert lost == 3
    assert all(torch.isfinite(p).all() for p in learner.parameters())


def test_methods_of_a_seed_are_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(l2f_sinusoid, "ITERATIONS", 1)
    monkeypatch.setattr(l2f_sinusoid, "CURVES", 20)
    monkeypatch.setattr(l2f_sinusoid, "COMPILE", False)
    first, again = (l2f_sinusoid.errors(Path(), "maml:steps=1", 5, [0, 1])[0] for _ in range(2))
    assert first == again
    assert first["standard"][0] != first["standard"][1]
    # the hard setting's training ranges have smaller amplitudes than its test ranges
    assert max(first["hard, training ranges"]) < min(first["hard"])


@pytest.mark.parametrize("name", [*fewshot_images.PLANS, "l2f-leo"])
def test_tables_of_images_ask_for_them(name: str, tmp_path: Path) -> None:
    for place, words in ((None, "give --data-dir, a folder with"), (tmp_path, "has no images of")):
        with pytest.raises(RequestError, match=words):
            reproduce(name, tmp_path / "out", data_dir=place, workers=1)
    assert not (tmp_path / "out").exists()


def test_accuracies_are_those_of_unseen_classes_with_their_intervals(few_images: Path, tmp_path: Path) -> None:
    table = reproduce("l2f-cifarfs", tmp_path / "out", seeds=2, data_dir=few_images, workers=1)
    rows = {(c.row, c.column): c for c in table.cells}
    assert {column for _, column in rows} == {f"5-shot, {kind}" for kind in ("transductive", "inductive")}
    assert ("Prototypical network", "5-shot, transductive") not in rows  # its norms have learned their statistics
    gain = rows["L2F − MAML", "5-shot, transductive"]
    assert gain.paper == 3.78
    means = [rows[row, "5-shot, transductive"].ours for row in ("L2F", "MAML")]
    assert gain.ours == pytest.approx(means[0] - means[1], abs=1e-3)
    assert ("L2F − L2F, constant γ", "5-shot, transductive") in rows
    assert rows["L2F − MAML: ± over episodes", "5-shot, transductive"].seeds == 2
    assert sum("Prototypical network (protonet, 2 iterations of 2 tasks)" in line for line in table.remarks) == 1
    tasks = fewshot_images.tasks_of("cifar-fs", *fewshot_images.sources("l2f-cifarfs", few_images), 1)
    wanted = json.loads((few_images / "cifar100_fewshot_splits.json").read_text())["splits"]["cifar-fs"]
    assert tasks.describe()["splits"] == wanted


def test_half_of_an_interval_over_episodes_is_students() -> None:
    ours, theirs = [60.0, 72.0, 48.0, 80.0], [52.0, 60.0, 56.0, 68.0]
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    low, high = stats.ttest_1samp(gaps, 0).confidence_interval()
    assert fewshot_images.half_width(ours, theirs) == pytest.approx((high - low) / 2)


def test_tables_of_one_seed_each_are_pooled_as_one_of_both(few_images: Path, tmp_path: Path) -> None:
    both = reproduce("l2f-cifarfs", tmp_path / "both", seeds=2, data_dir=few_images, workers=1)
    first = reproduce("l2f-cifarfs", tmp_path / "each", seeds=1, data_dir=few_images, workers=1)
    second = reproduce("l2f-cifarfs", tmp_path / "each", seed=1, seeds=1, data_dir=few_images, workers=1)
    for one, other in zip(stored.pooled(first, second).cells, both.cells, strict=True):
        assert (one.row, one.column, one.seeds) == (other.row, other.column, 2)
        assert (one.ours, one.spread) == pytest.approx((other.ours, other.spread), abs=2e-3)


def few(draw: np.random.Generator, classes: int, each: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    return draw.integers(0, 256, (classes * each, *shape), dtype=np.uint8), np.repeat(np.arange(classes), each)


KEPT = ("MAML", "L2F", fewshot_images.CONTROL, "Prototypical network")


@pytest.fixture
def few_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return small_images(tmp_path, monkeypatch)


def small_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Noise where the tables look for images, and settings to match."""
    draw = np.random.default_rng(0)
    x, y = few(draw, 20, 10, 16, 16)
    new_x, new_y = few(draw, 5, 10, 16, 16)
    np.savez(folder / "omniglot28.npz", x_background=x, y_background=y, x_evaluation=new_x, y_evaluation=new_y)
    x, y = few(draw, 15, 10, 16, 16, 3)
    np.savez(folder / "cifar100_sub.npz", x_train=x, y_train=y, x_test=x[::10], y_test=y[::10])
    splits = {"train": list(range(5)), "val": list(range(5, 10)), "test": list(range(10, 15))}
    (folder / "cifar100_fewshot_splits.json").write_text(json.dumps({"splits": {"cifar-fs": splits, "fc100": splits}}))
    monkeypatch.setattr(fewshot_images, "EPISODES", 3)
    monkeypatch.setattr(fewshot_images, "VALIDATION", 2)
    monkeypatch.setattr(fewshot_images, "LOOKS", 1)
    monkeypatch.setattr(fewshot_images, "MODEL", "conv4:width=2")
    for name, (known, plan) in fewshot_images.PLANS.items():
        ways = {row: way._replace(iterations=2, meta_batch=2) for row, way in plan.ways.items() if row in KEPT}
        monkeypatch.setitem(fewshot_images.PLANS, name, (known, replace(plan, ways=ways, shots=plan.shots[-1:])))
    for key, value in {"MODEL": "conv4:width=2", "FEATURES": 2, "ITERATIONS": 2, "LOOKS": 1}.items():
        monkeypatch.setattr(l2f_leo, key, value)
    return folder
