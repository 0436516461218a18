"""The sites of an atlas: data sets, each with two numbers of labels to train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fallow.atlas import made
from fallow.base.errors import RequestError
from fallow.base.files import expanded

FILES = {  # of --data-dir
    "mnist": (100, 300),
    "fashion_mnist": (100, 300),
    "cifar10_sub": (100, 300),
    "cifar100_sub": (200, 600),
    "pets32": (200, 600),
    "adrenalmnist3d_64": (100, 300),
}


@dataclass(frozen=True)
class Made:
    """A data set that is written into the atlas' folder: its labels, its test examples, how it is made, from what."""

    labels: tuple[int, int]
    test: int
    arrays: Callable[..., made.Arrays]
    as_: str | None = None
    file: str = ""  # of --data-dir


MADE = {
    "digits": Made((100, 300), 797, made.digits),
    "wine": Made((40, 80), 78, made.wine),
    "breast_cancer": Made((100, 300), 169, made.breast_cancer),
    "shapes": Made((100, 300), 2000, lambda: made.noisy(made.shapes, 2500), "signals"),
    "heartbeats": Made((100, 300), 2000, lambda: made.noisy(made.beats, 2500), "signals"),
    "summaries": Made((100, 300), 200, made.summaries),
}
MADE_OF = {
    "omniglot20": Made((80, 160), 160, made.characters, file="omniglot28"),
    "rte": Made((100, 300), 1000, made.sentences, file="rte"),
}
DRAWN = {"synthetic": (100, 300)}  # bundled, and new for every seed


@dataclass(frozen=True)
class Site:
    """A data set with so many labels to train on; all that it has, where nothing is said."""

    data: str
    source: str
    labels: int | None = None
    as_: str | None = None

    @property
    def name(self) -> str:
        """For its folder and its column.

        >>> Site("mnist", "data/mnist.npz", 300).name
        'mnist-300'
        """
        return f"{self.data}-{self.labels or 'all'}"


def sites(data_dir: Path | None, folder: Path) -> list[Site]:
    """Those of the published atlas: what can be made, and with ``data_dir`` the files that it must hold."""
    found = [Site(name, name, labels) for name, both in DRAWN.items() for labels in both]
    for name, each in MADE.items():
        written = made.write(folder / "data" / f"{name}.npz", each.arrays(), each.test)
        found += [Site(name, str(written), labels, each.as_) for labels in each.labels]
    if data_dir is None:
        return found
    home = expanded(data_dir)
    wanted = [*FILES, *(each.file for each in MADE_OF.values())]
    if missing := [name for name in wanted if not (home / f"{name}.npz").is_file()]:
        raise RequestError(f"{home} has no {missing[0]}.npz: leave --data-dir out, or name the data sets to add")
    for name, each in MADE_OF.items():
        written = made.write(folder / "data" / f"{name}.npz", each.arrays(home / f"{each.file}.npz"), each.test)
        found += [Site(name, str(written), labels, each.as_) for labels in each.labels]
    return found + [Site(name, str(home / f"{name}.npz"), labels) for name, two in FILES.items() for labels in two]


def site(source: str, labels: int | None) -> Site:
    """A data set of the user's own."""
    from fallow.data import bundled

    return Site(source if bundled(source) else expanded(source).resolve().stem, source, labels)
