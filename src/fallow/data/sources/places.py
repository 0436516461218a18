"""Which folders there are in a folder, and which of them are its parts: train/, val/ and test/."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fallow.base.errors import RequestError
from fallow.data.images import SUFFIXES

SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}
PART_OF = {word: part for part, words in SPLITS.items() for word in words}
LIKE_PARTS = {  # other words for parts and folds, which may be classes' names where no folders of classes are in them
    "trainval", "traindev", "eval", "evaluation", "development", "devel", "holdout", "fold", "folds", "cv", "partition",
    "labelled", "labeled", "unlabelled", "unlabeled",
}  # fmt: skip
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
LETTERS = re.compile(r"[^a-z]+")  # what parts the words of a name


def hidden(name: str) -> bool:
    """Whether a name is hidden, or of what archivers of macOS leave."""
    return name[0] == "." or name == "__MACOSX"


def folders_in(root: Path) -> list[Path]:
    """Folders in a folder, without hidden ones."""
    return sorted(p for p in root.iterdir() if p.is_dir() and not hidden(p.name))


def files_below(root: Path) -> Iterator[Path]:
    """Files and the like at any depth, without hidden ones and what is in hidden folders (.ipynb_checkpoints)."""
    for parent, below, names in os.walk(root):
        below[:] = [name for name in below if not hidden(name)]  # which os.walk then leaves out
        yield from (Path(parent) / name for name in names if not hidden(name))


def has_images(place: Path) -> bool:
    """Whether images lie in a folder itself."""
    return any(entry.suffix.lower() in SUFFIXES for entry in place.iterdir())


def parts_in(root: Path) -> dict[str, Path]:
    """The folders that are called as parts are."""
    below = {entry.name.lower(): entry for entry in folders_in(root)}
    found = {part: next((below[n] for n in names if n in below), None) for part, names in SPLITS.items()}
    return {part: place for part, place in found.items() if place is not None}


def splits(root: Path) -> dict[str, Path]:
    """The folder of each part: train/ and its like if there is a train/ with folders, else the root."""
    found = parts_in(root)
    if "train" in found and folders_in(found["train"]):
        return found
    if like := _like_parts(root) or _same_below(root):
        raise RequestError(
            f"{root} holds {', '.join(like)}: these look like parts, not classes; call them train/, val/ and test/, "
            "with one folder of images per class in each, or put all examples of a class into one folder"
            f"{or_table(root)}"
        )
    return {"train": root}


def or_table(root: Path) -> str:
    """The end of a sentence on a folder that cannot be learned from, but holds a table that perhaps can."""
    found = sorted(path for path in root.iterdir() if path.suffix.lower() in TABLES and not hidden(path.name))
    wanted = sorted(found, key=lambda path: "train" not in path.name.lower())
    return f"; or name a table, as in {wanted[0]}" if wanted else ""


def beside(root: Path, places: dict[str, Path], notes: list[str]) -> None:
    """Say which folders lie beside those of the parts."""
    if root not in places.values() and (others := [p.name for p in folders_in(root) if p not in places.values()]):
        known = ", ".join(f"{base.name}/" for base in places.values())
        like = any((PART_OF.keys() | LIKE_PARTS).intersection(LETTERS.split(name.lower())) for name in others)
        free = " or ".join(f"{part}/" for part in ("val", "test") if part not in places)
        use = f" (fallow reads what is called {free})" if like and free else ""
        notes.append(f"Ignored beside {known}: {', '.join(map(printable, others))}{use}.")


def nested(places: dict[str, Path], notes: list[str]) -> None:
    """Say which folders are the classes where each holds nothing but folders, of the same names."""
    classes = folders_in(places["train"])
    below = [_only_folders(place) for place in classes]
    if len(classes) > 1 and (same := sorted(set.intersection(*below))):
        outer, inner = (_listed([printable(name) for name in names]) for names in ([p.name for p in classes], same))
        notes.append(f"The classes are the folders {outer}; {inner} in each of them are no classes.")


def _listed(names: list[str]) -> str:
    """Two names, and that there are more."""
    return ", ".join(names[:2]) + ", …" * (len(names) > 2)


def _only_folders(place: Path) -> set[str]:
    """The names of the folders in one that holds no examples itself; none if it does."""
    if any(entry.suffix.lower() in (*SUFFIXES, ".npy", ".txt") for entry in place.iterdir()):
        return set()
    return {entry.name for entry in folders_in(place)}


def refuse_parts_below(classes: list[Path]) -> None:
    """Refuse cat/train, cat/test: all would be taken together, and the parts forgotten."""
    for place in classes:
        if "train" in (found := parts_in(place)) and len(found) > 1:
            first, second, *_ = (base.name for base in found.values())
            raise RequestError(
                f"{place} holds parts, {first}/ and {second}/: put them first, {first}/{place.name} and "
                f"{second}/{place.name}"
            )


def _like_parts(root: Path) -> list[str]:
    """Folders that would be learned as classes, but are parts: of two kinds at least, or a train_set/ of folders."""
    found: dict[str, str] = {}
    outer = False
    for place in folders_in(root):
        parts = {PART_OF[word] for word in LETTERS.split(place.name.lower()) if word in PART_OF}
        around = bool(folders_in(place)) and not has_images(place)  # it holds the classes
        if len(parts) == 1 and (around or LETTERS.sub("", place.name.lower()) in PART_OF):  # train2017 is train
            found[place.name] = parts.pop()
            outer |= around and found[place.name] == "train"
    return list(found) if outer or len(set(found.values())) > 1 else []


def _same_below(root: Path) -> list[str]:
    """Folders called much like parts or folds; those without images of their own hold the same folders, of classes."""
    words = PART_OF.keys() | LIKE_PARTS
    like = [place for place in folders_in(root) if words.intersection(LETTERS.split(place.name.lower()))]
    below = [{entry.name for entry in folders_in(place)} for place in like if not has_images(place)]
    return [place.name for place in like] if len(like) > 1 and below and set.intersection(*below) else []


def printable(name: str) -> str:
    r"""A file's name as text: bytes that are no UTF-8 are written out.

    >>> printable("caf\udce9")
    'caf\\xe9'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
