"""The race's policy: who is decided, who runs on, which run comes next; pure, so that a killed race replays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fallow.evaluate.allocation import Race, Scores, next_runs, progress, standings
from fallow.evaluate.race import LOOKS, repeated_interval, sequential_p

RACE = Race(methods=("good", "bad", "same"), controls=("long", "restart"), same=0.5)
SECONDS = {"good": 2.0, "bad": 1.0, "same": 1.0, "late": 1.0}
LEVELS = {"good": 2.0, "bad": -2.0, "same": 0.0, "long": 0.0, "restart": 0.0, "late": 2.0}


def outcomes(seed: int, spread: float = 0.7) -> dict[str, list[float]]:
    """Every run's score, whether it will be run or not."""
    draw = np.random.default_rng(seed)
    return {name: (level + spread * draw.standard_normal(20)).tolist() for name, level in LEVELS.items()}


def run(race: Race, all_of_them: dict[str, list[float]], scores: dict[str, dict[int, float]]) -> list[tuple[str, int]]:
    """Race on from these scores, one run at a time; what was run, in order."""
    done = []
    while wanted := next_runs(race, scores, SECONDS):
        runner, seed = wanted[0]
        assert seed not in scores.get(runner, {})
        scores.setdefault(runner, {})[seed] = all_of_them[runner][seed]
        done.append((runner, seed))
    return done


