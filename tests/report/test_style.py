from __future__ import annotations

import numpy as np
import pytest

from fallow.report.pictures import picture
from fallow.report.style import DARK, FIGURE, LIGHT, SERIES, series


def test_pictures() -> None:
    assert picture(None) is None
    assert picture(np.zeros(64, np.uint8)) is None
    for channels in (1, 2, 3, 4, 5):
        small = picture(np.zeros((channels, 8, 8), np.uint8))
        assert small is not None
        assert small.kind == "pixels"
        assert small.source.startswith("data:image/png;base64,")
    large = picture(np.random.default_rng(0).integers(0, 256, (3, 500, 300), dtype=np.uint8))
    assert large is not None
    assert large.kind == "smooth"
    assert len(large.source) < 30_000


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_contrast(palette: dict[str, str]) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for text in ("ink", "muted", "accent", "better", "worse"):
        for ground in ("paper", "panel"):
            dim, bright = sorted(luminance(palette[name]) for name in (text, ground))
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (text, ground)
    for i in range(SERIES):
        dim, bright = sorted(luminance(palette[name]) for name in (f"s{i}", "paper"))
        assert (bright + 0.05) / (dim + 0.05) >= 3, i


def test_the_palettes_have_the_same_names_and_the_figures_use_no_others() -> None:
    assert LIGHT.keys() == DARK.keys()
    used = {part.partition(")")[0] for part in FIGURE.split("var(--")[1:]}
    assert used <= LIGHT.keys()
    assert len({series(i) for i in range(4 * SERIES)}) == 4 * SERIES
