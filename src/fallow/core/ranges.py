"""Where tuning looks for a setting: each method says which of its settings matter, and between which values."""

from __future__ import annotations

from typing import Any, NamedTuple


class Range(NamedTuple):
    """Numbers from low to high, evenly by size or by order of magnitude.

    >>> Range(0.01, 1.0, log=True).at(0.5), Range(0.0, 0.5).at(0.9)
    (0.1, 0.45)
    """

    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float:
        """The value at a share of the way, to two digits: more would say more than tuning knows."""
        way = self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)
        return float(f"{way:.2g}")


class OneOf(NamedTuple):
    """One of several values.

    >>> OneOf((False, True)).at(0.7)
    True
    """

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at a share of the way."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]


def log(low: float, high: float) -> Range:
    """Between these, by order of magnitude."""
    return Range(low, high, log=True)


def linear(low: float, high: float) -> Range:
    """Between these."""
    return Range(low, high)


def choice(*values: Any) -> OneOf:
    """One of these."""
    return OneOf(values)
