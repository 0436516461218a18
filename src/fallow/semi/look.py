"""The images that a confidence network trusts most, middling and least, class by class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fallow.data import FOREIGN, UNKNOWN, Data
from fallow.report.pictures import Picture, picture
from fallow.semi.training import Trained

CLASSES = 20  # more would make a long page


class Pick(NamedTuple):
    """An image and its weight."""

    picture: Picture
    weight: float


class LookedRow(NamedTuple):
    """Highest, median and lowest of a class, and how many of its images there are."""

    name: str
    images: int
    picks: list[Pick]


def origins(data: Data, outcome: Trained) -> np.ndarray:
    """The class of every unlabelled image: the known one, or the one that the model sees; `FOREIGN` stays."""
    assert data.unlabelled is not None
    known = data.unlabelled.y.numpy()
    assert outcome.predicted is not None
    return np.where(known == UNKNOWN, outcome.predicted, known)


def picked(data: Data, outcome: Trained) -> list[LookedRow]:
    """A row for each class, and one for foreign images if there are some (thesis, figure 5.2)."""
    assert data.unlabelled is not None
    assert outcome.weights is not None
    of, weights = origins(data, outcome), outcome.weights
    named = [*enumerate(data.classes[:CLASSES]), (FOREIGN, "foreign images")]
    rows = []
    for number, name in named:
        places = np.flatnonzero(of == number)
        if len(places):
            order = places[np.argsort(-weights[places], kind="stable")]
            rows.append(LookedRow(name, len(order), [_pick(data, weights, i) for i in _three(order)]))
    return rows


def _three(order: np.ndarray) -> list[int]:
    return [int(order[0]), int(order[len(order) // 2]), int(order[-1])]


def _pick(data: Data, weights: np.ndarray, place: int) -> Pick:
    assert data.unlabelled is not None
    image = data.unlabelled.x[torch.tensor(place)].numpy()
    drawn = picture(image)
    assert drawn is not None
    return Pick(drawn, float(weights[place]))
