"""From whatever the user has to `Data`: read it, carve it, take its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fallow.base.errors import RequestError, unknown
from fallow.base.files import expanded
from fallow.base.spec import parse
from fallow.data.arrays import from_arrays, from_tensors
from fallow.data.bundled import BUNDLED, check_options
from fallow.data.datasets import from_users
from fallow.data.examples import Data, Examples, Files, digest, equal_channels
from fallow.data.groups import numbered, read_groups
from fallow.data.layout import KINDS as LAYOUTS
from fallow.data.layout import relaid
from fallow.data.leaks import WORDS, absent, leaks, unlike
from fallow.data.normalise import SAMPLE, spaced, statistics
from fallow.data.parts import Parts, Shares, choose, strata_of
from fallow.data.sources.cifar import cifar, is_cifar
from fallow.data.sources.each import each_a_file, kind_of_files
from fallow.data.sources.folder import folder
from fallow.data.sources.idx import idx, is_idx
from fallow.data.sources.listed import LIST, is_listed, listed, lists
from fallow.data.sources.masked import is_masked, masked
from fallow.data.sources.npz import npz
from fallow.data.sources.places import printable
from fallow.data.sources.table import SUFFIXES, read_cells
from fallow.data.sources.table import table as read_table
from fallow.data.targets import KINDS as TARGETS

KINDS = (
    "give a .npz or .csv file, a folder with a folder of images (.txt, .npy) per class, of idx files or of CIFAR "
    "batches, or a bundled name"
)


def load(
    source: Any,
    *,
    train: int | None = None,
    val: float = 0.2,
    test: float = 0.2,
    seed: int = 0,
    fold: tuple[int, int] | None = None,
    size: int | None = None,
    strict: bool = False,
    target: str | None = None,
    as_: str | None = None,
    groups: Any = None,
    drop: str | Sequence[str] = (),
    **options: Any,
) -> Data:
    """Load a data set and divide it, stratified by class, the same way for the same seed.

    ``source`` is one of

    - a bundled name, with options perhaps: ``"digits"``, ``"synthetic:alpha=0.5"`` (a folder of that name
      is ``"./digits"``);
    - a path: a .npz file, a folder with a folder of images, or of .txt or .npy files, per class, of idx files, of CIFAR
      batches; a folder of images with a ``labels.csv``, or any such list by its own path (see
      `fallow.data.sources.listed.listed`), or with images/ and masks/; a .csv, .tsv, .jsonl or .parquet table (see
      `fallow.data.sources.table.table`);
    - arrays or tensors ``(x, y)`` (see `fallow.data.layout.layout`), or `Examples`;
    - a map-style ``Dataset`` or a ``DataLoader``, for which ``classes=`` (a number, or names) may be needed;
    - a sequence of two or three of the latter two kinds: (train, test) or (train, val, test), where arrays
      are tuples ``(x, y)``;
    - `Data`, which comes back as it is.

    A source's own test set is kept, otherwise a fraction ``test`` is carved. ``fold=(i, k)`` carves the i-th of k
    folds, the same ones for the same seed, so that every example is a test example in one of them. A fraction ``val``
    of the training part is carved for validation (0: none), never of the test set. ``train`` keeps that many training
    examples besides, and then validation has val/(1 − val) times as many. ``size`` and ``strict`` are for folders of
    images (see `fallow.data.sources.folder.folder`).

    What is learned is seen from y (see `fallow.data.answers.kind_of`): classes, numbers, labels or dense. ``target``
    says so where y does not: ``target="numbers"`` for counts, which look like classes. Of a table it names the column
    to predict, or several parted by commas, and perhaps their kind (``"grade:numbers"``); ``drop`` are columns to leave
    out, a list or parted by commas (``","`` is the one without a name).
    What examples are is seen from x; ``as_`` says so where it is not: "images", "signals", "features" or "texts".
    `Data.understood` says what was understood.

    ``groups`` keeps what belongs together (a patient, a recording) on one side of every split: a group for each
    training example as an array, a .npy or a text file; for a .npz the name of an array in it ("groups" is found by
    itself); for a folder of images a separator, before which the names of files that belong together are the same.

    >>> data = load("digits", train=100)
    >>> data.describe()["sizes"], data.shape, data.classes[:3]
    ({'train': 100, 'val': 25, 'test': 359}, (1, 8, 8), ['0', '1', '2'])
    """
    if isinstance(source, Data):
        return source
    tabular = isinstance(source, str | Path) and with_columns(expanded(source))
    if target is not None and target not in TARGETS and not tabular:
        if isinstance(source, str | Path) and _strange(path := expanded(source)):
            raise RequestError(f"{path} is of an unknown kind: {KINDS} ({', '.join(BUNDLED)})")
        raise unknown("target", target, TARGETS)
    if _joined(drop).strip(" ,") and not (tabular and expanded(source).is_file()):
        raise RequestError(f"drop={_joined(drop)} is for the columns of tables: leave it out")
    if as_ is not None and as_ not in LAYOUTS:
        raise unknown("kind of examples", as_, LAYOUTS)
    cut = Shares(train, val, test, seed, fold)
    given = _parts_of(source)
    if given is not None and all(isinstance(part, Files) for part in given.values()):
        raise RequestError("Files are what load makes of a folder: give the folder itself")
    if given is not None and all(isinstance(part, Dataset | DataLoader) for part in given.values()):
        check_options("a Dataset or DataLoader", options, {"classes": None})
        if as_ is not None:
            raise RequestError(f"as_={as_} is for what fallow reads itself: let the Dataset give what it should")
        return from_users(given, cut, target, **options, groups=None if groups is None else read_groups(groups))
    if given is not None:
        check_options("arrays", options, {})
        return _carve("arrays", _grouped(_from_memory(given, target, as_), groups), cut)
    if not isinstance(source, str | Path):
        raise RequestError(f"data is a {type(source).__name__}: {KINDS}, or (x, y)")
    how: dict[str, Any] = {"train": train, "val": val, "test": test, "seed": seed}
    chosen = {"size": size, "target": target, "as_": as_, "groups": groups}
    how |= {"fold": list(fold)} if fold is not None else {}
    how |= {key: _plain(value) for key, value in chosen.items() if value is not None}
    how |= {"drop": drop if isinstance(drop, str) else list(drop)} if drop else {}
    name = str(source).partition(":")[0]
    if isinstance(source, str) and name in BUNDLED:
        _refuse_size(size)
        _refuse_target(target)
        _, settings = parse(source)
        parts = _as(BUNDLED[name].parts(name, cut, settings | options), as_)
        data = _carve(name, _grouped(parts, groups), cut)
        data.origin = {"source": source, **options, **how}
        return data
    path = expanded(source)
    check_options(str(path), options, {})
    parts = read(path, str(source), size, strict, target, as_, groups, drop)
    data = _carve(printable(path.stem if path.is_file() else path.resolve().name), parts, cut)
    data.origin = {"source": str(path.resolve()), **how}
    return data


def with_columns(path: Path) -> bool:
    """Whether a source has columns, of which one may be named."""
    return path.suffix.lower() in SUFFIXES or (path.is_dir() and is_listed(path))


def _strange(path: Path) -> bool:
    """Whether a file is of a kind that is not read."""
    return path.is_file() and path.suffix != ".npz" and path.suffix.lower() not in SUFFIXES


def _joined(drop: str | Sequence[str]) -> str:
    return drop if isinstance(drop, str) else ",".join(drop)


def _plain(value: Any) -> Any:
    """An option as a record keeps it."""
    if isinstance(value, Path | str):
        return str(value)
    return read_groups(value).tolist() if hasattr(value, "__len__") else value


def _as(parts: Parts, as_: str | None) -> Parts:
    """Parts that are laid out, as what was asked for."""
    if as_ is None:
        return parts
    held = [part for part in (parts.train, parts.val, parts.test) if part is not None]
    if as_ != "images" and any(isinstance(part, Files) for part in held):
        raise RequestError(f"as_={as_} needs the images in memory, and these are too many: take a smaller size")
    train, val, test = (
        Examples(relaid(part.x, as_), part.y) if isinstance(part, Examples) else part
        for part in (parts.train, parts.val, parts.test)
    )
    assert train is not None
    given = parts.train.x.shape[1:] if isinstance(parts.train, Examples) and parts.decoded else ()
    return replace(parts, train=train, val=val, test=test, flattened=tuple(given) if as_ == "features" else ())


def _grouped(parts: Parts, groups: Any) -> Parts:
    """Parts with the groups of their training examples."""
    if groups is None:
        return parts
    found = read_groups(groups)
    if len(found) != len(parts.train):
        raise RequestError(f"there are {len(found)} groups for {len(parts.train)} training examples: give one for each")
    return replace(parts, groups=numbered({"train": found}))


def _parts_of(source: Any) -> dict[str, Any] | None:
    """What was given in memory, by part: a pair of arrays is one part, a pair of parts are two."""
    if isinstance(source, Examples | Dataset | DataLoader):
        return {"train": source}
    if not isinstance(source, tuple | list):
        return None
    if all(isinstance(item, Examples | Dataset | DataLoader | tuple) for item in source):
        if len(source) == 2:
            return {"train": source[0], "test": source[1]}
        if len(source) == 3:
            return {"train": source[0], "val": source[1], "test": source[2]}
    if len(source) != 2:
        raise RequestError(
            f"data is a sequence of {len(source)}: give (x, y), or two or three parts, (train, test) or "
            "(train, val, test), each of them a tuple (x, y), Examples, a Dataset or a DataLoader"
        )
    return {"train": tuple(source)}


def _from_memory(given: dict[str, Any], target: str | None, as_: str | None) -> Parts:
    if all(isinstance(part, Examples) for part in given.values()):
        y = given["train"].y
        target = target or ("numbers" if y.is_floating_point() and y.ndim == 1 else None)  # by its type, however whole
        return from_tensors({key: (relaid(part.x, as_), part.y) for key, part in given.items()}, target=target)
    for key, part in given.items():
        if not (isinstance(part, tuple) and len(part) == 2):
            raise RequestError(f"{key} is a {type(part).__name__}, not like the other parts: give (x, y) for each")
    first = all(isinstance(x, Tensor) for x, _ in given.values())
    return from_arrays(given, channels_first=first, target=target, as_=as_)


def read(
    path: Path,
    source: str,
    size: int | None,
    strict: bool,
    target: str | None = None,
    as_: str | None = None,
    groups: Any = None,
    drop: str | Sequence[str] = (),
) -> Parts:
    """The parts that a file or folder has of its own."""
    if not path.exists():
        if source.replace("_", "").replace("-", "").isalnum():
            raise RequestError(f"{unknown('data', source, BUNDLED)}; nor is there a file or folder of that name")
        raise RequestError(f"there is no {path}: {KINDS} ({', '.join(BUNDLED)})")
    tabular = path / LIST if path.is_dir() and is_listed(path) else path
    if tabular.is_file() and tabular.suffix.lower() in SUFFIXES:
        cells = read_cells(tabular)
        if path.is_dir() or lists(path, cells):
            if _joined(drop).strip(" ,"):
                raise RequestError(f"drop={_joined(drop)} is for tables: name the column of labels by target")
            return _as(listed(tabular, cells, target, size, strict, groups), as_)
        _refuse_size(size)
        return read_table(path, cells, target, groups, drop, as_)
    if path.is_dir() and is_masked(path):
        if groups is not None:
            raise RequestError("groups of masks are not known: leave groups out")
        if as_ not in (None, "images"):
            raise RequestError(f"as_={as_} is for examples without masks: leave it out")
        return masked(path, size, strict)
    if path.is_dir():
        _refuse_target(target)
    if path.is_dir() and not is_cifar(path) and not is_idx(path):
        if (suffix := kind_of_files(path)) is not None:
            _refuse_size(size)
            return each_a_file(path, suffix, as_, groups)
        return _as(folder(path, size, strict, groups), as_)
    _refuse_size(size)
    if path.is_file():
        if _strange(path):
            raise RequestError(f"{path} is of an unknown kind: {KINDS} ({', '.join(BUNDLED)})")
        return npz(path, target, as_, groups)
    if not path.is_dir():
        raise RequestError(f"{path} is neither a file nor a folder: {KINDS} ({', '.join(BUNDLED)})")
    return _grouped(_as(cifar(path) if is_cifar(path) else idx(path), as_), groups)


def _refuse_size(size: int | None) -> None:
    if size is not None:
        raise RequestError(f"size={size} is for folders of images: leave it out")


def _refuse_target(target: str | None) -> None:
    if target not in (None, "classes"):
        raise RequestError(f"target={target} is for arrays, .npz files and Datasets, and this data holds classes")


def _carve(name: str, parts: Parts, cut: Shares) -> Data:
    """Divide what a source gives, and take the statistics of what is left for training."""
    own = parts.val if cut.val > 0 else None
    target = parts.target
    own_strata = None if parts.val is None else strata_of(target, parts.val.y)
    classes = parts.classes if target.kind == "classes" else None
    groups = parts.groups or {}
    chosen = choose(
        strata_of(target, parts.train.y), own_strata, parts.test is not None, classes, cut, groups.get("train")
    )
    train = parts.train.subset(chosen.train) if len(chosen.train) < len(parts.train) else parts.train
    val = own if chosen.val is None else parts.train.subset(chosen.val)
    if own is not None and chosen.own_val is not None:
        val = own.subset(chosen.own_val)
    test = parts.test if chosen.test is None else parts.train.subset(chosen.test)
    divided = {"train": train, "val": val, "test": test}
    notes = parts.notes + chosen.notes + _straddling(groups) + leaks(divided)
    table = None
    if parts.table is not None and isinstance(train, Examples):
        table = parts.table.fitted(train.x)
        train = Examples(table.encode(train.x), train.y)
        val, test = (Examples(table.encode(p.x), p.y) if isinstance(p, Examples) else p for p in (val, test))
    notes += absent(divided, classes) if classes else []
    if equal_channels(train):
        notes.append("The three channels of every image are equal: the model sees each grey image three times.")
    if isinstance(train, Files):
        mean, std = statistics(_sample(train))
        notes.append(f"Mean and deviation are those of {min(SAMPLE, len(train))} training images.")
        shape: tuple[int, ...] = (train.channels, *train.size)
    else:
        mean, std = statistics(train.x)
        shape = tuple(train.x.shape[1:])
    overlap = 0.0 if chosen.test is None else len(chosen.test) / chosen.pool
    fitted = target.fitted(train.y)
    notes += unlike(fitted, train.y)
    whole = [part if isinstance(part, Files) else digest(part) for part in (parts.train, parts.val, parts.test)]
    texts = isinstance(train, Examples) and train.x.dtype == torch.int8
    scaled = parts.scaled or table is not None or texts  # a table's features are scaled, and texts have no scale
    kept = (None, None) if scaled else (mean, std)
    return Data(
        name, train, val, test, parts.classes, shape, kept[0], kept[1], notes, overlap=overlap, grouped=bool(groups),
        target=fitted, whole=whole, table=table, decoded=parts.decoded, texts_of=parts.texts_of,
        columns=parts.columns, flattened=parts.flattened,
    )  # fmt: skip


def _straddling(groups: dict[str, Tensor]) -> list[str]:
    """Groups that a source's own parts share."""
    found = []
    for part, words in WORDS.items():
        if part in groups and (count := len(set(groups[part].tolist()) & set(groups["train"].tolist()))):
            those = f"{count} groups" if count > 1 else "a group"
            found.append(f"The training part shares {those} with the {words} examples: the source is divided so.")
    return found


def _sample(files: Files) -> Tensor:
    """Decoded files, evenly spaced."""
    return torch.stack([files[place][0] for place in spaced(len(files), SAMPLE)])
