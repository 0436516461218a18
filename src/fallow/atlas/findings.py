"""What the rows of an atlas say together: verdicts by setting, who beats whom over data sets, which wins when."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fallow.atlas.rows import PRETRAINED, SCRATCH, YARDSTICK, Judgement
from fallow.comparison.race import BASELINE, plain
from fallow.comparison.tree import Tree, grow
from fallow.evaluate.statistics import significance
from fallow.report.words import listed, many, points

LEVEL = 0.05
BEHIND = 0.02  # so much below the control is a loss that a user would mind, shown or not
LEAST = 5  # settings, below which a tree would only repeat the table
PLAINLY = "long"  # ordinary training of equal compute
PROBE = "probe"
SEEN = {  # what a pretrained network is for, and what is judged
    "lite0": "colour pictures, a linear head on ImageNet features",
    "minilm": "texts, a linear head on the features of a network pretrained on English text",
}

Column = tuple[str, int, str]  # data, labels, start


@dataclass(frozen=True)
class Atlas:
    """The rows of all settings; from scratch first, then those that start from a pretrained network."""

    rows: Sequence[Judgement]

    @cached_property
    def settings(self) -> list[Column]:
        """The columns of the matrix."""
        order = list(dict.fromkeys(row.data for row in self.rows))
        raced = {row.setting for row in self.rows if row.verdict != YARDSTICK}
        return sorted(raced, key=lambda of: (of[2] == PRETRAINED, order.index(of[0]), of[1]))

    @cached_property
    def methods(self) -> list[str]:
        """The rows of the matrix: the methods that are judged, the largest mean difference from scratch first."""
        asked = dict.fromkeys(row.method for row in self.rows if row.verdict != YARDSTICK and not plain(row.method))
        return sorted(asked, key=lambda method: -self.gain(method) if self.judged(method) else 0.0)

    @cached_property
    def _at(self) -> dict[tuple[str, Column], Judgement]:
        return {(row.method, row.setting): row for row in self.rows}

    def at(self, method: str, setting: Column) -> Judgement | None:
        """A cell of the matrix; None where the method does not apply."""
        row = self._at.get((method, setting))
        return None if row is None or row.verdict == "failed" else row

    def judged(self, method: str, verdict: str | None = None) -> list[Judgement]:
        """The cells of a method that have a difference, or those with a verdict."""
        here = [row for setting in self.settings if (row := self.at(method, setting)) is not None]
        return [row for row in here if row.difference is not None and verdict in (None, row.verdict)]

    def gain(self, method: str) -> float:
        """The mean difference to the control over data sets from scratch, each counted once; else over all settings."""
        here = self.judged(method)
        own = [row for row in here if row.start == SCRATCH] or here
        return statistics.fmean(_by_data((row.data, row.difference or 0.0) for row in own).values())

    @property
    def family(self) -> list[Judgement]:
        """Verdicts that hold over all settings together, too: Holm within a setting, Bonferroni over settings."""
        every = [row for method in self.methods for row in self.judged(method)]
        allowed = LEVEL / max(1, len(self.settings))
        return [
            row for row in every
            if row.verdict in ("better", "worse") and row.p is not None and row.p <= allowed and not row.exploratory
        ]  # fmt: skip

    def beats(self) -> tuple[list[str], dict[tuple[str, str], str], int]:
        """LW's table 3 from scratch: methods, marks where the column beats the row, and over how many data sets.

        A data set is one observation, the mean over its sizes: two sizes of the same data are not independent.
        """
        scratch = [setting for setting in self.settings if setting[2] == SCRATCH]
        asked = dict.fromkeys(row.method for row in self.rows if row.verdict != YARDSTICK)
        whole = [method for method in asked if all(self._fair(method, setting) is not None for setting in scratch)]
        means = {
            method: list(_by_data((setting[0], self._fair(method, setting) or 0.0) for setting in scratch).values())
            for method in whole
        }
        return whole, significance(means, LEVEL), len({setting[0] for setting in scratch})

    def tree(self) -> Tree | None:
        """LW's figure 2: which method, or control, has the highest accuracy when."""
        if len(self.settings) < LEAST:
            return None
        designs, winners = [], []
        for setting in self.settings:
            here = [
                row for row in self.rows if row.setting == setting and row.verdict not in (YARDSTICK, "failed")
                and row.method != BASELINE and row.mean is not None
            ]  # fmt: skip
            winners.append(max(here, key=lambda row: row.fair or 0.0).method)
            designs.append(_design(here[0]))
        return grow(designs, winners)

    def _fair(self, method: str, setting: Column) -> float | None:
        row = self.at(method, setting)
        return None if row is None else row.fair

    # ---- in words ---------------------------------------------------------------------------------------

    @property
    def sentences(self) -> list[str]:
        """What a practitioner can use: which method to try, what features are worth, what takes seconds."""
        return [text for text in (self._try(), *map(self._features, SEEN), self._yardsticks()) if text]

    def _try(self) -> str:
        ranked = sorted(
            self.methods, key=lambda m: (-len(self.judged(m, "better")), -self.gain(m) if self.judged(m) else 0)
        )
        winners = [method for method in ranked if self.judged(method, "better")][:3]
        where = f"{many(len(self.settings), 'setting')} of {many(len({s[0] for s in self.settings}), 'data set')}"
        if not winners:
            return (
                f"None of {many(len(self.methods), 'method')} is shown to beat ordinary training of equal compute in "
                f"any of {where}: train longer before you try anything else."
            )
        said = [self._record(method) for method in winners]
        most = f"the methods that most often beat ordinary training of equal compute are {listed(said)}"
        return f"In {where}, {most}: try these first."

    def _record(self, method: str) -> str:
        """A method's gains and losses; a race drops losers before they are shown to be worse, so losses go by size."""
        here = self.judged(method)
        behind = sum((row.difference or 0.0) < -BEHIND for row in here)
        scratch = " from scratch" if any(row.start == SCRATCH for row in here) else ""
        return (
            f"{method} (better in {len(self.judged(method, 'better'))} of {len(here)}, more than {100 * BEHIND:.0f} "
            f"points behind in {behind or 'none'}; {points(self.gain(method))} points on average{scratch})"
        )

    def _features(self, model: str) -> str:
        gains, names = [], []
        for setting in self.settings:
            probe = self.at(PROBE, setting)
            own = [row.mean for row in self.rows if row.setting == (*setting[:2], SCRATCH) and row.mean is not None]
            if probe is not None and probe.model == model and probe.mean is not None and own:
                gains.append(probe.mean - max(own))
                names.append(setting[0])
        if not gains:
            return ""
        above = sum(gain > 0 for gain in gains)
        span = points(gains[0]) if len(gains) == 1 else f"{points(min(gains))} to {points(max(gains))}"
        advice = "start there" if 2 * above > len(gains) else "let a comparison decide"
        return (
            f"On {SEEN[model]} gains {span} points over the best network or scikit-learn model without them (above 0 "
            f"in {above} of {many(len(gains), 'setting')}, of {', '.join(dict.fromkeys(names))}): {advice}."
        )

    def _yardsticks(self) -> str:
        beaten, every = [], 0
        for setting in self.settings:
            plainly = self.at(PLAINLY, setting)
            simple = [
                row.mean for row in self.rows
                if row.setting == setting and row.verdict == YARDSTICK and row.mean is not None
            ]  # fmt: skip
            if setting[2] == SCRATCH and simple and plainly is not None and plainly.fair is not None:
                every += 1
                beaten += [setting[0]] if max(simple) >= plainly.fair else []
        if not every:
            return ""
        names = f" (of {', '.join(dict.fromkeys(beaten))})" if beaten else ""
        return (
            f"In {len(beaten)} of {every} settings{names}, one of the scikit-learn models, fitted in seconds, is at "
            "least as good on test as a network with ordinary training: compare every network with them."
        )

    @property
    def guarantee(self) -> str:
        """What the verdicts are worth together."""
        held, number = self.family, len(self.settings)
        names = sorted({row.method for row in held})
        late = sorted({row.method for row in self.rows if row.exploratory})
        trials = sorted({row.tuned for row in self.rows if row.verdict != YARDSTICK})
        fair = {0: "Untuned."}.get(
            trials[-1], f"Every runner, controls included, was tuned by {trials[-1]} trials on validation."
        )
        if len(trials) > 1:
            others = sorted({row.data for row in self.rows if row.tuned < trials[-1]})
            fair = f"{fair[:-1]}, by fewer or none on {listed(others)}."
        return (
            f"{fair} In each of {many(number, 'setting')}, the family-wise error over its methods is at most 5 % "
            "(Holm's correction, valid however often one looks), so up to "
            f"{LEVEL * number:.1f} settings with a false verdict are expected. "
            f"Of {self.count('better') + self.count('worse')} verdicts better or worse, {len(held)} hold "
            f"over all settings together{f' ({listed(names)})' if names else ''}."
            f"{f' Not covered, as added after a look at results: {listed(late)}.' if late else ''}"
        )

    def count(self, verdict: str) -> int:
        """How many cells have a verdict."""
        return sum(len(self.judged(method, verdict)) for method in self.methods)


def _by_data(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Means by data set."""
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in found.items()}


def _design(row: Judgement) -> dict[str, float]:
    """What the tree may ask of a setting."""
    return {
        "training examples": row.labels,
        "classes": row.classes,
        "examples per class": row.labels / row.classes,
        "channels": row.channels,
        "pixels or features": float(row.values),
        "the model is pretrained": float(row.start == PRETRAINED),
    }
