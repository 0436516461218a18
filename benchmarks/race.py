"""The race as it ships, simulated: false verdicts, power, method runs, and coverage at the stopping time.

Ten methods race against two controls with ``fallow.evaluate.allocation``: every look is taken, decided and hopeless
methods are dropped, the next seed goes where a verdict per second is likeliest, and the user allows 5, then 10, then
20 seeds. Beside it stands the rule for one look, asked again at every look. A difference has standard deviation 1.
A few comparisons are also played by ``next_runs`` itself, run by run, to the same verdicts and the same runs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from fallow.evaluate.allocation import Race, next_runs, progress, standings
from fallow.evaluate.race import LOOKS, repeated_interval

COMPARISONS = 4_000
METHODS, CONTROLS = 10, 2
OVERLAP = 0.25
NOISES = ("normal", "heavy", "carved", "rounded")
MIXED = np.array([1.0] * 2 + [-1.0] * 3 + [0.0] * 5)
RACE = Race(tuple(f"m{i}" for i in range(METHODS)), tuple(f"c{i}" for i in range(CONTROLS)))
VERDICTS = ("undecided", "better", "worse", "no different")


class World(NamedTuple):
    """The truth: each method's level, the controls', and the differences that do not matter."""

    methods: np.ndarray
    controls: np.ndarray
    same: float

    @property
    def effect(self) -> np.ndarray:
        """(methods, controls)"""
        return self.methods[:, None] - self.controls


def worlds(controls: int = CONTROLS) -> dict[str, World]:
    none = np.zeros(METHODS)
    even = np.zeros(controls)
    return {
        "no effect": World(none, even, 4.0),
        "one weak control": World(none, np.array([0.0] + [-3.0] * (controls - 1)), 1.0),
        "2 better, 3 worse": World(MIXED, even, 0.5),
        "just too far apart": World(none + 1.0, even, 1.0),  # the least favourable for "no different"
    }


def scores(noise: str, world: World, count: int, draw: np.random.Generator) -> np.ndarray:
    """Every run's outcome (comparisons, methods and controls, seeds), whether it will be run or not."""
    shape = (count, len(world.methods) + len(world.controls), LOOKS[-1])
    found = draw.standard_t(3, shape) / math.sqrt(3) if noise == "heavy" else draw.standard_normal(shape)
    if noise == "carved":  # the test sets of all seeds come from one pool: what it favours, it favours every time
        found += math.sqrt(OVERLAP) * draw.standard_normal((*shape[:-1], 1))
    found = found / math.sqrt(2) + np.concatenate([world.methods, world.controls])[:, None]
    return np.round(found) if noise == "rounded" else found


def race_in(noise: str, world: World, **settings: Any) -> Race:
    return replace(
        RACE,
        controls=RACE.controls[: len(world.controls)],
        same=world.same,
        overlap=OVERLAP if noise == "carved" else 0.0,
        grain=1.0 if noise == "rounded" else 0.0,
        **settings,
    )


class Played(NamedTuple):
    """How races ended, by (comparison, method)."""

    verdict: np.ndarray  # an index into VERDICTS
    look: np.ndarray  # an index into the looks

    @property
    def runs(self) -> np.ndarray:
        """Of all methods of a comparison; those of controls are not counted."""
        return np.asarray(LOOKS)[self.look].sum(1)


def differences(found: np.ndarray, methods: int) -> np.ndarray:
    """(comparisons, methods, controls, seeds)"""
    return found[:, :methods, None] - found[:, None, methods:]


