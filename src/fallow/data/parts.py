"""What a source gives: the parts that it has of its own, before anything is carved."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.data.examples import Examples, Files
from fallow.data.groups import grouped
from fallow.data.split import balanced, folds, stratified
from fallow.data.tables import DataTable
from fallow.data.targets import Target
from fallow.data.texts import TextsOf


@dataclass
class Parts:
    """The parts of a source; validation and test may be missing."""

    train: Examples | Files
    val: Examples | Files | None
    test: Examples | Files | None
    target: Target
    notes: list[str] = field(default_factory=list)
    groups: dict[str, Tensor] | None = None  # by part, what belongs together; of "train" at least
    table: DataTable | None = None  # of which x holds the rows, not encoded yet
    texts_of: TextsOf = ()  # where the texts stood
    flattened: tuple[int, ...] = ()  # the shape that image files were decoded to before they became features
    columns: tuple[str, ...] = ()  # of a table: those of pixels or samples, in their order
    decoded: bool = False  # from image files: pictures, however dark
    scaled: bool = False  # on a scale that is part of the data: it stays

    @property
    def classes(self) -> list[str]:
        """The names of the classes, or of what else the target has."""
        return list(self.target.names)


@dataclass(frozen=True)
class Shares:
    """How much of what to have: a number of training examples (None: all), and fractions for the rest."""

    train: int | None
    val: float
    test: float
    seed: int
    fold: tuple[int, int] | None = None  # the test part is this one of so many folds, whatever ``test`` says

    def __post_init__(self) -> None:
        if self.fold is not None and not 0 <= self.fold[0] < self.fold[1] >= 2:
            raise RequestError(f"fold is {self.fold}: give (i, k), fold i of k, i from 0 and k from 2")
        for name, value in (("val", self.val), ("test", self.test)):
            if not 0 <= value < 1:
                raise RequestError(f"{name} is {value}: give a fraction from 0 (none) to below 1")
        if self.train is not None and self.train < 1:
            raise RequestError(f"train is {self.train}: give a number of examples, at least 1")

    def beside(self, train: int, classes: int) -> int:
        """Examples to validate with beside ``train`` training examples: in proportion, one of each class."""
        return max(classes, round(train * self.val / (1 - self.val)))


@dataclass(frozen=True)
class Chosen:
    """Indices into the source's training part; ``own_val`` into its own validation part, if that is cut."""

    train: Tensor
    val: Tensor | None
    test: Tensor | None
    own_val: Tensor | None
    pool: int  # the examples of which ``train`` was kept
    notes: list[str]


def strata_of(target: Target, y: Tensor) -> Tensor:
    """What to balance the parts by; all examples are one stratum where the target has none."""
    strata = target.strata(y)
    return torch.zeros(len(y), dtype=torch.long) if strata is None else strata


