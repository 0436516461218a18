"""Tasks from a name or a path: sinusoid, a .npz, a folder of classes; and class splits from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fallow.base.errors import RequestError, unknown
from fallow.base.files import expanded
from fallow.base.spec import parse
from fallow.data.arrays import from_arrays
from fallow.data.examples import Examples
from fallow.data.load import read
from fallow.data.parts import Parts
from fallow.data.sources.folder import folder
from fallow.data.sources.places import folders_in, parts_in
from fallow.data.sources.table import SUFFIXES as TABLES
from fallow.data.tasks.base import SPLITS, Tasks
from fallow.data.tasks.episodes import Episodes, carve
from fallow.data.tasks.mixture import Mixture
from fallow.data.tasks.sinusoid import SETTINGS, Sinusoid

Splits = dict[str, list[int]]

# pairs of arrays whose labels count their own classes: Omniglot's two halves
HALVES = {"train": "background", "test": "evaluation"}
CURVED = {"sinusoid": (Sinusoid, ("setting", "points")), "mixture": (Mixture, ("of", "noise", "points"))}
QUERIES = 5  # of a class; with 15 a meta-iteration of a 1-shot task takes twice as long
CIFAR = ("cifar100.npz", "cifar-100-python", "cifar100_sub.npz")
CLASSES = "cifar100_fewshot_splits.json"
# tasks known by name: the file or folder of their images, whichever comes first, and their class splits
NAMED = {
    "omniglot": (("omniglot28.npz", "omniglot.npz"), ""),
    "cifar-fs": (CIFAR, f"{CLASSES}:cifar-fs"),
    "fc100": (CIFAR, f"{CLASSES}:fc100"),
}
COUNTS = ("val_tasks", "test_tasks", "per_epoch")
OPTIONS = ("data_dir", "ways", "shots", "queries", "seed", "splits", "rotations", "size", *COUNTS)


def load_tasks(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    ways: int = 5,
    shots: int = 1,
    queries: int | None = None,
    seed: int = 0,
    splits: str | Path | None = None,
    rotations: bool = False,
    size: int | None = None,
    **counts: Any,
) -> Tasks:
    """Tasks from ``source``.

    - ``sinusoid``, or ``sinusoid:setting=hard``; ``mixture``, or ``mixture:of=sinusoid/linear/quadratic``;
    - ``omniglot`` (with rotations), ``cifar-fs`` or ``fc100``, by the usual class splits, from files in ``data_dir``;
    - a .npz with x and y (x_train, x_test … are put together: classes are split, not examples), or with
      x_background, y_background, x_evaluation, y_evaluation (Omniglot: the first half is trained on);
    - a folder with a folder of images per class, or with train/, val/ and test/ that hold different classes.

    ``splits`` is a JSON file of {"train": [...], "val": [...], "test": [...]}, classes by name or number;
    ``file.json:name`` takes the splits called so. Without it, 64, 16 and 20 % of the classes are drawn by ``seed``.
    """
    for key in counts:
        if key not in COUNTS:
            raise unknown("option of tasks", key, OPTIONS)
    if (found := _curves(source)) is not None:
        kind, settings = found
        if splits is not None or rotations:
            raise RequestError(f"{kind.name} has no classes: leave splits and rotations out")
        return kind(shots=shots, queries=queries, seed=seed, **counts, **settings)
    path = expanded(source)
    if data_dir is not None and str(source) in NAMED:
        path, own = named_files(str(source), expanded(data_dir))
        splits = own if splits is None else splits
        rotations = rotations or str(source) == "omniglot"
    elif not path.exists():
        if str(source) in NAMED:
            wanted = " or ".join(NAMED[str(source)][0])
            raise RequestError(f"{source} is not installed: give --data-dir, a folder with {wanted}")
        raise RequestError(
            f"there is no {path}: give sinusoid (settings: {', '.join(SETTINGS)}), mixture, {', '.join(NAMED)}, "
            "a .npz, or a folder of classes"
        )
    x, y, names, halves = _examples(path, str(path), size, seed)
    chosen = halves if splits is None else _named(splits, names)
    return Episodes(
        name=str(source) if str(source) in NAMED else path.stem if path.is_file() else path.resolve().name,
        x=x, y=y, names=names, splits=chosen, ways=ways, shots=shots, queries=QUERIES if queries is None else queries,
        rotations=rotations, seed=seed, **counts,
    )  # fmt: skip


def _curves(source: str | Path) -> tuple[type[Sinusoid | Mixture], dict[str, Any]] | None:
    """The kind of curves that a name stands for, with its settings; None where it stands for none."""
    if not str(source).startswith(tuple(CURVED)):
        return None
    name, settings = parse(str(source))
    if name not in CURVED:
        return None
    kind, known = CURVED[name]
    for key in settings:
        if key not in known:
            raise unknown(f"setting of {name}", key, known)
    return kind, settings


def named_files(name: str, folder: Path) -> tuple[Path, str | None]:
    """The images of tasks known by name, and the class splits that belong to them, as FILE.json:NAME."""
    files, own = NAMED[name]
    found = next((folder / file for file in files if (folder / file).exists()), None)
    if found is None:
        raise RequestError(f"{folder} has no images of {name}: it should hold {' or '.join(files)}")
    if own and not (folder / CLASSES).exists():
        raise RequestError(f"{folder} does not say which classes {name} holds out: it should hold {CLASSES}")
    return found, str(folder / own) if own else None


def _examples(path: Path, source: str, size: int | None, seed: int) -> tuple[Tensor, Tensor, list[str], Splits | None]:
    """All examples of all parts, their classes, and the class splits that the source has of its own."""
    if path.suffix.lower() in TABLES:
        raise RequestError(
            f"{path} is a table: few-shot tasks need a .npz, or a folder with a folder of examples per class"
        )
    halves = _halves(path, size)
    if halves is None:
        parts = read(path, source, size, False, "classes")
        held = [_memory(part) for part in (parts.train, parts.val, parts.test) if part is not None]
        return torch.cat([e.x for e in held]), torch.cat([e.y for e in held]), parts.classes, None
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    names: list[str] = []
    splits: Splits = {}
    for split, parts in halves.items():
        held = [_memory(part) for part in (parts.train, parts.val, parts.test) if part is not None]
        begin = len(names)
        xs += [e.x for e in held]
        ys += [e.y + begin for e in held]
        names += parts.classes
        splits[split] = list(range(begin, len(names)))
    if "val" not in splits:  # a tenth of the training classes: those for testing stay unseen
        order = carve(torch.tensor(splits["train"]), seed)
        few = max(1, len(splits["train"]) // 10)
        splits["val"] = sorted((order["val"] + order["test"])[:few])
        splits["train"] = sorted(set(splits["train"]) - set(splits["val"]))
    return torch.cat(xs), torch.cat(ys), names, splits


def _halves(path: Path, size: int | None) -> dict[str, Parts] | None:
    """Parts whose classes differ: train/, val/, test/ folders of other classes, or Omniglot's two halves."""
    if path.suffix == ".npz" and path.is_file():
        try:
            with np.load(path, allow_pickle=False) as archive:
                if not all(f"x_{half}" in archive.files and f"y_{half}" in archive.files for half in HALVES.values()):
                    return None
                return {
                    split: from_arrays(
                        {"train": (archive[f"x_{half}"], archive[f"y_{half}"])},
                        names=archive[f"names_{half}"].tolist() if f"names_{half}" in archive.files else None,
                        target="classes",
                    )
                    for split, half in HALVES.items()
                }
        except (OSError, ValueError):
            return None  # read again, its error says what is wrong
    if not path.is_dir():
        return None
    places = parts_in(path)
    classes = {part: {entry.name for entry in folders_in(place)} for part, place in places.items()}
    if not {"train", "test"} <= set(classes) or not classes["train"] or classes["train"] & classes["test"]:
        return None
    for part, held in classes.items():
        for other, theirs in classes.items():
            if part < other and held & theirs:
                raise RequestError(f"class {min(held & theirs)!r} is in both {part} and {other}: it belongs to one")
    return {part: folder(place, size) for part, place in places.items()}


