"""An estimate from random probes, and the interval that holds the truth 95 times in 100."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

Array = np.ndarray


@dataclass(frozen=True)
class Probed:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def describe(self) -> dict[str, float]:
        """As plain values."""
        return {"value": self.value, "low": self.low, "high": self.high}


LEVEL = 0.985  # of Student's t: the probes' samples are skewed, and .975 would hold the truth 93 times in 100


def half_width(samples: Array) -> float:
    """Half the 95 % interval of the mean of p independent samples: t_{.985, p−1} s / √p.

    >>> round(half_width(np.array([1.0, 2.0, 3.0])), 3)
    3.258
    """
    count = len(samples)
    if count < 2:
        return math.inf
    return float(stdtrit(count - 1, LEVEL) * np.std(samples, ddof=1) / math.sqrt(count))


def plain(value: Any) -> Any:
    """Arrays as lists and numbers that are not finite as None, so that every JSON reader understands them.

    >>> plain(np.array([1.0, np.inf]))
    [1.0, None]
    """
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
