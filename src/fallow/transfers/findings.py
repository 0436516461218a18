"""What came out: a mean with its interval for every row, and paired differences to the row they are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from fallow.evaluate.statistics import Difference, Estimate, holm, interval, paired, share
from fallow.report.shown import ACCURACY, Shown
from fallow.transfers.asked import Asked
from fallow.transfers.backbones import Backbone

CONTROLS = ("long", "normal")  # what a method is held against, where it is there
LEVEL = 0.05


@dataclass(frozen=True)
class TransferColumn:
    """One question: of which data, in which layer, with how many shots."""

    data: str
    layer: str
    shots: int | None

    def __str__(self) -> str:
        shots = "" if self.shots is None else f", {self.shots}-shot"
        return f"{self.data}{shots}"


@dataclass(frozen=True)
class Answer:
    """A row's answer: the mean over networks and examples or episodes, and its difference to the reference."""

    row: str
    column: TransferColumn
    networks: int
    means: dict[str, float]  # of every network, by its seed
    estimate: Estimate
    over: str  # what the interval is over: seeds, episodes or test examples
    difference: Difference | None = None
    corrected: float | None = None  # Holm's p over the rows, and over the blocks where there are several
    best_on_test: float | None = None  # the optimist's figure: the setting that is best on the test examples

    @property
    def verdict(self) -> str:
        """Better or worse than the reference, or undecided."""
        if self.difference is None or self.corrected is None:
            return ""
        return "undecided" if self.corrected > LEVEL else "better" if self.difference.mean > 0 else "worse"


@dataclass
class TransferFindings:
    """The table: entries by row and column, in the order of both."""

    asked: Asked
    reference: str | None
    entries: list[Answer] = field(default_factory=list)
    shown: Shown = ACCURACY  # what the values are, for people

    @property
    def rows(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(entry.row for entry in self.entries))

    @property
    def columns(self) -> list[TransferColumn]:
        """The questions."""
        return list(dict.fromkeys(entry.column for entry in self.entries))

    def of(self, column: TransferColumn) -> list[Answer]:
        """A column's entries, the best first."""
        found = [entry for entry in self.entries if entry.column == column]
        return sorted(found, key=lambda entry: -entry.estimate.mean)

    def describe(self) -> list[dict[str, Any]]:
        """As plain values."""
        return [
            {
                **asdict(entry.column), "row": entry.row, "networks": entry.networks, "means": entry.means,
                **entry.estimate._asdict(), "over": entry.over, "verdict": entry.verdict, "p_holm": entry.corrected,
                "difference": None if entry.difference is None else entry.difference._asdict(),
                "best_on_test": entry.best_on_test,
            }
            for entry in self.entries
        ]  # fmt: skip


Found = Mapping[tuple[Backbone, str], Sequence[Mapping[str, Any]]]  # by network and data set: what `work.measure` gives


def find(asked: Asked, found: Found, shown: Shown = ACCURACY) -> TransferFindings:
    """The table of what was measured, by the metric that is ``shown``.

    Where two rows share two seeds or more, they are paired by these: the question is whether the method would transfer
    better if it were trained again (after a race, the control has more seeds than most). Otherwise the same episodes or
    test examples make the pairs, and the question is about these very networks.
    """
    values: dict[TransferColumn, dict[str, dict[Backbone, Mapping[str, Any]]]] = {}
    for (backbone, data), measured in found.items():
        for each in measured:
            layer = each["layer"] if asked.layers != () else ""
            column = TransferColumn(data, layer, each["shots"])
            values.setdefault(column, {}).setdefault(backbone.label, {})[backbone] = each
    rows = list(dict.fromkeys(backbone.label for backbone, _ in found))
    reference = _reference([backbone for backbone, _ in found]) if len(rows) > 1 else None
    findings = TransferFindings(asked, reference, shown=shown)
    for data, shots in dict.fromkeys((column.data, column.shots) for column in values):
        entries = [  # of all blocks: the one that serves best is found on test
            _entry(asked, row, column, by_row[row], by_row.get(reference or ""))
            for column, by_row in values.items()
            for row in rows
            if row in by_row and (column.data, column.shots) == (data, shots)
        ]
        corrected = iter(holm([entry.difference.p for entry in entries if entry.difference is not None]))
        findings.entries += [
            entry if entry.difference is None else replace(entry, corrected=next(corrected)) for entry in entries
        ]
    return findings


def _entry(
    asked: Asked,
    row: str,
    column: TransferColumn,
    ours: dict[Backbone, Mapping[str, Any]],
    theirs: dict[Backbone, Mapping[str, Any]] | None,
) -> Answer:
    units = "episodes" if asked.shots else "test examples"
    seeds, difference = _by_seed(ours), None
    mean = _mean(ours)
    if theirs is not None and row != next(iter(theirs)).label:
        others = _by_seed(theirs)
        shared = [seed for seed in seeds if seed in others]
        if len(shared) > 1:
            difference = paired([seeds[s] for s in shared], [others[s] for s in shared], grain=_grain(ours))
        else:
            difference = paired(mean, _mean(theirs))
    over = "seeds" if len(seeds) > 1 else units
    if len(seeds) > 1:
        estimate = interval(list(seeds.values()), grain=_grain(ours))
    else:
        estimate = share(mean) if set(mean) <= {0.0, 1.0} else interval(mean)
    best = [each["best_on_test"] for each in ours.values() if "best_on_test" in each]
    return Answer(
        row, column, len(ours), {str(seed): value for seed, value in seeds.items()}, estimate, over, difference,
        best_on_test=fmean(best) if best else None,
    )  # fmt: skip


def _grain(row: dict[Backbone, Mapping[str, Any]]) -> float:
    """The step in which an accuracy over test examples can move: seeds that happen to agree are known no better."""
    values = next(iter(row.values()))["values"]
    return 1 / len(values) if set(values) <= {0.0, 1.0} else 0.0


def _by_seed(row: dict[Backbone, Mapping[str, Any]]) -> dict[int | None, float]:
    """The mean of every network; of two with one seed, theirs."""
    found: dict[int | None, list[float]] = {}
    for backbone, each in row.items():
        found.setdefault(backbone.seed, []).append(fmean(each["values"]))
    return {seed: fmean(found[seed]) for seed in sorted(found, key=lambda seed: seed or 0)}


def _mean(row: dict[Backbone, Mapping[str, Any]]) -> list[float]:
    """Of every episode or example, over the networks."""
    return [fmean(each) for each in zip(*(each["values"] for each in row.values()), strict=True)]


def _reference(backbones: Sequence[Backbone]) -> str:
    """The row of long training, which is as expensive as the methods, or of ordinary training; else the first."""
    for control in CONTROLS:
        for backbone in backbones:
            if backbone.method == control:
                return backbone.label
    return backbones[0].label