def _memory(part: Any) -> Examples:
    if not isinstance(part, Examples):
        raise RequestError("the images are too many for memory: give a smaller size")
    if part.x.dtype in (torch.int8, torch.int64):
        raise RequestError("these are texts: few-shot tasks are of images, signals, volumes or features")
    return part


def _named(file: str | Path, names: Sequence[str]) -> Splits:
    """Class splits from a JSON file, classes by name or number."""
    path, _, which = str(file).rpartition(":") if ".json:" in str(file) else (str(file), "", "")
    try:
        content: Any = json.loads(expanded(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} holds no splits ({error}): give JSON with train, val and test") from error
    if isinstance(content, Mapping) and isinstance(content.get("splits"), Mapping):
        content = content["splits"]
    if which:
        if not isinstance(content, Mapping) or which not in content:
            raise unknown(f"split of {path}", which, content if isinstance(content, Mapping) else ())
        content = content[which]
    if not isinstance(content, Mapping) or "train" not in content:
        listed = f" (it holds {', '.join(map(str, content))}: write FILE.json:NAME)" if content else ""
        raise RequestError(f"{path} has no 'train': give JSON with train, val and test{listed}")
    for key, listed in content.items():
        if isinstance(listed, list) and key not in SPLITS:
            raise RequestError(f"{path} holds {key!r}: give train, val and test")
    place = {name: i for i, name in enumerate(names)}
    return {split: [_place(label, place, path) for label in content.get(split, [])] for split in SPLITS}


def _place(label: Any, place: Mapping[str, int], path: str) -> int:
    """Which class a label is: the one of this name, or, where names are no numbers, the one in this place."""
    if isinstance(label, str | int) and not isinstance(label, bool):
        if str(label) in place:
            return place[str(label)]
        if isinstance(label, int) and 0 <= label < len(place) and not any(name.lstrip("-").isdigit() for name in place):
            return label
    raise RequestError(f"{path} names class {label!r}, which the data does not have")
