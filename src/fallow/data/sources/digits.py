"""1,797 handwritten digits of 8×8 pixels, from scikit-learn: no download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fallow.base.errors import WorkError
from fallow.data.arrays import from_arrays
from fallow.data.parts import Parts, Shares


def digits(cut: Shares) -> Parts:
    """The optical digits of scikit-learn, their 0…16 scaled to 0…255; no test set of their own."""
    spec = find_spec("sklearn")  # its loader would import all of it: two seconds for every process
    if spec is None or spec.origin is None:
        raise WorkError("the digits are a file of scikit-learn: pip install scikit-learn")
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    pixels = (table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8)
    return from_arrays({"train": (pixels, table[:, -1].astype(np.int64))})
