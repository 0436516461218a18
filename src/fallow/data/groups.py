"""What belongs together (a patient, a recording) stays on one side of every split."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from fallow.base.errors import RequestError
from fallow.base.files import expanded

TRIES = 64  # orders in which the groups are tried
SEVERAL = 10  # values from which on a column may say whose the rows are, and not of which kind
WHOSE = re.compile(  # what such a column is often called
    r"(?:.*[^a-z])?(?:patient|subject|participant|proband|person|animal|donor|speaker|user|customer|client|family"
    r"|household|session|recording|series)[ _.-]?(?:id|nr|no|num|number|code|name)?"
)


def read_groups(given: Any) -> NDArray[Any]:
    """Groups from an array, a sequence, a .npy file, or a text file with a group in every line."""
    if isinstance(given, str | Path):
        path = expanded(given)
        if not path.is_file():
            raise RequestError(f"there is no file {path}: name groups by an array, a .npy or a text file, a line each")
        try:
            if path.suffix == ".npy":
                given = np.load(path, allow_pickle=False)
            else:
                given = np.array(path.read_text("utf-8").split("\n"))
                given = given[:-1] if len(given) and given[-1] == "" else given
        except (OSError, ValueError) as error:
            raise RequestError(f"{path} holds no groups ({error}): give a .npy or a text file, a line each") from error
    groups = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if groups.dtype == object and all(isinstance(name, str) for name in groups.ravel()):  # as pandas keeps names
        groups = groups.astype(str)
    if groups.ndim != 1 or groups.dtype.kind not in "biufUS":
        raise RequestError(f"groups are {groups.dtype} of shape {groups.shape}: give a number or a name per example")
    return groups


def unasked(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence for each column that is called as what belongs together is, and whose values repeat.

    >>> unasked({"patient": [str(i // 2) for i in range(40)], "age": ["7"] * 40})
    ["'patient' has 20 values in 40 rows: if rows of one belong together, --groups patient keeps them on one side."]
    """
    counts = {name: len(set(cells)) for name, cells in columns.items() if WHOSE.fullmatch(name.strip().lower())}
    return [
        f"{name!r} has {count} values in {len(columns[name])} rows: if rows of one belong together, "
        f"--groups {shlex.quote(name)} keeps them on one side."
        for name, count in counts.items()
        if SEVERAL <= count <= len(columns[name]) / 2
    ]


def numbered(groups: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """The groups of every part as numbers that all parts share, in the order in which they come, whatever their names.

    >>> numbered({"train": np.array(["b", "a", "b"]), "test": np.array(["a"])})
    {'train': tensor([0, 1, 0]), 'test': tensor([1])}
    """
    every = np.concatenate(list(groups.values()))
    _, first, inverse = np.unique(every, return_index=True, return_inverse=True)
    number = torch.from_numpy(first.argsort().argsort()[inverse])
    return dict(zip(groups, number.split([len(values) for values in groups.values()]), strict=True))


def from_names(paths: Sequence[Path], separator: str) -> NDArray[Any]:
    """The part of every file's name before the separator.

    >>> from_names([Path("p1_left.png"), Path("p1_right.png"), Path("p2_left.png")], "_").tolist()
    ['p1', 'p1', 'p2']
    """
    if not separator or not any(separator in path.stem for path in paths):
        raise RequestError(f"no file's name has {separator!r} in it: groups of a folder are what is before a separator")
    return np.array([path.stem.partition(separator)[0] for path in paths])


def of_files(paths: dict[str, list[Path]], separator: str, notes: list[str]) -> dict[str, Tensor]:
    """The same as numbers for the files of every part, which is noted."""
    found = numbered({part: from_names(held, separator) for part, held in paths.items()})
    notes.append(f"Files of one name before {separator!r} stay together: {int(found['train'].max()) + 1} groups.")
    return found


def grouped(
    strata: Tensor, groups: Tensor, carve: int, generator: Generator, *, classes: bool = True
) -> tuple[Tensor, Tensor]:
    """Split whole groups into (kept, carved) indices, each ascending, about ``carve`` of them carved.

    Many random orders of the groups are gone through: a group is carved if that brings the carved examples of the
    strata nearer to their shares (by the sum of squared differences). The order that ends nearest is taken; one that
    leaves a stratum on one side only is the last resort. Where all of them do so with one of the ``classes`` (with all
    examples, if strata are none and only balance), they are gone through again, and what brings it to both sides is
    carved however large it is: with a few large groups, none alone would be nearer to a small share than nothing.

    >>> strata, groups = torch.tensor([0, 0, 1, 1] * 3), torch.arange(12) // 4
    >>> kept, carved = grouped(strata, groups, 4, torch.Generator().manual_seed(0))
    >>> len(kept), groups[carved].unique().numel()
    (8, 1)
    """
    _, strata = strata.unique(return_inverse=True)
    names, groups = groups.unique(return_inverse=True)
    kinds = int(strata.max()) + 1
    table = torch.bincount(groups * kinds + strata, minlength=len(names) * kinds).view(-1, kinds).double().numpy()
    totals = table.sum(0)
    wanted = totals * (carve / len(strata))
    order = torch.stack([torch.randperm(len(names), generator=generator) for _ in range(TRIES)]).numpy()

    def one_sided(have: NDArray[Any], all_: NDArray[Any] = totals) -> NDArray[Any]:
        return ((have == 0) | (have == all_)).sum(1)

    def lacking(have: NDArray[Any]) -> NDArray[Any]:
        return one_sided(have) if classes else one_sided(have.sum(1, keepdims=True), totals.sum())

    def gone_through(weight: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What every order carves, and how many of each stratum; what lacks a side is a miss of this weight."""
        taken, have = np.zeros((TRIES, len(names)), bool), np.zeros((TRIES, kinds))
        for place in range(len(names)):
            more = have + table[order[:, place]]
            miss, other = (((some - wanted) ** 2).sum(1) + weight * lacking(some) for some in (have, more))
            taken[np.arange(TRIES), order[:, place]] = other < miss
            have = np.where((other < miss)[:, None], more, have)
        return taken, have

    taken, have = gone_through(0)
    if lacking(have).all():
        taken, have = gone_through(len(strata) ** 2)
    miss = (one_sided(have) + lacking(have)) * len(strata) ** 2 + ((have - wanted) ** 2).sum(1)
    carved = torch.from_numpy(taken[int(miss.argmin())])[groups]
    return (~carved).nonzero()[:, 0], carved.nonzero()[:, 0]
