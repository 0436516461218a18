"""``transfer``: networks × data sets, side by side; what was measured before is found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fallow.base.errors import RequestError, WorkError
from fallow.base.files import expanded
from fallow.base.names import slug
from fallow.core.engine import find_device
from fallow.data import BUNDLED, Data, Examples, Files, load
from fallow.data.content import together
from fallow.diagnose.subjects import refuse_unused
from fallow.evaluate.metrics import NUMBERS
from fallow.experiment import Outcomes, Run, State, check, grid, run
from fallow.report.shown import ACCURACY, Shown
from fallow.transfers import work
from fallow.transfers.asked import Asked
from fallow.transfers.backbones import Backbone, backbones, frozen
from fallow.transfers.findings import TransferFindings, find

OF_NUMBERS = ("ridge", "neighbours")  # probes
R2 = Shown.of(NUMBERS["r2"])
CHUNK = 5  # episodes of affine adaptation in a run
Names = str | Path | Sequence[str | Path]


@dataclass
class Transfer:
    """What networks are worth on other data."""

    folder: Path | None
    asked: Asked
    findings: TransferFindings
    data: dict[str, str]  # what was understood of each
    notes: list[str] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "asked": self.asked.describe(),
            "data": self.data,
            "reference": self.findings.reference,
            "results": self.findings.describe(),
            "notes": self.notes,
            "out": None if self.folder is None else str(self.folder),
        }


def transfer(
    runs: Names | Sequence[Backbone],
    to: Names,
    *,
    protocol: str | None = None,
    shots: int | Sequence[int] = (),
    ways: int = 5,
    queries: int = 15,
    episodes: int | None = None,
    adapt: str | None = None,
    layer: str | None = None,
    weights: str | Path | None = None,
    models: Sequence[str] = (),
    score: str = "last",
    input_size: int | None = None,
    train: int | None = None,
    val: float = 0.2,
    size: int | None = None,
    as_: str | None = None,
    target: str | None = None,
    groups: str | None = None,
    drop: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    watch: Callable[[State], None] | None = None,
) -> Transfer:
    """Measure how well the features of networks serve other data.

    Parameters
    ----------
    runs : folders of runs, or of comparisons (all their methods and seeds), or models by name: ``"lite0"``,
        ``"hf:…"``, ``"timm:…"``, or any with ``weights``.
    to : bundled names or paths of labelled data, one or more.
    protocol : a probe, "logistic" (default), "ridge" (of numbers the default, judged by R²), "nearest", "neighbours" or
        "seal" (the paper's SGD); with
        ``shots`` a learner of episodes, "cdfsl" (default, the public protocol to the letter), "ridge", "logistic" or
        "nearest". What is to be chosen is chosen on validation.
    shots, ways, queries, episodes : of the episodes, 600 by default, which are the same for every network.
    adapt : "affine" fine-tunes the norms' scales and shifts beside the head; 40 episodes by default.
    layer : a block whose output is probed, several with commas, or "all".
    weights : a file, for the one model that is given by its name.
    models : a run's own ``module:factory``, named again to be trusted.
    score : which weights of runs, "last" or "best" on validation.
    input_size : pixels a side in which pretrained networks see images.
    train, val, size, as_, target, groups, drop, seed : how the data are loaded, see :func:`fallow.data.load`.
    out : a folder for features and results; without one nothing is kept.
    engine, address, workers, device, watch : see :func:`fallow.experiment.run`.

    >>> import fallow, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = fallow.fit("mlp:hidden=32", "digits", generations=1, epochs=5, out=folder)
    >>> found = transfer(folder, "digits", train=200, workers=1)
    >>> found.findings.entries[0].estimate.mean > 0.8
    True

    """
    options: dict[str, Any] = {
        "train": train, "val": val, "size": size, "as_": as_, "target": target, "groups": groups, "drop": drop,
        "seed": seed,
    }  # fmt: skip
    how = {key: value for key, value in options.items() if value is not None}
    targets = {_absolute(source): load(source, **how) for source in map(str, _list(to))}
    numbers = probed([data.target.kind for data in targets.values()], list(targets)) == "numbers"
    asked = Asked.of(
        protocol or ("ridge" if numbers and not shots else None), (shots,) if isinstance(shots, int) else shots,
        ways=ways, queries=queries, episodes=episodes, adapt=adapt, layer=layer, seed=seed,
    )  # fmt: skip
    check(engine, address, workers)
    if engine == "local":
        find_device(device)
    found = backbones(_list(runs), weights=None if weights is None else Path(weights), score=score)
    refuse_unused(models, [backbone.model for backbone in found])
    names = _names(targets)
    notes = [f"{names[source]}: {note}" for source, data in targets.items() for note in data.notes]
    wanted: dict[tuple[Backbone, str], list[Run]] = {}
    for source, data in targets.items():
        _check(asked, data, names[source])
        content = data.describe()["digest"]
        for backbone in found:
            network = frozen(backbone, data, models, input_size)
            if asked.layers != ():
                network.blocks(asked.layers)  # or it is refused
            if done := network.fits(data.shape):
                notes.append(f"{names[source]} for {backbone.label}: {done}.")
            if backbone.seed is not None and backbone.data == data.name:
                notes.append(f"{backbone.label} was trained on {data.name}, too: this may be no transfer.")
            described = {
                "digest": network.identity(), "model": backbone.model, "seed": backbone.seed,
                "score": backbone.weights if backbone.seed is not None else None, "trusted": list(models),
                "size": input_size,
            }  # fmt: skip
            arguments = {"network": described, "asked": asked.describe(), "load": how, "content": content}
            where = backbone.source if backbone.seed is not None else backbone.weights or ""
            wanted[backbone, source] = _runs(
                asked, arguments, {"where": where, "data": source}, backbone, names[source]
            )
    if out is not None and Path(out, "plan.toml").exists():
        raise RequestError(f"{out} holds a comparison: choose another --out")
    outcomes = run(
        grid(each for some in wanted.values() for each in some), None if out is None else Path(out),
        identity={"verb": "transfer"}, engine=engine, address=address, workers=workers, device=device, watch=watch,
        what="transfer",
    )  # fmt: skip
    values = {(backbone, names[source]): _collected(some, outcomes) for (backbone, source), some in wanted.items()}
    understood = {names[source]: data.understood("none") for source, data in targets.items()}
    notes = list(dict.fromkeys(notes))
    findings = find(asked, values, R2 if numbers else ACCURACY)
    return Transfer(None if out is None else Path(out), asked, findings, understood, notes)


def probed(kinds: Sequence[str], names: Sequence[str]) -> str:
    """The kind of answers that features are probed for: classes or numbers, the same in all data."""
    for kind, name in zip(kinds, names, strict=True):
        if kind not in ("classes", "numbers"):
            raise RequestError(f"{name} holds {kind}: transfer tells classes apart, or predicts numbers")
        if kind != kinds[0]:
            raise RequestError(f"{names[0]} holds {kinds[0]} and {name} {kind}: transfer to one kind at a time")
    if not kinds:
        raise RequestError("there is no data to transfer to: name some with --to")
    return kinds[0]


def _check(asked: Asked, data: Data, name: str) -> None:
    """Refuse, before anything is computed, what cannot be asked of these data."""
    parts = [data.train, data.val, data.test]
    if data.target.kind == "numbers" and asked.shots:
        raise RequestError(f"{name} holds numbers, and episodes tell classes apart: leave shots out")
    if data.target.kind == "numbers" and asked.protocol not in OF_NUMBERS:
        raise RequestError(
            f"{name} holds numbers, and {asked.protocol} tells classes apart: take {' or '.join(OF_NUMBERS)}"
        )
    held = [part for part in parts if isinstance(part, Examples | Files)]
    if len(held) < 3 and (data.test is None or not asked.shots):
        raise RequestError(f"{name} needs examples for training, validation and testing: give val above 0")
    y = torch.cat([part.y for part in held])
    for shots in asked.shots:
        try:
            work.drawn(asked, y, shots, data.classes)
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from error


def _runs(asked: Asked, arguments: dict[str, Any], paths: dict[str, str], backbone: Backbone, name: str) -> list[Run]:
    """One run for a network on a data set; with affines, one for every few episodes."""
    stem = f"{slug(backbone.label, 60)}{'' if backbone.seed is None else f'-seed{backbone.seed}'}-{slug(name, 60)}"

    def one(what: str, cost: float, *more: Any, **settings: Any) -> Run:
        given = arguments | settings
        name = "-".join([stem, *map(str, more), together(given, paths["data"])[:8]])
        return Run(name, f"{work.__name__}:{what}", given, cost, paths=paths)

    if asked.adapt is None:
        return [one("measure", 1.0)]
    found = []
    for shots in asked.shots:
        for first in range(0, asked.episodes, CHUNK):
            last = min(first + CHUNK, asked.episodes)
            mine = replace(asked, shots=(shots,), episodes=last).describe()  # however many others there are
            found.append(one("adapted", shots, f"{shots}shot", first, asked=mine, shots=shots, first=first, last=last))
    return found


def _collected(runs: Sequence[Run], outcomes: Outcomes) -> list[dict[str, Any]]:
    """What a network gave on a data set."""
    for each in runs:
        if (reason := outcomes[each.name].reason) is not None:
            raise WorkError(f"{each.name} failed: {reason}")
    if "shots" not in runs[0].arguments:
        return list(outcomes[runs[0].name].value)
    found: dict[int, list[float]] = {}
    for each in runs:
        found.setdefault(each.arguments["shots"], []).extend(outcomes[each.name].value)
    return [{"layer": "", "shots": shots, "values": values} for shots, values in found.items()]


def _list(given: Any) -> list[Any]:
    return [given] if isinstance(given, str | Path) else list(given)


def _names(targets: dict[str, Data]) -> dict[str, str]:
    names = [data.name for data in targets.values()]
    return {source: data.name if names.count(data.name) == 1 else source for source, data in targets.items()}


def _absolute(source: str) -> str:
    """For workers that may stand elsewhere."""
    return source if source.partition(":")[0] in BUNDLED else str(Path(os.getcwd(), expanded(source)).resolve())
