"""Races of real trainings in which there is nothing to find: how often is a verdict given all the same?

Half of the comparisons learn labels that were shuffled, by four methods; in the other half the four methods are
``long`` itself under other names, from other initial weights. Tiny networks on parts of digits, as many of each class,
so that no guess is better than another. Every other comparison has a test set of its own (and then labels are shuffled
anew for every seed: of one shuffle, a method may well be better on this very test set), the others carve one for each
seed. Raced to the end with the shipped rules, at most 20 seeds. ``false_verdicts`` is the share with a *better* or a
*worse* (bar: 5 % and two standard errors); *no different* is true here. A hundred take about five minutes of CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fallow import fit
from fallow.comparison.race import ACCURACY, Rules, Runner, rounds
from fallow.data import load
from fallow.data.examples import Data, Examples
from fallow.evaluate.allocation import standings

COMPARISONS = 100
POOL, TEST = 150, 200
METHODS = ("ema", "mixup", "dropout", "sam")
TRAINING: dict[str, Any] = {"generations": 1, "batch_size": 32, "lr": 0.05, "label_smoothing": 0.0, "device": "cpu"}


def examples(number: int) -> tuple[Examples, Examples]:
    """A pool to carve from and a test set, at random, of all classes alike."""
    whole = load("digits", val=0, test=0).train
    assert isinstance(whole, Examples)
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(number))
    places = torch.stack([order[whole.y[order] == digit][: (POOL + TEST) // 10] for digit in range(10)])
    parts = [places[:, : POOL // 10].flatten(), places[:, POOL // 10 :].flatten()]
    pool, test = (Examples(whole.x[part].flatten(1).float() / 16, whole.y[part]) for part in parts)
    return pool, test


def shuffled(held: Examples, seed: int) -> Examples:
    """The same examples with the answers of others."""
    draw = torch.Generator().manual_seed(seed)
    return Examples(held.x, held.y[torch.randperm(len(held), generator=draw)])


def raced(number: int) -> tuple[list[str], int]:
    """The verdicts of one comparison, and the trainings that it took."""
    random, own = number % 2 == 0, number % 4 < 2
    pool, test = examples(number)

    def data(seed: int) -> Data:
        some = shuffled(pool, 1000 * number + (seed if own else 0)) if random else pool
        return load((some, shuffled(test, 1000 * number + seed) if random else test) if own else some, seed=seed)

    def score(runner: str, seed: int) -> float:
        method = runner if random else "long"
        start = seed if random else 1000 * names.index(runner) + seed
        epochs = 3 if method == "sam" else 6  # of two passes a step
        done = fit("mlp:hidden=8", data(seed), method, seed=start, epochs=epochs, test_at_end=True, **TRAINING)
        return float(done.last["test_accuracy"])

    names = ("long", *METHODS)
    return _race(names, data(0), score)


def _race(names: Sequence[str], first: Data, score: Callable[[str, int], float]) -> tuple[list[str], int]:
    rules, entries = Rules(), list[Runner]()
    test = first.describe()["sizes"]["test"]
    while True:
        race = rules.race(names, entries, test, first.overlap, ACCURACY)
        known = rules.scores(entries, ACCURACY)
        now = list(rounds(race, known, dict.fromkeys(names, 1.0), None))[-1]
        wanted = [(name, seed) for name, seed in now if seed not in known.get(name, {})]
        if not wanted:
            return [place.verdict for place in standings(race, known).values()], len(entries)
        entries += [Runner("d", "m", name, seed, "", None, score(name, seed)) for name, seed in wanted]


def measure(repetitions: int | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    count = repetitions or COMPARISONS
    found = [raced(number) for number in range(count)]
    false = [any(verdict in ("better", "worse") for verdict in verdicts) for verdicts, _ in found]
    kinds = {"shuffled labels": slice(0, None, 2), "long under four names": slice(1, None, 2)}
    share = float(np.mean(false))
    every = [verdict for verdicts, _ in found for verdict in verdicts]
    return {
        "ratios": {"false_verdicts": share, "error": math.sqrt(max(share * (1 - share), 0.05 * 0.95) / count)},
        "counts": {name: f"{sum(false[part])} of {len(false[part])} with a verdict" for name, part in kinds.items()}
        | {"methods": {verdict: every.count(verdict) for verdict in sorted(set(every))}}
        | {"trainings": sum(runs for _, runs in found)},
    }
