"""A race over seeds: who is decided, who runs on, and which run comes next.

Everything here is a pure function of what was frozen (:class:`Race`) and of the scores so far, so that a race that
was killed replays to the same point. Whatever it drops, orders or peeks at, the chance of any false "better" or
"worse" among the frozen methods is at most ``level``: a run (method, seed) has the same outcome whether it is run or
not, each whole path's sequential p-value is valid, stopping can only miss rejections, and Holm needs no independence.
The same holds for false "no different", by intervals that cover all methods at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fallow.evaluate.race import (
    LOOKS,
    Floats,
    advice,
    chance_better,
    chance_same,
    repeated_interval,
    sequential_p,
)
from fallow.evaluate.statistics import Estimate, holm

FUTILE = 0.05  # the chance of "better" below which a method runs no more
LIKELY = 0.5  # the chance of "no different", within twice its seeds, that keeps it running all the same

Verdict = Literal["better", "worse", "no different", "undecided"]
Scores = Mapping[str, Mapping[int, float]]  # of each runner, by seed (0, 1, …), larger is better; NaN: the run failed


@dataclass(frozen=True)
class Race:
    """What is frozen before the first run."""

    methods: tuple[str, ...]
    controls: tuple[str, ...]
    looks: tuple[int, ...] = LOOKS
    seeds: int = LOOKS[-1]  # the most that may be spent on a method; more may be allowed later, up to the last look
    same: float = 0.0  # differences up to this do not matter, in the score's unit
    overlap: float = 0.0  # test/train size where every seed splits the same pool anew
    grain: float = 0.0  # the step in which a score can move
    level: float = 0.05
    prove_worse: bool = False  # losers run on until they are proved to be worse
    exploratory: tuple[str, ...] = ()  # methods added after the first look, which the guarantee does not cover

    @property
    def entered(self) -> tuple[str, ...]:
        """All methods that race, the frozen ones first."""
        return (*self.methods, *self.exploratory)

    def questions(self, method: str) -> int:
        """How many questions are asked together with this one."""
        return len(self.entered if method in self.exploratory else self.methods)


class Course(NamedTuple):
    """What a method's path says at each look that it reached (the last axis); a function of its own path alone."""

    better: Floats  # sequential p-values of the verdict, the larger over all controls
    worse: Floats
    same: NDArray[np.bool_]  # its intervals lie within what does not matter, now or at an earlier look
    futile: NDArray[np.bool_]  # no verdict is in sight, now or at an earlier look
    prospect: Floats  # the largest chance of a verdict at a later look, per seed until then

    @property
    def p(self) -> Floats:
        """Of a verdict in either direction."""
        return np.minimum(self.better, self.worse)


def progress(race: Race, differences: ArrayLike, questions: int) -> Course:
    """Judge the paths (…, controls, seeds) of differences between a method and every control, one of ``questions``.

    Against several controls a verdict needs all of them: the larger of their p-values in the same direction (an
    intersection-union test), all of their intervals within ± ``same``, and the smallest of their chances.
    """
    d = np.asarray(differences, dtype=np.float64)
    looks, overlap, level = race.looks, race.overlap, race.level / questions

    better, worse = (sequential_p(d, looks, overlap, grain=race.grain, direction=sign).max(-2) for sign in (1, -1))
    found = repeated_interval(d, looks, overlap, grain=race.grain, level=1 - level)
    same = ((found.low > -race.same) & (found.high < race.same)).all(-2)

    rise = chance_better(d, looks, overlap, grain=race.grain, level=level).min(-3)
    fall = chance_better(-d, looks, overlap, grain=race.grain, level=level).min(-3)
    tie = chance_same(d, race.same, looks, overlap, grain=race.grain, level=level).min(-3)
    wanted = np.maximum(rise, fall) if race.prove_worse else rise
    now = np.array(looks)[: wanted.shape[-2], None]
    soon = np.where(np.array(looks) <= 2 * now, tie, 0.0).max(-1)
    futile = (wanted.max(-1) < FUTILE) & (soon < LIKELY) & (now[:, 0] < looks[-1])
    ahead = np.maximum(np.array(looks) - now, 1)
    prospect = ((rise + fall + tie) / ahead).max(-1)
    return Course(better, worse, _ever(same), _ever(futile), prospect)


def _ever(flag: ArrayLike) -> NDArray[np.bool_]:
    """Whether it holds at a look or held at one before."""
    return np.logical_or.accumulate(np.asarray(flag), axis=-1)


