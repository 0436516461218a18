"""A diagnosis: every measure of every subject, what could not be measured, and the numbers side by side."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

from fallow.base.errors import RequestError, unknown
from fallow.diagnose.measures import MEASURES
from fallow.diagnose.subjects import Subject

Progress = Callable[[str, float], None]  # what is measured now, and the share that is done


@dataclass(frozen=True)
class Number:
    """One number of a diagnosis: of which measure, what it is, and how to read it off the record."""

    measure: str
    title: str
    of: Callable[[Any], float]


NUMBERS = (
    Number("spectrum", "largest eigenvalue", lambda r: r.largest.value),
    Number("spectrum", "smallest eigenvalue", lambda r: r.smallest.value),
    Number("spectrum", "trace", lambda r: r.trace.value),
    Number("spectrum", "negative mass", lambda r: r.negative_mass.value),
    Number("depth", "mean prediction depth", lambda r: r.mean),
    Number("margins", "mean margin", lambda r: r.mean),
    Number("margins", "5 % of margins below", lambda r: r.quantiles()[0.05]),
    Number("noise", "rise of loss at σ = 0.01", lambda r: float(r.losses[r.sigmas.index(0.01)].mean())),
    Number("flatness", "κ of the head", lambda r: float(list(r.layers.values())[-1].kappa.value)),
    Number("weights", "size at the head", lambda r: r.per_example),
)


@dataclass
class Diagnosis:
    """All that was measured, by measure and subject."""

    subjects: list[Subject]
    quick: bool
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: float = 0.0

    def numbers(self) -> dict[str, dict[str, float]]:
        """Title → subject → value, for everything that is one number."""
        found: dict[str, dict[str, float]] = {}
        for number in NUMBERS:
            records = self.records.get(number.measure, {})
            if records:
                found[number.title] = {name: number.of(record) for name, record in records.items()}
        return found

    def orders(self) -> dict[str, tuple[float, float]]:
        """Title → Spearman's ρ with the test accuracy over three subjects or more, and its p-value.

        Of a metric of which less is better, with what it is worth.
        """
        accuracy = {s.name: s.metric.worth(s.accuracy) for s in self.subjects if s.accuracy is not None}
        found = {}
        for title, values in self.numbers().items():
            names = [name for name in values if name in accuracy and math.isfinite(values[name])]
            if len(names) >= 3 and len({values[n] for n in names}) > 1 and len({accuracy[n] for n in names}) > 1:
                found[title] = spearman([values[n] for n in names], [accuracy[n] for n in names])
        return found

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "subjects": [
                {"name": s.name, "folder": str(s.folder), "method": s.method, f"test_{s.metric.name}": s.accuracy}
                for s in self.subjects
            ],
            "quick": self.quick,
            "seconds": round(self.seconds, 2),
            "measures": {m: {n: r.describe() for n, r in found.items()} for m, found in self.records.items()},
            "failures": self.failures,
            "orders": {title: {"spearman": rho, "p": p} for title, (rho, p) in self.orders().items()},
        }


def diagnose(
    subjects: Sequence[Subject],
    what: Sequence[str] | None = None,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Measure everything that can be measured, or ``what`` is named; what cannot is named with its reason."""
    if what is None:
        classes = all(subject.target.kind == "classes" for subject in subjects)
        what = [name for name in MEASURES if classes or name != "margins"]  # numbers have none
    for name in what:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    began = time.monotonic()
    found = Diagnosis(list(subjects), quick)
    total = len(what) * len(found.subjects)
    for done, (name, subject) in enumerate((name, subject) for name in what for subject in found.subjects):
        if progress is not None:
            progress(f"{name} of {subject.name}", done / total)
        try:
            found.records.setdefault(name, {})[subject.name] = MEASURES[name].work(subject, quick)
        except RequestError as error:
            found.failures.setdefault(name, {})[subject.name] = str(error)
    found.records = {name: records for name, records in found.records.items() if records}
    found.seconds = time.monotonic() - began
    if not found.records:
        reason = next(iter(next(iter(found.failures.values())).values()))
        raise RequestError(f"nothing could be measured: {reason}")
    return found


def spearman(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Spearman's ρ and its two-sided p-value, over all permutations for up to eight pairs.

    scipy's formula gives 0 for any perfect order, of however few pairs.

    >>> spearman([1, 2, 3, 4], [10, 20, 30, 40])  # two of the 24 orders are perfect
    (1.0, 0.08333333333333333)
    """
    rho, p = map(float, spearmanr(first, second))
    if len(first) <= 8:
        one, other = (rankdata(values) - (len(first) + 1) / 2 for values in (first, second))
        orders = np.array(list(itertools.permutations(one))) @ other
        p = float((np.abs(orders) >= abs(one @ other) - 1e-9).mean())
    return round(rho, 12), p
