"""An atlas in small: two data sets are compared, a third is added, and what is done is not done again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fallow.atlas import made, run
from fallow.atlas import rows as kept
from fallow.atlas.sites import Site, site, sites
from fallow.base.errors import RequestError
from fallow.models import minilm
from tests.comparison import small


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every comparison is the smallest there is, without yardsticks."""

    def plan(here: Site, *_: Any) -> Any:
        return small.plan(here.source, "ema", train=here.labels, refit=False)

    monkeypatch.setattr(run, "plan", plan)
    monkeypatch.setattr("fallow.comparison.yardsticks.measured", lambda *_, **__: [])


def test_places_are_added_and_kept(tmp_path: Path, tiny: None) -> None:
    sources = [small.arrays(tmp_path / f"{name}.npz", seed=i) for i, name in enumerate("ab")]
    first = run.survey([site(sources[0], 24)], tmp_path / "atlas", workers=1)
    assert {(*row.setting, row.method) for row in first} == {("a", 24, "scratch", m) for m in ("normal", "long", "ema")}
    assert all(row.training is not None and row.seeds == 2 and row.measured.startswith("fallow ") for row in first)
    before = small.state(tmp_path / "atlas" / "comparisons" / "a-24")
    heard: list[str] = []
    published = [dataclasses.replace(row, data="c") for row in first]
    more = run.survey([site(sources[1], 24)], tmp_path / "atlas", before=published, workers=1, told=heard.append)
    assert heard[-1].startswith("1 of 1, b-24: On b, no method is shown to beat long")
    assert [row.data for row in more] == [name for name in "cab" for _ in range(3)]
    assert small.state(tmp_path / "atlas" / "comparisons" / "a-24") == before
    assert len(kept.read(tmp_path / "atlas" / run.FILE)) == 9


def test_made_places_have_a_test_part_that_is_the_same_for_all_seeds(tmp_path: Path) -> None:
    found = sites(None, tmp_path)
    assert len({each.data for each in found}) == 7
    assert len(found) == 14
    for each in found:
        data = run.loaded(each)
        assert (data.sizes["train"], data.overlap) == (each.labels, 0), each
    with pytest.raises(RequestError, match=r"has no mnist\.npz"):
        sites(tmp_path, tmp_path)


def test_characters_are_the_first_of_omniglot(tmp_path: Path) -> None:
    y = np.repeat(np.arange(100, 125), 4)
    np.savez(tmp_path / "o.npz", x_evaluation=np.zeros((100, 5, 5), np.uint8), y_evaluation=y)
    x, classes = made.characters(tmp_path / "o.npz")
    assert x.shape == (80, 5, 5)
    assert classes.max() == 19


def test_sentences_are_pairs(tmp_path: Path) -> None:
    texts = {f"s{k}_{part}": np.array([f"{part} {k}"], bytes) for k in (1, 2) for part in ("train", "dev")}
    np.savez(tmp_path / "s.npz", y_train=[1], y_dev=[0], **texts)
    pairs, y = made.sentences(tmp_path / "s.npz")
    assert pairs.tolist() == [[b"train 1", b"train 2"], [b"dev 1", b"dev 2"]]
    assert y.tolist() == [1, 0]


def test_quick_plans_are_small_and_colour_has_features(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name, channels in (("grey", ()), ("colour", (3,))):
        x = draw.integers(0, 255, (60, 16, 16, *channels)).astype(np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(60) % 3)
    grey, colour = (run.plan(site(str(tmp_path / f"{n}.npz"), 24), ["ema"], quick=True) for n in ("grey", "colour"))
    assert grey.models == (run.SMALL,)
    assert "probe" not in grey.methods
    assert grey.seeds == 4
    assert colour.models == (run.SMALL, "lite0")
    assert "probe" in colour.methods
    assert run.plan(site("synthetic", 40), ["ema"]).models == ("auto",)
    assert run.estimate([grey])[0] > 0
    np.savez(tmp_path / "texts.npz", x=np.array([f"text {n}" for n in range(60)]), y=np.arange(60) % 3)
    texts = run.plan(site(str(tmp_path / "texts.npz"), 24), ["ema"], quick=True)
    assert texts.models == (("auto", "minilm") if minilm.published() is not None else ("auto",))
    np.savez(tmp_path / "numbers.npz", x=draw.normal(size=(60, 4)), y=draw.normal(size=60))
    with pytest.raises(RequestError, match="an atlas is of accuracies"):
        run.plan(site(str(tmp_path / "numbers.npz"), None), ["ema"])
