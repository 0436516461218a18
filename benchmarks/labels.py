"""The forecast of what twice the labels would bring, against what they do bring.

On each data set a learner is trained on 25, 50, 75 and 100 % of 1,000 labels (fewer where there are fewer), nested,
five seeds; ``fallow.evaluate.labels`` forecasts the error at twice the labels with its 90 % interval, and then they are
used. ``FALLOW_DATA=FOLDER`` names a folder of .npz files with x_train, y_train, x_test, y_test, of which all small
enough are used, besides digits; without it, data are generated. The rival goes on with the slope of the last two
sizes in log n.
"""

from __future__ import annotations

import math
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fallow.evaluate.labels import curve

LABELS, TESTED, SEEDS = 1_000, 3_000, 5
PARTS = ("x_train", "y_train", "x_test", "y_test")
LARGEST = 4096  # values of an example
SHARES = (0.25, 0.5, 0.75, 1.0, 2.0)
LEARNERS = {
    "trees": lambda seed: ExtraTreesClassifier(100, random_state=seed),
    "logistic": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=200)),
}


def sources() -> dict[str, tuple[np.ndarray, ...]]:
    """X and y to learn from, x and y to test on, by name."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    found = {"digits": (x[:1200], y[:1200], x[1200:], y[1200:])}
    if folder := os.environ.get("FALLOW_DATA"):
        for path in sorted(Path(folder).glob("*.npz")):
            with np.load(path) as held:
                if set(PARTS) <= set(held) and math.prod(held["x_train"].shape[1:]) <= LARGEST:
                    found[path.stem] = tuple(held[name] for name in PARTS)
        return found
    for i, (noise, clusters) in enumerate(((0.0, 1), (0.0, 3), (0.1, 1), (0.1, 3), (0.2, 2))):
        x, y = make_classification(
            5000, 40, n_informative=12, n_classes=4, n_clusters_per_class=clusters, flip_y=noise, random_state=i
        )
        found[f"generated {i}"] = (x[:2500], y[:2500], x[2500:], y[2500:])
    return found


def errors(parts: tuple[np.ndarray, ...], learner: str) -> tuple[list[int], np.ndarray]:
    """The sizes, and the errors (sizes, seeds) on test; the sets of a seed are nested."""
    x, y, x_test, y_test = (part.reshape(len(part), -1) if part.ndim > 1 else part for part in parts)
    sizes = [round(share * min(LABELS, len(x) // 2)) for share in SHARES]
    found = np.empty((len(sizes), SEEDS))
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        order, tested = draw.permutation(len(x)), np.random.default_rng(0).permutation(len(x_test))[:TESTED]
        for i, size in enumerate(sizes):
            model = LEARNERS[learner](seed).fit(x[order[:size]], y[order[:size]])
            found[i, seed] = 1 - model.score(x_test[tested], y_test[tested])
    return sizes, found


def measure(repetitions: int | None) -> dict[str, Any]:
    ratios, counts = {}, {}
    for learner in LEARNERS:
        covered, ours, theirs = [], [], []
        for name, parts in sources().items():
            sizes, found = errors(parts, learner)
            said, truth = curve(sizes[:-1], found[:-1]).at(sizes[-1]), float(found[-1].mean())
            before, last = found[2].mean(), found[3].mean()
            line = last + (last - before) * math.log(sizes[4] / sizes[3]) / math.log(sizes[3] / sizes[2])
            assert said.low is not None
            assert said.high is not None
            covered.append(said.low <= truth <= said.high)
            ours.append(abs(said.mean - truth))
            theirs.append(abs(line - truth))
            counts[f"{name}, {learner}"] = (
                f"{found[0].mean():.1%} at {sizes[0]}, {last:.1%} at {sizes[3]}; at {sizes[4]} {said.mean:.1%} "
                f"({said.low:.1%} to {said.high:.1%}) was said, by the last slope {line:.1%}; it is {truth:.1%}"
            )
        ratios[f"{learner}_covered"] = sum(covered) / len(covered)  # bar: 5 of 6
        ratios[f"{learner}_error"] = 100 * statistics.median(ours)  # in points; bar: below that of the last slope
        ratios[f"{learner}_last_slope"] = 100 * statistics.median(theirs)
    return {"ratios": ratios, "counts": counts}
