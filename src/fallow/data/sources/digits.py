"""1,797 handwritten digits of 8×8 pixels, from scikit-learn: no download."""

from __future__ import annotations

import numpy as np

from fallow.data.arrays import from_arrays
from fallow.data.parts import Cut, Parts


def digits(cut: Cut) -> Parts:
    """The optical digits of scikit-learn, their 0…16 scaled to 0…255; no test set of their own."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = (bunch.images * (255 / 16)).round().astype(np.uint8)
    return from_arrays({"train": (pixels, bunch.target)})