def play(race: Race, found: np.ndarray, seconds: np.ndarray, budget: int = 200, in_turn: bool = False) -> Played:
    """Play many races at once, one method to its next look at a time: ``next_runs`` with one worker."""
    questions = len(race.methods)
    seen = progress(race, differences(found, questions), questions)
    look = np.zeros((len(found), questions), int)
    rows = np.arange(len(look))
    for allowed in (5, 10, 20):
        last = max(i for i, k in enumerate(LOOKS) if k <= allowed)
        while True:
            verdict = _verdicts(race, seen, look)
            running = (verdict == 0) & ~_at(seen.futile, look) & (look < last)
            running &= (np.asarray(LOOKS)[look].sum(1) < budget)[:, None]
            if not running.any():
                break
            worth = -look if in_turn else _at(seen.prospect, look) / seconds
            next_one = np.where(running, worth, -np.inf).argmax(1)
            look[rows, next_one] += running[rows, next_one]
    return Played(verdict, look)


def _verdicts(race: Race, seen: Any, look: np.ndarray) -> np.ndarray:
    better, worse = _at(seen.better, look), _at(seen.worse, look)
    rejected = _holm(np.minimum(better, worse)) <= race.level
    verdict = np.where(rejected, np.where(better < worse, 1, 2), 0)
    return np.where(_at(seen.same, look), 3, verdict)


def _at(values: np.ndarray, look: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, look[..., None], -1)[..., 0]


def _holm(p: np.ndarray) -> np.ndarray:
    order = np.argsort(p, 1)
    steps = np.take_along_axis(p, order, 1) * np.arange(p.shape[1], 0, -1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, 1), 1)
    return adjusted


def false_verdicts(world: World, verdict: np.ndarray) -> np.ndarray:
    """Which verdicts (comparisons, methods) are wrong."""
    effect = world.effect
    wrong = np.stack([
        np.zeros(len(effect), bool), (effect <= 0).any(1), (effect >= 0).any(1), (abs(effect) >= world.same).any(1)
    ])  # fmt: skip
    return np.asarray(wrong[verdict, np.arange(len(effect))])


def one_look_each_time(race: Race, found: np.ndarray) -> np.ndarray:
    """Verdicts of the test made for one look, asked at every look until it finds something; the better control."""
    d = differences(found, len(race.methods))[:, :, 0]
    verdict = np.zeros(d.shape[:2], int)
    for k in LOOKS:
        spread = np.maximum(d[..., :k].std(-1, ddof=1), race.grain / math.sqrt(6))
        mean = d[..., :k].mean(-1)
        rejected = _holm(2 * stdtr(k - 1, -abs(mean) / (spread * math.sqrt(1 / k + race.overlap)))) <= race.level
        verdict = np.where((verdict == 0) & rejected, np.where(mean > 0, 1, 2), verdict)
    return verdict


def covered(race: Race, world: World, found: np.ndarray, played: Played) -> float:
    """How often a 95 % repeated interval holds the truth at the look at which its method stopped."""
    d = differences(found, len(race.methods))
    interval = repeated_interval(d, race.looks, race.overlap, grain=race.grain)
    held = (interval.low <= world.effect[..., None]) & (world.effect[..., None] <= interval.high)
    return float(_at(held, np.repeat(played.look[..., None], d.shape[2], -1)).mean())


def shown(race: Race, found: np.ndarray, played: Played, which: slice) -> float:
    """The mean gain on the first control of methods that are called better, as it stood where each stopped."""
    d = differences(found, len(race.methods))[:, :, 0]
    means = np.stack([d[..., :k].mean(-1) for k in LOOKS], -1)
    return float(_at(means, played.look)[:, which][played.verdict[:, which] == 1].mean())


def same_by_next_runs(race: Race, found: np.ndarray, seconds: np.ndarray, played: Played) -> bool:
    """Play one comparison run by run with the shipped policy: the same verdicts, the same runs?"""
    runners = (*race.methods, *race.controls)
    scored: dict[str, dict[int, float]] = {runner: {} for runner in runners}
    times = dict(zip(runners, [*seconds, *[1.0] * len(race.controls)], strict=True))
    for allowed in (5, 10, 20):
        now = replace(race, seeds=allowed)
        while wanted := next_runs(now, scored, times):
            runner, seed = wanted[0]
            scored[runner][seed] = float(found[runners.index(runner), seed])
    places = standings(race, scored)
    verdict = [VERDICTS.index(places[method].verdict) for method in race.methods]
    seeds = [len(scored[method]) for method in race.methods]
    return verdict == played.verdict[0].tolist() and seeds == [LOOKS[i] for i in played.look[0]]


