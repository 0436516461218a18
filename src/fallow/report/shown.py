"""How a metric is shown: its words, its unit, its numbers and differences, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.evaluate.metrics import Metric
from fallow.evaluate.statistics import Estimate
from fallow.report.svg import Scale
from fallow.report.words import MINUS, number, percent, points, signed


@dataclass(frozen=True)
class Shown:
    """A metric for people. A share between 0 and 1 is shown in per cent, anything else as it is.

    >>> ACCURACY.value(0.9731), ACCURACY.full(0.9731), ACCURACY.difference(-0.0123)
    ('97.3', '97.3 %', '−1.2')
    >>> rmse = Shown("rmse", "RMSE", share=False, higher=False)
    >>> rmse.axis("test"), rmse.full(0.4321), rmse.difference(0.02)
    ('test RMSE', '0.4321', '+0.02')
    """

    name: str = "accuracy"  # in records: val_accuracy
    words: str = "accuracy"
    share: bool = True
    higher: bool = True  # is better

    @classmethod
    def of(cls, metric: Metric) -> Shown:
        """As a metric says of itself."""
        return cls(metric.name, metric.words, metric.share, metric.higher)

    @property
    def factor(self) -> float:
        """From a value to the number that is shown."""
        return 100.0 if self.share else 1.0

    @property
    def unit(self) -> str:
        """For a caption: ", in %"."""
        return ", in %" if self.share else ""

    @property
    def points(self) -> str:
        """What a difference is counted in."""
        return f"percentage points of test {self.words}" if self.share else f"test {self.words}"

    def axis(self, split: str = "") -> str:
        """The words of an axis."""
        return f"{split} {self.words}{' in %' if self.share else ''}".strip()

    def value(self, value: float | None, digits: int = 1) -> str:
        """A value without its unit."""
        return percent(value, digits) if self.share else number(value)

    def full(self, value: float | None, digits: int = 1) -> str:
        """A value with its unit."""
        return self.value(value, digits) + (" %" if self.share and value is not None else "")

    def interval(self, estimate: Estimate) -> str:
        """From its low to its high end, where it has them."""
        if estimate.low is None or estimate.high is None:
            return ""
        return f"{self.value(estimate.low)} to {self.value(estimate.high)}"

    def difference(self, difference: float, digits: int = 1) -> str:
        """A difference with its sign."""
        return points(difference, digits) if self.share else signed(difference)

    def size(self, difference: float) -> str:
        """A difference without its sign."""
        return f"{100 * difference:.1f}" if self.share else number(difference, 3)

    def marks(self, scale: Scale, about: int, differences: bool = False) -> list[tuple[float, str]]:
        """Where to mark an axis, with as many digits as tell the marks apart.

        >>> ACCURACY.marks(Scale(0.941, 0.952, 0, 100), 3)
        [(0.945, '94.5'), (0.95, '95.0')]
        """
        ticks = scale.ticks(about)
        if not self.share:
            return [(t, signed(t) if differences else number(t)) for t in ticks]
        digits = 0 if all(abs(100 * t - round(100 * t)) < 1e-6 for t in ticks) else 1
        if not differences:
            return [(t, percent(t, digits)) for t in ticks]
        return [(t, "0" if t == 0 else f"{100 * t:+.{digits}f}".replace("-", MINUS)) for t in ticks]


ACCURACY = Shown()
PLAIN = Shown("", "", share=False)  # numbers that speak for themselves