def choose(
    y: Tensor,
    own_val: Tensor | None,
    own_test: bool,
    classes: list[str] | None,
    cut: Shares,
    groups: Tensor | None = None,
) -> Chosen:
    """Choose by strata: test first, then validation, then the training examples to keep.

    ``y`` are the strata of the source's training part, ``own_val`` those of its validation part if any. Every part
    has some of each of the ``classes``; without classes, strata only balance the parts. What is of one of ``groups``
    stays on one side.
    """
    notes: list[str] = []
    if cut.fold is not None and own_test:
        raise RequestError("the data have a test part of their own: folds are for data without one")
    carve_test = (cut.test > 0 or cut.fold is not None) and not own_test
    carve_val = cut.val > 0 and own_val is None
    _check_counts(y, classes, carve_val, carve_test, groups)
    least, split = (1, balanced) if classes is None else (len(classes), stratified)

    def carve(pool: Tensor, number: int, seed: Generator) -> tuple[Tensor, Tensor]:
        if groups is None:
            return split(y[pool], number, seed)
        kept, carved = grouped(y[pool], groups[pool], number, seed, classes=classes is not None)
        _check_sides(y[pool], kept, carved, classes)
        return kept, carved

    seeds = [torch.Generator().manual_seed(mix(cut.seed, purpose)) for purpose in range(4)]
    pool, val, test = torch.arange(len(y)), None, None
    if cut.fold is not None:
        this, number = cut.fold
        where = folds(y, number, seeds[0], groups)
        pool, test = (where != this).nonzero()[:, 0], (where == this).nonzero()[:, 0]
        _check_sides(y, pool, test, classes)
        notes.append(f"{len(test)} examples{_of(groups, test)}, a fold of {number}, are for testing.")
    elif carve_test:
        pool, test = carve(pool, max(least, round(cut.test * len(y))), seeds[0])
        notes.append(f"{len(test)} examples{_of(groups, test)} were set aside for testing.")
    if cut.train is not None and cut.train < least:
        raise RequestError(f"train={cut.train} is too few for {least} classes: keep at least one of each")
    if carve_val:
        if cut.train is None:
            wanted = max(least, round(cut.val * len(pool)))
        else:
            wanted = min(len(pool) - cut.train, cut.beside(cut.train, least))
            if wanted < least:
                raise RequestError(
                    f"train={cut.train} leaves {max(0, wanted)} of {len(pool)} examples for validation: "
                    f"ask for at most {len(pool) - least}, or val=0"
                )
        kept, carved = carve(pool, wanted, seeds[1])
        pool, val = pool[kept], pool[carved]
        notes.append(f"{len(val)} training examples{_of(groups, val)} were set aside for validation.")
    candidates = len(pool)
    if cut.train is not None:
        if cut.train > len(pool):
            raise RequestError(f"train={cut.train} is more than the {len(pool)} training examples there are")
        if cut.train < len(pool):
            notes.append(f"{cut.train} of {len(pool)} training examples were kept.")
            pool = pool[split(y[pool], len(pool) - cut.train, seeds[2])[0]]
    small_val = None
    if own_val is not None and cut.val > 0 and cut.train is not None:
        fitting = cut.beside(cut.train, least)
        if fitting < len(own_val):
            small_val = split(own_val, len(own_val) - fitting, seeds[3])[0]
            notes.append(f"{fitting} of {len(own_val)} validation examples were kept, to match train={cut.train}.")
    return Chosen(pool, val, test, small_val, candidates, notes)


def _of(groups: Tensor | None, chosen: Tensor) -> str:
    if groups is None:
        return ""
    count = groups[chosen].unique().numel()
    return f" of {count} group{'s' * (count != 1)}"


def _check_sides(y: Tensor, kept: Tensor, carved: Tensor, classes: list[str] | None) -> None:
    """Refuse a split of whole groups that leaves a part, or a part without some class."""
    for side in (kept, carved):
        missing = torch.tensor(sorted(set(y.unique().tolist()) - set(y[side].unique().tolist()))).long()
        if len(side) == 0 or (classes and len(missing)):
            what = f"class {classes[int(missing[0])]!r}" if classes and len(missing) else "any example"
            raise RequestError(
                f"no choice of whole groups leaves {what} to every part: take smaller groups, "
                "or say val=0 or test=0 (fallow train --val 0, --test 0)"
            )


def _check_counts(
    y: Tensor, classes: list[str] | None, carve_val: bool, carve_test: bool, groups: Tensor | None
) -> None:
    """Each class (or all examples together) needs an example, or a group, for training and each carved part."""
    strata = y if classes else torch.zeros_like(y)
    if groups is not None:
        strata = torch.stack([strata, groups], 1).unique(dim=0)[:, 0]
    present, counts = torch.unique(strata, return_counts=True)
    needs = ["training"] + ["validation"] * carve_val + ["test"] * carve_test
    scarce = int(counts.argmin())
    if counts[scarce] < len(needs):
        spare = " or ".join(["val=0"] * carve_val + ["test=0"] * carve_test)
        typed = ", ".join(["--val 0"] * carve_val + ["--test 0"] * carve_test)
        what = f"class {classes[int(present[scarce])]!r} has" if classes else "there are"
        remedy = "add some, remove the class" if classes else "add some"
        if classes and len(classes) > 2 and all(name.lstrip("-").isdigit() for name in classes):
            remedy += ", say target='numbers' (--target numbers, of a table COLUMN:numbers) if these are not classes"
        raise RequestError(
            f"{what} {int(counts[scarce])} of the {len(needs)} {'examples' if groups is None else 'groups'} that "
            f"{', '.join(needs)} need: {remedy}" + (f", or say {spare} (fallow train {typed})" if spare else "")
        )
