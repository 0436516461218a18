"""Few labels, many images: keep some labels, and gather images without any, from here and from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown
from fallow.base.files import expanded
from fallow.base.seeds import mix as mix_seeds
from fallow.data.examples import Data, Examples, Files
from fallow.data.images import SUFFIXES, decode, probe
from fallow.data.load import load
from fallow.data.parts import strata_of
from fallow.data.split import stratified

UNKNOWN, FOREIGN = -1, -2  # in place of the label of an unlabelled image: not known, or of none of the classes


def budget(
    data: Data, labels: int, *, val: int | None = None, unlabelled: int | None = None, seed: int | None = None
) -> Data:
    """Keep so many labels, balanced over the classes, and make all training images unlabelled ones.

    The labelled images are among the unlabelled, as FixMatch has it. ``val`` keeps so many validation labels, and the
    other validation images become unlabelled too, except where groups stay together: then validation keeps all of its
    own. ``unlabelled`` is how many of these to keep in all.

    >>> few = budget(load("digits"), 20, val=50)
    >>> few.train.y.bincount().tolist(), len(few.val), len(few.unlabelled)
    ([2, 2, 2, 2, 2, 2, 2, 2, 2, 2], 50, 1388)
    """
    _only_classes(data)
    train = _in_memory(data.train, "train")
    draw = torch.Generator().manual_seed(mix_seeds(0 if seed is None else seed, 4))
    chosen = _balanced(train.y, labels, data.classes, draw)
    images, others, notes = [train.x], [train.y], []
    kept_val = data.val
    if val is not None:
        held = _in_memory(data.val, "val")
        if not len(data.classes) <= val <= len(held):
            raise RequestError(
                f"val={val} validation labels cannot be kept of {len(held)}: from {len(data.classes)} up"
            )
        if val < len(held) and not data.grouped:
            kept, rest = stratified(held.y, len(held) - val, draw)
            kept_val = held.subset(kept)
            images.append(held.x[rest])
            others.append(held.y[rest])
            notes.append(f"{val} of {len(held)} validation labels were kept.")
    x, y = torch.cat(images), torch.cat(others)
    if unlabelled is not None:
        if not labels <= unlabelled <= len(x):
            raise RequestError(
                f"unlabelled={unlabelled} is not between the {labels} labelled images and the {len(x)} there are"
            )
        rest = torch.ones(len(x), dtype=torch.bool)
        rest[chosen] = False
        others_at = rest.nonzero()[:, 0]
        more = others_at[torch.randperm(len(others_at), generator=draw)[: unlabelled - labels]]
        places = torch.cat([chosen, more]).sort().values
        x, y = x[places], y[places]
    notes.append(f"{labels} of {len(train)} training labels were kept; {len(x)} images are unlabelled.")
    return replace(data, train=train.subset(chosen), val=kept_val, unlabelled=Examples(x, y), notes=data.notes + notes)


def fewer(data: Data, examples: int, seed: int = 0) -> Data:
    """The data with so many of their training examples, in proportion by class; fewer are always among more.

    >>> whole = load("digits")
    >>> few, more = (set(map(tuple, fewer(whole, n).train.x.flatten(1).tolist())) for n in (100, 300))
    >>> len(few), few < more
    (100, True)
    """
    train = data.train
    if not isinstance(train, Examples | Files) or not 0 < examples <= len(train):
        raise RequestError(f"{examples} of the {data.name} training examples cannot be kept: there are fewer")
    strata = strata_of(data.target, train.y)
    shuffled = torch.randperm(len(strata), generator=torch.Generator().manual_seed(mix_seeds(seed, 6)))
    by_class = shuffled[torch.argsort(strata[shuffled], stable=True)]
    counts = strata[by_class].unique_consecutive(return_counts=True)[1]
    rank = torch.arange(len(strata)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    order = torch.argsort(rank / counts.repeat_interleave(counts), stable=True)  # one of each, then evenly
    return replace(data, train=train.subset(by_class[order[:examples]].sort().values))


def add_unlabelled(data: Data, source: Any) -> Data:
    """Add the images of a folder (in any order), a .npz file or `Examples` to the unlabelled ones."""
    x, notes = _images(source, data.shape)
    return _joined(data, Examples(x, torch.full((len(x),), UNKNOWN)), notes)


def mix_in(data: Data, source: Any, share: float, *, seed: int = 0) -> Data:
    """Mix foreign images into the unlabelled ones so that they are this share of them.

    All images are used that the share allows: of the kind that there are too many of, some are left out. How well a
    method tells the foreign ones is seen by their label, `FOREIGN`, which no training looks at.
    """
    if not 0 < share < 1:
        raise RequestError(f"the foreign share is {share}: it must be above 0 and below 1")
    own = data.unlabelled
    if own is None:
        raise RequestError("there are no unlabelled images to mix foreign ones with: make some by fallow.data.budget")
    x, notes = _images(source, data.shape)
    draw = torch.Generator().manual_seed(mix_seeds(seed, 5))
    total = min(len(own) / (1 - share), len(x) / share)
    foreign = torch.randperm(len(x), generator=draw)[: max(1, round(share * total))]
    kept = torch.randperm(len(own), generator=draw)[: max(1, round((1 - share) * total))].sort().values
    notes.append(f"{len(foreign)} foreign images were mixed with {len(kept)} of {len(own)} unlabelled ones.")
    data = replace(data, unlabelled=own.subset(kept))
    return _joined(data, Examples(x[foreign], torch.full((len(foreign),), FOREIGN)), notes)


def set_apart(data: Data, classes: Sequence[str]) -> tuple[Data, Examples]:
    """The data without these classes, and the training images of them, to mix in as foreign ones."""
    _only_classes(data)
    for name in classes:
        if name not in data.classes:
            raise unknown("class", name, data.classes)
    gone = torch.tensor([name in classes for name in data.classes])
    if int((~gone).sum()) < 2:
        raise RequestError(f"without {', '.join(classes)} there are fewer than two classes left: set fewer apart")
    number = (~gone).long().cumsum(0) - 1  # of the classes that stay

    def rest(part: Any, key: str) -> Examples:
        held = _in_memory(part, key)
        stays = ~gone[held.y]
        return Examples(held.x[stays], number[held.y[stays]])

    train = _in_memory(data.train, "train")
    left = replace(
        data,
        train=rest(train, "train"),
        val=None if data.val is None else rest(data.val, "val"),
        test=None if data.test is None else rest(data.test, "test"),
        classes=[name for name in data.classes if name not in classes],
        notes=[*data.notes, f"The classes {', '.join(classes)} were set apart."],
    )
    return left, train.subset(gone[train.y].nonzero()[:, 0])


def _only_classes(data: Data) -> None:
    if data.target.kind != "classes":
        raise RequestError(f"{data.name} has {data.target.kind} to learn, not classes: labels are kept by class")


def _balanced(y: Tensor, labels: int, classes: list[str], draw: torch.Generator) -> Tensor:
    """Indices of so many examples, of all classes alike; where a class has too few, the others give more."""
    if labels > len(y):
        raise RequestError(f"labels={labels} is more than the {len(y)} labelled training images there are")
    counts = y.bincount(minlength=len(classes))
    if (counts == 0).any():
        raise RequestError(f"class {classes[int(counts.argmin())]!r} has no labelled image: give it at least one")
    if labels < len(classes):
        raise RequestError(
            f"labels={labels} would leave class {classes[labels]!r} without one: ask for at least {len(classes)}"
        )
    shuffled = torch.randperm(len(y), generator=draw)
    by_class = shuffled[torch.argsort(y[shuffled], stable=True)]
    rank = torch.arange(len(y)) - (counts.cumsum(0) - counts).repeat_interleave(counts)  # place within the class
    return by_class[torch.argsort(rank, stable=True)[:labels]].sort().values  # one of each class, then another of each


def _in_memory(part: Any, key: str) -> Examples:
    if not isinstance(part, Examples):
        what = "missing" if part is None else f"a {type(part).__name__}"
        raise RequestError(f"{key} is {what}: to choose labels, the examples must be in memory (smaller images may do)")
    return part


def _joined(data: Data, more: Examples, notes: list[str]) -> Data:
    old = data.unlabelled
    if old is not None:
        more = Examples(torch.cat([old.x, more.x]), torch.cat([old.y, more.y]))
    return replace(data, unlabelled=more, notes=data.notes + notes)


def _images(source: Any, shape: tuple[int, ...]) -> tuple[Tensor, list[str]]:
    """uint8 images of this shape from wherever they are; what had another is resized, and that is noted."""
    if isinstance(source, str | Path) and expanded(source).is_dir():
        x, notes = _folder(expanded(source), shape)
        if x is not None:
            return x, notes
    x = (source if isinstance(source, Examples) else _in_memory(load(source, val=0, test=0).train, str(source))).x
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise RequestError(f"{source} holds no images in bytes: unlabelled images are pictures")
    return _fitted(x, shape)


def _folder(root: Path, shape: tuple[int, ...]) -> tuple[Tensor | None, list[str]]:
    """All images below a folder; None where there are none, but other files perhaps."""
    found = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    paths = [path for path in found if path.is_file()]  # opening a FIFO would wait for ever
    if not paths:
        if not any(p.is_file() for p in root.rglob("*")):
            raise RequestError(f"{root} is empty: give a folder with images")
        return None, []
    sizes: set[tuple[int, int]] = set()
    pixels, broken = [], []
    for path in paths:
        try:
            sizes.add(probe(path).size)
            pixels.append(torch.from_numpy(decode(path, (shape[1], shape[2]), shape[0])))
        except Exception:  # Pillow raises many kinds for a damaged file
            broken.append(path.name)
    if not pixels:
        raise RequestError(f"none of the {len(paths)} images in {root} can be read: repair them, or give others")
    notes = []
    if sizes != {(shape[1], shape[2])}:
        notes.append(f"The unlabelled images were resized to {shape[1]}×{shape[2]}.")
    if broken:
        notes.append(
            f"{len(broken)} unreadable unlabelled image{'s' * (len(broken) > 1)} skipped: {', '.join(broken[:5])}."
        )
    return torch.stack(pixels), notes


def _fitted(x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, list[str]]:
    """Images with the channels and the size of ``shape``."""
    notes = []
    if x.shape[1] != shape[0]:
        weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
        x = (x * weights).sum(1, keepdim=True).round().to(torch.uint8) if shape[0] == 1 else x.expand(-1, 3, -1, -1)
        notes.append("The unlabelled images were made grey." if shape[0] == 1 else "Grey images were made RGB.")
    if tuple(x.shape[2:]) != tuple(shape[1:]):
        notes.append(f"The unlabelled images were resized from {x.shape[2]}×{x.shape[3]} to {shape[1]}×{shape[2]}.")
        x = torch.nn.functional.interpolate(x.float(), tuple(shape[1:]), mode="bilinear", antialias=True)
        x = x.round().clamp(0, 255).to(torch.uint8)
    return x.contiguous(), notes
