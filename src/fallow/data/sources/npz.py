"""Arrays in a NumPy archive; no pickles are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fallow.base.errors import RequestError
from fallow.base.machine import memory
from fallow.data.arrays import from_arrays
from fallow.data.groups import numbered, read_groups
from fallow.data.parts import Parts
from fallow.data.texts import is_text

YS = ("y", "labels", "label", "targets", "target", "masks", "mask")
TEXTS = (  # the first text of an example, and the second if there is one
    ("s1", "sentence1", "text1", "premise", "question"),
    ("s2", "sentence2", "text2", "hypothesis", "answer"),
)
XS = (
    "x", "images", "image", "data", "features", "inputs", "signals", "signal", "series", "spectra", "sequences",
    "volumes", "texts", "text", "sentence", *TEXTS[0],
)  # fmt: skip
SPLITS = {"train": ("train",), "val": ("val", "valid", "validation", "dev"), "test": ("test",)}
NAMES = ("class_names", "classes", "label_names", "names")


def npz(path: Path, target: str | None = None, as_: str | None = None, groups: Any = None) -> Parts:
    """Read x_train, y_train, perhaps x_val, y_val, x_test, y_test, or just x, y; other arrays are left alone.

    Instead of x: images, signals, features and the like (XS); instead of y: labels, targets, masks; the part before or
    after (train_images); small or capital letters. Strings are texts: x, text, sentence, or pairs of them, s1 and s2
    (sentence1 and sentence2, premise and hypothesis). An array of class names is used where it fits the labels.
    ``target`` is the kind of y, ``as_`` that of x, where they are not to be guessed; ``groups`` names the array of
    groups, which may have parts too (groups_train), or is one.
    """
    try:
        with path.open("rb") as file:  # which NumPy would leave open where the archive is damaged
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise RequestError(f"{path} is a single array: save x and y together with numpy.savez")
            return _parts(path, archive, target, as_, groups)
    except RequestError:
        raise
    except Exception as error:  # a damaged archive makes NumPy raise many kinds
        raise RequestError(f"{path} is not a readable .npz ({error}): save it with numpy.savez") from error


def _parts(path: Path, archive: Any, target: str | None, as_: str | None, groups: Any) -> Parts:
    found = {key.lower(): key for key in archive.files}
    keys = {part: _pair(path, found, spellings) for part, spellings in SPLITS.items()}
    if keys["train"] is None:
        keys["train"] = _pair(path, found, ("",))
    if keys["train"] is None:
        raise RequestError(
            f"{path} holds {', '.join(archive.files) or 'nothing'}: "
            "name its arrays x and y, or x_train, y_train, x_test, y_test (x_val, y_val)"
        )
    fits(path, archive, [key for pair in keys.values() if pair is not None for key in pair])
    pairs = {
        part: (examples_of(path, archive, found, pair[0]), _read(path, archive, pair[1]))
        for part, pair in keys.items()
        if pair is not None
    }
    listed = next((found[name] for name in NAMES if name in found), None)
    names = None if listed is None else _read(path, archive, listed)
    usable = names is not None and names.ndim == 1 and names.dtype.kind == "U"
    listed_names = names.tolist() if usable and names is not None else None
    parts = from_arrays(pairs, names=listed_names, target=target, as_=as_)
    if belonging := _groups(path, archive, found, groups, pairs):
        parts.groups = numbered(belonging)
        parts.notes.append(f"Examples of a group stay together: {int(parts.groups['train'].max()) + 1} groups.")
    elif beside := _beside(archive, keys, pairs["train"][1]):
        parts.notes.append(
            f"{beside} in {path.name} is ignored: if it says what belongs together (a patient, a recording), "
            f"add --groups {beside}."
        )
    return parts


def _beside(archive: Any, used: dict[str, Any], y: NDArray[Any]) -> str | None:
    """An array that nothing reads, of names or numbers for the training examples, more of them than classes."""
    taken = {key for pair in used.values() if pair is not None for key in pair}
    for key in archive.files:
        known = key in taken or any(name in key.lower() for name in (*NAMES, *TEXTS[1], *YS[1:]))
        if known or archive.zip.getinfo(f"{key}.npy").file_size > 64 * len(y) + 1024:
            continue
        values = archive[key]
        if values.shape == (len(y),) and values.dtype.kind in "iuU" and len(set(values.tolist())) > len(np.unique(y)):
            return str(key).removesuffix("_train").removeprefix("train_")
    return None


def _groups(
    path: Path, archive: Any, found: dict[str, str], asked: Any, pairs: dict[str, tuple[Any, Any]]
) -> dict[str, NDArray[Any]]:
    """The groups of every part that has them: those asked for, else an array of that name."""
    name = asked.lower() if isinstance(asked, str) else "groups" if asked is None else ""
    keys = {
        part: next((found[key] for split in SPLITS[part] for key in _keys(name, split) if key in found), None)
        for part in pairs
    }
    keys["train"] = keys["train"] or found.get(name)
    if keys["train"] is None:
        given = {} if asked is None else {"train": read_groups(asked)}
    else:
        given = {part: read_groups(_read(path, archive, key)) for part, key in keys.items() if key is not None}
    for part, values in given.items():
        if len(values) != len(pairs[part][1]):
            raise RequestError(f"{path} has {len(values)} groups for {len(pairs[part][1])} examples of {part}")
    return given


def fits(path: Path, archive: Any, keys: list[str]) -> None:
    """Refuse what memory cannot hold before it is read."""
    needed = sum(archive.zip.getinfo(info).file_size for info in archive.zip.namelist() if info[:-4] in keys)
    if needed > memory() // 2:
        raise RequestError(
            f"{path} holds {needed >> 30} GiB of numbers, more than half of this machine's memory: "
            "save fewer, or images as a folder of files"
        )


def _pair(path: Path, found: dict[str, str], spellings: tuple[str, ...]) -> tuple[str, str] | None:
    """The keys of x and y for a part."""
    for split in spellings:
        x, y = (
            next((found[key] for name in names for key in _keys(name, split) if key in found), None)
            for names in (XS, YS)
        )
        if x and y:
            return x, y
        if x or y:
            missing, name = ("labels", YS[0]) if x else ("examples", XS[0])
            others = ", ".join(key for key in found.values() if key != (x or y))
            there = f"; if they are among {others}, call them" if others else ": save both, the other as"
            raise RequestError(f"{path} holds {x or y} without its {missing}{there} {_keys(name, split)[0]}")
    return None


def examples_of(path: Path, archive: Any, found: dict[str, str], key: str) -> Any:
    """The array of examples; of texts N×2 where there is the second array of a pair."""
    x = _read(path, archive, key)
    if not is_text(x):
        return x
    twins = (key.lower().replace(first, second) for first, second in zip(*TEXTS, strict=True) if first in key.lower())
    twin = next((found[name] for name in twins if name in found), None)
    if twin is None:
        return x
    others = _read(path, archive, twin)
    if others.shape != x.shape or not is_text(others):
        raise RequestError(
            f"{key} and {twin} in {path} are not pairs of texts: {x.dtype} {x.shape} and {others.dtype} {others.shape}"
        )
    return np.stack([x, others], 1)


def _keys(name: str, split: str) -> tuple[str, ...]:
    return (f"{name}_{split}", f"{split}_{name}") if split else (name,)


def _read(path: Path, archive: Any, key: str) -> NDArray[Any]:
    try:
        return archive[key]
    except ValueError as error:  # NumPy refuses to unpickle
        raise RequestError(
            f"{key} in {path} is an array of objects: save numbers (or strings) only, "
            "examples of unequal lengths cut or filled to one length"
        ) from error
