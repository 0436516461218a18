"""The page of masks: a table of the classes, and slices of the worst test examples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fallow import Predictor
from fallow.comparison.slices import slices
from tests.comparison.small import plan, ran


@pytest.mark.parametrize("size", [(6, 6), (4, 6, 6)])
def test_the_worst_come_first(size: tuple[int, ...]) -> None:
    y = torch.zeros(3, *size, dtype=torch.long)
    y[..., 1:4, 1:4] = 1
    y[..., 5, 5] = 2
    said = y.clone()
    said[1, ..., 1:4, 1:4] = 0  # the second misses class 1 altogether
    predictor = SimpleNamespace(
        classes=["ground", "<lesion>", "rim"],
        logits=lambda x: functional.one_hot(said[x.flatten(1)[:, 0].long()], 3).movedim(-1, 1).float(),
    )
    x = torch.arange(3, dtype=torch.uint8).view(3, 1, *[1] * len(size)).expand(3, 1, *size)
    page = "".join(slices(predictor, x, y))
    assert "<lesion>" not in page  # escaped
    assert "ground" not in page
    assert page.index("test example 1") < page.index("test example 0")
    assert "Dice 50.0 %" in page  # one of its two classes
    assert "66.7" in page  # of class 1, in two of three examples
    assert page.count("<img") == 9
    assert ("slice that holds most" in page) == (len(size) == 3)


def test_signals_have_no_slices() -> None:
    y = torch.tensor([[0, 1, 1, 0]])
    predictor = SimpleNamespace(
        classes=["0", "1"], logits=lambda x: functional.one_hot(y, 2).movedim(-1, 1).float()[: len(x)]
    )
    page = "".join(slices(predictor, torch.zeros(1, 1, 4), y))
    assert "100.0" in page
    assert "<img" not in page


def test_comparisons_of_masks_and_of_texts(tmp_path: Path) -> None:
    """Their pages show slices, and the texts that were mistaken; their winners predict."""
    draw = np.random.default_rng(0)
    y = np.zeros((24, 8, 8), np.int64)
    y[:, 2:6, 2:6] = draw.integers(0, 2, (24, 1, 1))
    np.savez(tmp_path / "masks.npz", x=(255 * y).astype(np.uint8), y=y)
    asked = plan(
        str(tmp_path / "masks.npz"), "normal", "long", models=["unet:width=2"], target="dense", as_="images",
        settings={"loss": "dice"}, refit=False,
    )  # fmt: skip
    ran(asked, tmp_path / "masks")
    page = (tmp_path / "masks" / "report.html").read_text("utf-8")
    assert "Where it is worst" in page
    assert "Class by class" in page
    words = np.array([" ".join(draw.choice(["sun", "rain", "fog"], 4)) for _ in range(60)])
    np.savez(tmp_path / "texts.npz", text=words, y=np.arange(60) % 2)
    ran(plan(str(tmp_path / "texts.npz"), "normal", "long", models=["bag:words=32"], refit=False), tmp_path / "texts")
    page = (tmp_path / "texts" / "report.html").read_text("utf-8")
    assert "What it gets wrong" in page
    assert any(text in page for text in words)
    assert len(Predictor(tmp_path / "texts")(words[:3])) == 3
