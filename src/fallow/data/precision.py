"""What float32 cannot hold: differences that are small beside the numbers themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError

COARSE = 0.05  # of a column's standard deviation: float32's steps should be finer


def require_fine(columns: NDArray[Any], named: str) -> None:
    """Refuse columns (N×K) whose values float32 cannot tell apart; ``named`` says which, by its place ``{}``.

    >>> require_fine(np.array([[1e8], [1e8 + 1], [1e8 + 2]]), "column {} of x")
    Traceback (most recent call last):
    fallow.base.errors.RequestError: column 0 of x varies by 0.8165 around 1e+08, too little for float32: subtract 1e+08
    """
    values = columns.astype(np.float64)
    with np.errstate(all="ignore"):  # what is not finite is refused elsewhere
        steps = np.spacing(np.abs(values).max(0).astype(np.float32)).astype(np.float64)
        mean, spread = values.mean(0), values.std(0)
    coarse = (spread > 0) & (steps > COARSE * spread)
    if coarse.any():
        place = int(coarse.argmax())
        middle = f"{mean[place]:.6g}"
        raise RequestError(
            f"{named.format(place)} varies by {spread[place]:.4g} around {middle}, too little for float32: "
            f"subtract {middle}"
        )
