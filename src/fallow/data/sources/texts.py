"""A folder of texts: one folder of .txt files per class, perhaps under train/, val/ and test/."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from fallow.base.errors import RequestError
from fallow.data.answers import index_labels
from fallow.data.examples import Examples
from fallow.data.groups import of_files
from fallow.data.images import SUFFIXES
from fallow.data.parts import Parts
from fallow.data.sources.places import beside, files_below, folders_in, printable, refuse_parts_below, splits
from fallow.data.sources.table import decoded
from fallow.data.targets import Classes
from fallow.data.texts import as_bytes, encoded

TXT = ".txt"


def holds_texts(root: Path) -> bool:
    """Whether there are texts in the folders of a folder, and more of them than images, which may have captions."""
    suffixes = Counter(path.suffix.lower() for place in folders_in(root) for path in files_below(place))
    return suffixes[TXT] > sum(suffixes[suffix] for suffix in SUFFIXES)


def text_folder(root: Path, groups: str | None = None) -> Parts:
    """Read every .txt as one text; files whose names are the same before the separator ``groups`` belong together."""
    notes: list[str] = []
    places = splits(root)
    beside(root, places, notes)
    files = {part: _files(base, notes) for part, base in places.items()}
    classes, ys = index_labels({part: np.array([printable(p.name) for p, _ in held]) for part, held in files.items()})
    paths = {part: [path for _, path in held] for part, held in files.items()}
    xs = as_bytes({part: encoded([decoded(path.read_bytes()) for path in held]) for part, held in paths.items()})
    if empty := sum(int((~x.flatten(1).any(1)).sum()) for x in xs.values()):
        notes.append(f"{empty} file{'s are' if empty > 1 else ' is'} empty.")
    together = None if groups is None else of_files(paths, groups, notes)
    parts = {part: Examples(xs[part], y) for part, y in ys.items()}
    train, val, test = (parts.get(part) for part in ("train", "val", "test"))
    assert train is not None
    return Parts(train, val, test, Classes(classes), notes, together, texts_of="files")


def read_files(place: Path) -> dict[str, str]:
    """The texts of a folder's files, or of one file, by name."""
    if not place.exists():
        raise RequestError(f"there is no file or folder {place}")
    paths = sorted(files_below(place)) if place.is_dir() else [place]
    found = [path for path in paths if path.suffix.lower() == TXT and path.is_file()]
    if not found:
        raise RequestError(f"{place} holds no {TXT} files: name those of the texts to predict")
    return {str(path): decoded(path.read_bytes()) for path in found}


def _files(base: Path, notes: list[str]) -> list[tuple[Path, Path]]:
    """The folder and the path of every text of a part, in a fixed order."""
    places = folders_in(base)
    refuse_parts_below(places)
    found: list[tuple[Path, Path]] = []
    others = 0
    for place in places:
        files = sorted(path for path in files_below(place) if path.is_file())
        texts = [path for path in files if path.suffix.lower() == TXT]
        if not texts:
            raise RequestError(f"class {printable(place.name)!r} in {base} has no {TXT}: add some, or remove it")
        others += len(files) - len(texts)
        found += [(place, path) for path in texts]
    if others:
        notes.append(f"{others} file{'s' * (others > 1)} in {printable(base.name)} left alone: not {TXT}.")
    return found