def scored(all_of_them: dict[str, list[float]], runs: list[tuple[str, int]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for runner, seed in runs:
        found.setdefault(runner, {})[seed] = all_of_them[runner][seed]
    return found


def test_all_go_to_the_first_look_side_by_side() -> None:
    runners = ("long", "restart", "good", "bad", "same")
    assert next_runs(RACE, {}, SECONDS) == [(runner, seed) for seed in range(4) for runner in runners]
    assert next_runs(replace(RACE, seeds=2), {}, SECONDS) == [(r, seed) for seed in range(2) for r in runners]


def test_against_two_controls_the_larger_p_in_the_same_direction_counts() -> None:
    d = np.random.default_rng(1).normal([[1.0], [2.0]], 1.0, (2, 20))
    seen = progress(RACE, d, 3)
    up, down = sequential_p(d, direction=1), sequential_p(d, direction=-1)
    assert seen.better == pytest.approx(np.maximum(up[0], up[1]))
    assert seen.worse == pytest.approx(np.maximum(down[0], down[1]))
    between = progress(RACE, d * [[1.0], [-1.0]], 3)
    assert between.p.min() > 0.5  # far above one and far below the other: no verdict
    alone = progress(RACE, d[:1], 3)
    assert alone.p == pytest.approx(sequential_p(d[0]))


def test_the_four_verdicts() -> None:
    draw = np.random.default_rng(2)
    tiny = {name: (0.05 * draw.standard_normal(20)).tolist() for name in LEVELS}
    shifted = {name: [x + LEVELS[name] for x in values] for name, values in tiny.items()}
    scores: dict[str, dict[int, float]] = {}
    run(RACE, shifted, scores)
    places = standings(RACE, scores)
    assert {name: place.verdict for name, place in places.items()} == {
        "good": "better",
        "bad": "worse",
        "same": "no different",
    }
    assert {place.stopped for place in places.values()} == {"decided"}
    assert all(place.seeds <= 6 and place.p is not None for place in places.values())
    for control in RACE.controls:
        d = [scores["good"][s] - scores[control][s] for s in range(places["good"].seeds)]
        found = repeated_interval(d)
        assert places["good"].against[control] == (found.mean[-1], found.low[-1], found.high[-1])


def test_losers_are_dropped_unless_they_are_to_be_proved_worse() -> None:
    everything = outcomes(3)
    scores: dict[str, dict[int, float]] = {}
    run(RACE, everything, scores)
    places = standings(RACE, scores)
    assert places["good"].verdict == "better"
    assert (places["bad"].verdict, places["bad"].stopped) == ("undecided", "futile")
    assert len(scores["bad"]) < len(scores["good"])
    assert places["bad"].advice.endswith(" would decide this, likely as worse; --prove-worse runs them")
    proving = replace(RACE, prove_worse=True)
    run(proving, everything, scores)
    assert standings(proving, scores)["bad"].verdict == "worse"
    assert len(scores["long"]) == len(scores["restart"]) == max(len(scores[m]) for m in RACE.methods)


def test_the_next_seed_goes_where_a_verdict_per_second_is_likeliest() -> None:
    race = Race(methods=("near", "far"), controls=("long",))
    draw = np.random.default_rng(4)
    noise = draw.standard_normal((3, 4)) * 0.7
    levels = {"near": 2.5, "far": 0.6, "long": 0.0}
    scores = {name: dict(enumerate(levels[name] + row)) for name, row in zip(levels, noise, strict=True)}
    places = standings(race, scores)
    assert places["near"].prospect > places["far"].prospect > 0
    assert next_runs(race, scores, {"near": 1.0, "far": 1.0}) == [("long", 4), ("near", 4), ("far", 4)]
    ratio = places["near"].prospect / places["far"].prospect
    slow = next_runs(race, scores, {"near": 1.1 * ratio, "far": 1.0})
    assert slow == [("long", 4), ("far", 4), ("near", 4)]


@pytest.mark.parametrize("seed", [5, 6])
def test_a_race_killed_anywhere_replays_to_the_same_end(seed: int) -> None:
    everything = outcomes(seed)
    whole = run(RACE, everything, {})
    assert len(whole) == len(set(whole))
    for cut in range(0, len(whole), 8):
        scores = scored(everything, whole[:cut][::-1])  # the order in which they are remembered does not matter
        assert run(RACE, everything, scores) == whole[cut:]


def test_several_workers_come_to_the_same_verdicts() -> None:
    everything, draw = outcomes(7), np.random.default_rng(8)
    alone: dict[str, dict[int, float]] = {}
    run(RACE, everything, alone)
    scores: dict[str, dict[int, float]] = {}
    while wanted := next_runs(RACE, scores, SECONDS):
        runner, seed = wanted[draw.integers(min(4, len(wanted)))]  # whichever of four ends first
        scores.setdefault(runner, {})[seed] = everything[runner][seed]
    verdicts = [{name: place.verdict for name, place in standings(RACE, s).items()} for s in (alone, scores)]
    assert verdicts[0] == verdicts[1]


def test_seeds_are_used_in_order_and_only_at_looks() -> None:
    everything = outcomes(9)
    four = scored(everything, [(runner, seed) for seed in range(4) for runner in LEVELS])
    gap = {runner: values | {6: everything[runner][6]} for runner, values in four.items()}
    assert standings(RACE, gap) == standings(RACE, four)
    six = scored(everything, [(runner, seed) for seed in range(6) for runner in LEVELS])
    seven = scored(everything, [(runner, seed) for seed in range(7) for runner in LEVELS])
    for name, place in standings(RACE, six).items():
        assert replace(standings(RACE, seven)[name], seeds=6) == place


def test_more_seeds_may_be_allowed_later() -> None:
    everything = outcomes(10, spread=1.5)
    at_once: dict[str, dict[int, float]] = {}
    run(RACE, everything, at_once)
    bit_by_bit: dict[str, dict[int, float]] = {}
    for seeds in (3, 5, 10, 20):
        race = replace(RACE, seeds=seeds)
        run(race, everything, bit_by_bit)
        assert max(len(runs) for runs in bit_by_bit.values()) <= seeds
        assert all(place.stopped for place in standings(race, bit_by_bit).values())
    assert standings(RACE, bit_by_bit) == standings(RACE, at_once)


def test_runs_that_fail() -> None:
    everything = outcomes(11)
    everything["good"][1] = math.nan
    everything["bad"] = [math.nan] * 20
    scores: dict[str, dict[int, float]] = {}
    run(RACE, everything, scores)
    places = standings(RACE, scores)
    assert places["good"].verdict == "better"
    assert places["good"].seeds == len(scores["good"]) - 1
    assert places["good"].seeds in LOOKS
    assert (places["bad"].verdict, places["bad"].stopped, places["bad"].p) == ("undecided", "failed", None)
    assert len(scores["bad"]) == 4
    everything["long"] = [math.nan] * 20
    broken: dict[str, dict[int, float]] = {}
    assert len(run(RACE, everything, broken)) == 4 * 5  # nothing to compare with
    assert {place.stopped for place in standings(RACE, broken).values()} == {"failed"}


def test_what_is_added_later_does_not_disturb_what_was_frozen() -> None:
    everything = outcomes(12)
    scores: dict[str, dict[int, float]] = {}
    run(RACE, everything, scores)
    frozen = standings(RACE, scores)
    added = replace(RACE, exploratory=("late",))
    run(added, everything, scores)
    places = standings(added, scores)
    assert {name: places[name] for name in RACE.methods} == frozen
    assert places["late"].verdict == "better"


def test_a_path_is_judged_alike_alone_and_among_many() -> None:
    paths = np.random.default_rng(13).normal(0.5, 1.0, (5, 3, 2, 20))
    many = progress(RACE, paths, 3)
    one = progress(RACE, paths[4, 1], 3)
    for found, wanted in zip(many, one, strict=True):
        assert found[4, 1] == pytest.approx(wanted)


def test_holm_and_the_frozen_number_of_questions() -> None:
    everything = outcomes(14)
    scores: Scores = scored(everything, [(runner, seed) for seed in range(4) for runner in LEVELS])
    places = standings(RACE, scores)
    smallest = min(RACE.methods, key=lambda name: places[name].p or 1.0)
    d = np.array([[scores[smallest][s] - scores[c][s] for s in range(4)] for c in RACE.controls])
    assert places[smallest].p == pytest.approx(min(1.0, 3 * progress(RACE, d, 3).p[0]))
