"""One network on one data set, in whatever process it is: its features, and what can be learned from them."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fallow.data import Data, Examples, Files, load
from fallow.evaluate.affine import learn_affine
from fallow.evaluate.heads import columns
from fallow.evaluate.learners import learn
from fallow.evaluate.neighbours import neighbours, vote
from fallow.evaluate.probe import Part, judged, linear_probe, seal_probe
from fallow.evaluate.sampling import DrawnEpisodes, episodes
from fallow.experiment import device, heed
from fallow.models.frozen import LAST, Frozen, frozen_features
from fallow.transfers.asked import NEIGHBOURS, Asked
from fallow.transfers.backbones import Backbone, frozen

FEATURES = "features"  # the folder in the experiment's where they are kept


def measure(
    folder: Path, *, network: dict[str, Any], asked: dict[str, Any], load: dict[str, Any], content: str,
    where: str, data: str,
) -> list[dict[str, Any]]:  # fmt: skip
    """What every layer that is asked for is worth: ``values`` are those of test examples, or episodes' accuracies.

    Of a test example it is 1 or 0, for right or wrong; of one with numbers, what R² is the mean of.

    ``network`` are the arguments of :func:`_frozen`; ``where`` is the run's folder or the file of weights; ``content``
    is the digest of the data.
    """
    ask, loaded = _asked(asked), _loaded(data, json.dumps(load), content)
    net = _frozen(network, where, loaded)
    kept = folder.parents[1] / FEATURES
    found: dict[str, list[Tensor]] = {}
    parts = _parts(loaded)
    for part in parts:
        heed()
        for name, x in frozen_features(net, part, kept, ask.layers).items():
            found.setdefault(name, []).append(x)
    chosen = {name: found[name] for name in ask.layers or (LAST,)} if ask.layers is not None else dict(found)
    if ask.layers is None and torch.equal(found[LAST][0], found[list(found)[-2]][0]):
        del chosen[LAST]  # the last block's output is what the head looks at
    rows = []
    for layer, pieces in chosen.items():
        heed()
        said = {"layer": layer, "width": pieces[0].shape[1]}
        if not ask.shots:
            answered = ((x, part.y) for x, part in zip(pieces, parts, strict=True))
            rows.append(said | {"shots": None} | probe(ask, *answered))
            continue
        x, y = torch.cat(pieces), _answers(loaded)
        for shots in ask.shots:
            heed()
            right = learn(x, drawn(ask, y, shots), ask.protocol, seed=ask.seed)
            rows.append(said | {"shots": shots, "values": right.tolist()})
    return rows


def adapted(
    folder: Path, *, network: dict[str, Any], asked: dict[str, Any], load: dict[str, Any], content: str,
    where: str, data: str, shots: int, first: int, last: int,
) -> list[float]:  # fmt: skip
    """The accuracies of the episodes from ``first`` to before ``last``, with norms fine-tuned beside the head."""
    ask, loaded = _asked(asked), _loaded(data, json.dumps(load), content)
    net = _frozen(network, where, loaded)
    whole = drawn(ask, _answers(loaded), shots)
    return adapt_some(net, loaded, whole, range(first, last), ask.seed)


def adapt_some(net: Frozen, data: Data, whole: DrawnEpisodes, numbers: range, seed: int) -> list[float]:
    """The accuracies of the episodes with these numbers; only the examples that they need are looked at."""
    parts = _parts(data)
    used = torch.zeros(sum(map(len, parts)), dtype=torch.bool)
    used[torch.cat([rows[numbers.start : numbers.stop].flatten() for rows in whole])] = True
    place = used.cumsum(0) - 1  # among the examples that are used
    pieces = [
        x
        for part, some in zip(parts, used.split([len(part) for part in parts]), strict=True)
        for x in net.batches(part.subset(some.nonzero().flatten()))
    ]
    inputs, here = torch.cat(pieces), DrawnEpisodes(*(place[rows] for rows in whole))
    found = []
    for number in numbers:
        heed()
        found.append(learn_affine(net.network, inputs, here, [number], seed=seed))
    return torch.cat(found).tolist()


def _parts(data: Data) -> list[Examples | Files]:
    return [part for part in (data.train, data.val, data.test) if isinstance(part, Examples | Files)]


def _answers(data: Data) -> Tensor:
    return torch.cat([part.y for part in _parts(data)])


def drawn(ask: Asked, y: Tensor, shots: int, names: list[str] | None = None) -> DrawnEpisodes:
    """The episodes: the same for every network."""
    return episodes(y, ask.ways, shots, ask.queries, ask.episodes, ask.seed, names=names)


def probe(ask: Asked, train: Part, *others: Part) -> dict[str, Any]:
    """Whether each test example is recognised, by a head that validation chose; and the optimist's figure."""
    *validation, test = others
    if ask.protocol == "neighbours":
        near = train[1][neighbours(train[0], test[0], min(NEIGHBOURS, len(train[1])))]
        if near.is_floating_point():
            return {"values": judged(columns(near.mean(1)), test[1]).tolist()}
        return {"values": (vote(near) == test[1]).int().tolist()}
    if ask.protocol == "seal":
        found = seal_probe(train, validation[0], seed=ask.seed)
    else:
        found = linear_probe(train, validation[0], ask.protocol)
    values = judged(found.head(test[0]), test[1])
    return {
        "values": (values if test[1].is_floating_point() else values.int()).tolist(),
        "chosen": found.settings[found.chosen],
        "validation": found.validation[found.chosen],
        "best_on_test": found.best(*test)[1],
    }


def _frozen(network: dict[str, Any], where: str, data: Data) -> Frozen:
    if network["seed"] is None:
        backbone = Backbone("", network["model"], where or None, model=network["model"])
    else:
        backbone = Backbone("", where, network["score"], network["seed"])
    return frozen(backbone, data, network["trusted"], network["size"]).to(_device())


def _device() -> torch.device:
    from fallow.core.engine import find_device

    return find_device(device())


def _asked(plain: dict[str, Any]) -> Asked:
    lists = {name: None if plain[name] is None else tuple(plain[name]) for name in ("shots", "layers")}
    return Asked(**plain | lists)


@lru_cache(maxsize=2)  # the runs on a data set come one after another
def _loaded(source: str, options: str, content: str) -> Data:
    return load(source, **json.loads(options))