def measure(repetitions: int | None) -> dict[str, Any]:
    count = COMPARISONS * (repetitions or 1)
    draw = np.random.default_rng(20)
    rows, replayed = [], 0
    for noise in NOISES:
        for name, world in worlds().items():
            race, found = race_in(noise, world), scores(noise, world, count, draw)
            seconds = draw.uniform(0.5, 2.0, METHODS)
            played = play(race, found, seconds)
            wrong = false_verdicts(world, played.verdict).any(1).mean()
            rows.append({
                "noise": noise,
                "world": name,
                "false": float(wrong),
                "error": math.sqrt(wrong * (1 - wrong) / count),
                "one_look_each_time": float(false_verdicts(world, one_look_each_time(race, found)).any(1).mean()),
                "coverage": covered(race, world, found, played),
                "no_different": float((played.verdict == 3).mean()),
                "runs": float(played.runs.mean()),
            })  # fmt: skip
            replayed += same_by_next_runs(race, found[0], seconds, Played(played.verdict[:1], played.look[:1]))
    power = []
    for controls in (1, 2):
        for size in (0.5, 1.0, 1.5):
            world = World(MIXED * size, np.zeros(controls), 0.5)
            race, found = race_in("normal", world), scores("normal", world, count, draw)
            for what, settings in {
                "race": {},
                "race of 60 runs": {"budget": 60},
                "60 runs, each method in turn": {"budget": 60, "in_turn": True},
            }.items():
                played = play(race, found, np.ones(METHODS), **settings)
                hits = (played.verdict[:, :2] == 1).mean(1)
                power.append({
                    "what": what,
                    "controls": controls,
                    "sd": size,
                    "power": float(hits.mean()),
                    "error": float(hits.std() / math.sqrt(count)),
                    "shown": shown(race, found, played, slice(2)),
                    "runs": float(played.runs.mean()),
                    "coverage": covered(race, world, found, played),
                })  # fmt: skip
    return _summary(rows, power, replayed)


def _summary(rows: list[dict[str, Any]], power: list[dict[str, Any]], replayed: int) -> dict[str, Any]:
    whole = {
        row["sd"]: row for row in power if row["what"] == "race" and row["controls"] == CONTROLS and row["sd"] >= 1
    }
    counts = {
        f"{row['noise']}, {row['world']}": f"false verdict {row['false']:.2%} ± {row['error']:.2%} (one look each time "
        f"{row['one_look_each_time']:.1%}), coverage {row['coverage']:.1%}, {row['no_different']:.0%} no different, "
        f"{row['runs']:.0f} runs"
        for row in rows
    } | {
        f"{row['what']}, {row['sd']} sd, {row['controls']} control(s)": f"power {row['power']:.3f} ± "
        f"{row['error']:.3f}, shown as {row['shown']:.2f} sd when found, {row['runs']:.0f} runs, "
        f"coverage {row['coverage']:.1%}"
        for row in power
    }
    return {
        "ratios": {
            "false_verdict": max(row["false"] for row in rows),  # bar: 0.05 + 2 standard errors
            "power_1sd": whole[1.0]["power"],  # bar: 0.75
            "power_1.5sd": whole[1.5]["power"],  # bar: 0.98
            "method_runs": max(row["runs"] for row in whole.values()),  # bar: 100
            "coverage": min(row["coverage"] for row in rows + list(whole.values())),  # bar: 0.95
            "replayed": replayed / len(rows),  # bar: 1
        },
        "counts": counts,
        "rows": rows,
        "power": power,
    }