@dataclass(frozen=True)
class Standing:
    """Where a method stands in the race."""

    verdict: Verdict
    p: float | None  # sequential and after Holm's correction; None before the first look
    seeds: int  # on which the verdict stands: those at which neither it nor a control failed
    stopped: str  # why it runs no more; "" while it runs
    against: dict[str, Estimate]  # the difference to each control with its repeated 95 % interval
    advice: str  # what would decide it, where it is undecided
    prospect: float  # the chance of a verdict per further seed


def standings(race: Race, scores: Scores) -> dict[str, Standing]:
    """Every method's verdict, and whether it runs on, from the scores so far."""
    paths = {method: differences(race, scores, method) for method in race.entered}
    judged = {method: progress(race, path, race.questions(method)) for method, path in paths.items()}
    p = {method: float(seen.p[-1]) if seen.p.size else 1.0 for method, seen in judged.items()}
    corrected: dict[str, float] = {}
    for family in (race.entered, race.methods):  # what was added later does not disturb what was frozen
        corrected |= dict(zip(family, holm([p[method] for method in family]), strict=True))
    return {
        method: _standing(
            race, method, paths[method], judged[method], corrected[method], _settled(race, scores, method)
        )
        for method in race.entered
    }


def _standing(race: Race, method: str, path: Floats, seen: Course, p: float, settled: int) -> Standing:
    count = path.shape[-1]
    if not seen.p.size:
        failed = count == 0 and settled >= race.looks[0]
        stopped = "failed" if failed else "no more seeds" if settled >= race.seeds else ""
        return Standing("undecided", None, count, stopped, {}, "", 0.0)
    found = repeated_interval(path, race.looks, race.overlap, grain=race.grain)
    ends = (found.mean[:, -1].tolist(), found.low[:, -1].tolist(), found.high[:, -1].tolist())
    against = {control: Estimate(*values) for control, *values in zip(race.controls, *ends, strict=True)}

    verdict: Verdict = "undecided"
    if seen.same[-1]:
        verdict = "no different"
    elif p <= race.level:
        verdict = "better" if seen.better[-1] < seen.worse[-1] else "worse"
    if verdict != "undecided":
        return Standing(verdict, p, count, "decided", against, "", 0.0)
    spent = settled >= race.seeds or len(seen.p) == len(race.looks)
    stopped = "futile" if seen.futile[-1] else "no more seeds" if spent else ""
    level = race.level / race.questions(method)
    more = advice(path, race.looks, race.overlap, grain=race.grain, level=level, same=race.same)
    known = more.sentence
    if stopped == "futile" and more.verdict == "worse" and count + (more.seeds or 0) <= race.seeds:
        known += "; --prove-worse runs them"  # the race does not: nobody would use it
    return Standing(verdict, p, count, stopped, against, known, float(seen.prospect[-1]))


def next_runs(race: Race, scores: Scores, seconds: Mapping[str, float]) -> list[tuple[str, int]]:
    """The runs (runner, seed) that are wanted now, the most urgent first; none: the race is over.

    All runners go to the first look side by side. From there every open method goes to its next look, in the order
    of the chance of a verdict per second (``seconds`` is what a run of each method takes), each seed with the controls
    that it is compared with.
    """
    places = standings(race, scores)
    running = [method for method in race.entered if not places[method].stopped]
    started = [method for method in running if places[method].p is not None]
    started.sort(key=lambda method: -places[method].prospect / seconds[method])

    wanted = [
        (runner, seed)
        for seed in range(min(race.looks[0], race.seeds))
        for runner in (*race.controls, *running)
        if running
    ]
    for method in [*(m for m in running if m not in started), *started]:
        done = places[method].seeds
        missing = next(look for look in race.looks if look > done) - done
        first = _settled(race, scores, method)
        block = range(first, min(first + missing, race.seeds))
        wanted += [(runner, seed) for seed in block for runner in (*race.controls, method)]
    return [(runner, seed) for runner, seed in dict.fromkeys(wanted) if seed not in scores.get(runner, {})]


def _settled(race: Race, scores: Scores, method: str) -> int:
    """How many seeds, from the first without a gap, have ended for the method and every control."""
    ended = [scores.get(runner, {}) for runner in (method, *race.controls)]
    return next((seed for seed in range(race.seeds) if any(seed not in runs for runs in ended)), race.seeds)


def differences(race: Race, scores: Scores, method: str) -> Floats:
    """The differences (controls, seeds) to every control, in the order of the seeds, without those that failed."""
    seeds = range(_settled(race, scores, method))
    d = np.array([[scores[method][s] - scores[control][s] for s in seeds] for control in race.controls])
    return d[:, np.isfinite(d).all(0)]
