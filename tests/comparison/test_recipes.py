"""A comparison chooses what nobody said, once, and keeps it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fallow.comparison.plan import Plan
from fallow.comparison.recipes import with_recipes
from fallow.data import load
from fallow.training import augmentation
from tests.comparison.small import arrays, plan, ran

LOSSES = {"none": [0.5, 0.6], "crop": [0.4, 0.5], "flip+crop": [0.9, 0.9]}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The augmentations that were tried; nothing is trained for it."""
    found: list[str] = []

    def trial(data, model, settings, device) -> list[float]:
        assert data.val is not None
        found.append(settings.augment)
        return LOSSES[settings.augment]

    monkeypatch.setattr(augmentation, "trial", trial)
    return found


@pytest.fixture
def images(tmp_path: Path) -> str:
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "few.npz", x=draw.integers(0, 256, (40, 8, 8), np.uint8), y=np.arange(40) % 2)
    return str(tmp_path / "few.npz")


def test_augmentation_is_tried_once_and_holds(images: str, tried: list[str], tmp_path: Path) -> None:
    told: list[str] = []
    done = ran(plan(images, "ema", seeds=1), tmp_path / "out", told=told.append)
    assert tried == ["none", "crop", "flip+crop"]
    assert told == ["Short trials (loss on validation: none 0.550, crop 0.450, flip+crop 0.900): augmented by shifts."]
    assert {run.arguments["settings"]["augment"] for run in done.runs} == {"crop"}
    assert "augmented by shifts" in (tmp_path / "out" / "report.html").read_text()

    more = ran(plan(images, "ema", seeds=2, models=["mlp:hidden=8,8", "mlp:hidden=4"]), tmp_path / "out")
    assert len(tried) == 3  # later seeds and models use the same
    assert {run.arguments["settings"]["augment"] for run in more.runs} == {"crop"}
    saved = Plan.of(**Plan.read(tmp_path / "out" / "plan.toml"))
    ran(saved, tmp_path / "other")
    assert len(tried) == 3


def test_an_augmentation_that_is_given_needs_no_trial(images: str, tried: list[str], tmp_path: Path) -> None:
    done = ran(plan(images, "ema", seeds=1, settings={"augment": "flip"}), tmp_path / "out")
    assert {run.arguments["settings"]["augment"] for run in done.runs} == {"flip"}
    assert tried == []


def test_auto_is_the_recipe_s_own_network_beside_others(tmp_path: Path) -> None:
    source = arrays(tmp_path / "few.npz")
    whole = with_recipes(plan(source, "ema", models=["mlp:hidden=4", "auto"]), {source: load(source)})
    assert whole.models_of(source) == ["mlp:hidden=4", "mlp:norm=batch,embed=8"]
    assert whole.recipe(source, "mlp:norm=batch,embed=8")["lr"] == 0.05
    assert whole.recipe(source, "mlp:hidden=4")["lr"] == 0.01


def test_little_time_makes_runs_shorter(tmp_path: Path) -> None:
    source = arrays(tmp_path / "few.npz")
    asked = {"data": (source,), "methods": ("ema",)}
    usual, short, quick = (
        with_recipes(Plan(**asked, **how), {source: load(source)}).recipe(source, "mlp:norm=batch,embed=8")["epochs"]
        for how in ({}, {"minutes": 1e-3}, {"quick": True})
    )
    assert usual == 50
    assert short < 10
    assert quick == 12


def test_what_is_frozen_is_not_augmented_and_what_starts_afresh_beside_it_is_not_frozen(images: str) -> None:
    asked = Plan.of(
        data=[images], methods=["sam"], models=["lite0", "scnn:width=4,dense=16"], settings={"freeze": "head"}
    )
    (found,) = with_recipes(asked, {images: load(images)}).recipes.values()
    assert {model: own["augment"] for model, own in found.items()} == {"lite0": "none", "scnn:width=4,dense=16": "auto"}
