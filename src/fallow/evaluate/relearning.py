"""Failed relearning: a network that does not learn again what it forgot looks like one that does not generalise."""

from __future__ import annotations

from collections.abc import Sequence

from fallow.evaluate.metrics import Metric

SLACK = 0.01  # of a share: what the first generation had by chance


def failed_generation(ends: Sequence[float | None], metric: Metric) -> int | None:
    """The generation that fits its training examples worst, if by more than a point worse than the first.

    ``ends`` are the training scores at the end of every generation, as far as they are known.

    >>> from fallow.evaluate.metrics import CLASSES
    >>> failed_generation([1.0, 0.995, 0.44], CLASSES["accuracy"])
    3
    >>> failed_generation([1.0, 0.995], CLASSES["accuracy"])
    """
    known = [number for number, end in enumerate(ends) if end is not None]
    if not metric.share or not known:
        return None
    worst = min(known, key=lambda number: metric.worth(ends[number]))
    return worst + 1 if metric.worth(ends[known[0]]) - metric.worth(ends[worst]) > SLACK else None
