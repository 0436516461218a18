"""What a data set is, once it is loaded: `Examples` in memory, `Files` on disk, `Data` with its parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from fallow.base.errors import RequestError, WorkError
from fallow.data.images import decode
from fallow.data.targets import Classes, Target


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples in memory.

    ``x`` holds uint8 images N×C×H×W (or volumes N×C×D×H×W), or float32: features N×F, signals N×C×L, images
    and volumes. ``y`` holds int64 class indices, float32 numbers (N or N×K), labels of 0 and 1 (N×L, uint8 or
    float32), or an int64 class index for every pixel (N×H×W, N×D×H×W, N×L for signals).

    >>> few = Examples(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).subset(torch.tensor([1, 2]))
    >>> len(few), few.y.tolist()
    (2, [1, 1])
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        dimensions = range(4, 6) if self.x.dtype == torch.uint8 else range(2, 6)
        if self.x.dtype not in (torch.uint8, torch.float32) or self.x.ndim not in dimensions:
            raise RequestError(
                f"x is {self.x.dtype} of shape {tuple(self.x.shape)}: "
                "give uint8 images N×C×H×W, or float32 features N×F, signals N×C×L or images N×C×H×W"
            )
        if self.y.shape[:1] != self.x.shape[:1] or not self._answers():
            raise RequestError(
                f"y is {self.y.dtype} of shape {tuple(self.y.shape)}: give one int64 class index for each of the "
                f"{len(self.x)} examples, float32 numbers N or N×K, labels N×L, or int64 masks of the size of x"
            )

    def _answers(self) -> bool:
        """Whether y is of one of the kinds there are."""
        if self.y.dtype == torch.int64:
            return self.y.ndim == 1 or self.y.shape[1:] == self.x.shape[2:]
        return (self.y.dtype, self.y.ndim) in ((torch.float32, 1), (torch.float32, 2), (torch.uint8, 2))

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, indices: Tensor) -> Examples:
        """The examples at ``indices``, copied."""
        return Examples(self.x[indices], self.y[indices])


@dataclass(frozen=True, eq=False)
class Files(Dataset[tuple[Tensor, int]]):
    """Images too many for memory, decoded when they are asked for (see `fallow.data.images.decode`).

    A map-style Dataset of (uint8 C×H×W, label): worker processes of a DataLoader can share the decoding.
    """

    paths: list[Path]
    y: Tensor
    size: tuple[int, int]
    channels: int

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        try:
            pixels = decode(path, self.size, self.channels)
        except Exception as error:  # Pillow raises many kinds for a damaged file
            raise WorkError(f"{path} cannot be read ({error}): repair or remove it") from error
        return torch.from_numpy(pixels), int(self.y[index])

    def subset(self, indices: Tensor) -> Files:
        """The files at ``indices``."""
        return Files([self.paths[i] for i in indices.tolist()], self.y[indices], self.size, self.channels)


Part: TypeAlias = Examples | Files | Dataset[Any] | DataLoader[Any]


@dataclass(eq=False)
class Data:
    """A data set in its parts, ready for `fallow.data.stream`.

    ``mean`` and ``std`` are per channel (per feature for N×F), of the training part only, on the scale of the
    stored values; None where values have no scale, as the numbers of words have none.
    """

    name: str
    train: Part
    val: Part | None
    test: Part | None
    classes: list[str]  # their names; also of labels, numbers, and the classes of pixels
    shape: tuple[int, ...]  # of one example, channels first
    mean: Tensor | None = None
    std: Tensor | None = None
    notes: list[str] = field(default_factory=list)  # sentences on what was done: resized, skipped, carved
    origin: dict[str, Any] | None = None  # the arguments of ``load`` that give it again; None for what is in memory
    unlabelled: Examples | None = None  # images to learn from; their y says where they are from, for diagnosis only
    overlap: float = 0.0  # where each seed carves another test part: its size by that of the pool to train on
    target: Target = None  # type: ignore[assignment]  # what is learned; by default one of the classes
    size: int | None = None  # pixels a side to which images are resized on the way to a pretrained network

    def __post_init__(self) -> None:
        if self.target is None or self.target.kind == "classes":
            self.target = Classes(self.classes)

    def normalisation(self) -> dict[str, Any] | None:
        """Mean, standard deviation and perhaps a size as plain values; None where examples are taken as they are."""
        if self.mean is None or self.std is None:
            return None
        size = {} if self.size is None else {"size": self.size}
        return {"mean": self.mean.tolist(), "std": self.std.tolist()} | size

    @property
    def pictures(self) -> bool:
        """Whether examples are what image files hold: bytes, grey or in colours."""
        in_bytes = isinstance(self.train, Files) or (
            isinstance(self.train, Examples) and self.train.x.dtype == torch.uint8
        )
        return in_bytes and len(self.shape) == 3 and self.shape[0] in (1, 3)

    def describe(self) -> dict[str, Any]:
        """The data set as plain JSON, with a digest by which a resumed run knows that it is the same data."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        more = {} if self.unlabelled is None else {"unlabelled": len(self.unlabelled)}
        digests = digest(self.train) if self.unlabelled is None else digest(self.train) + digest(self.unlabelled)
        return {
            "name": self.name,
            "sizes": {key: 0 if part is None else _count(part) for key, part in parts.items()} | more,
            "classes": list(self.classes),
            "target": self.target.describe(),
            "shape": list(self.shape),
            "notes": list(self.notes),
            "digest": digests,
        }


def _count(part: Part) -> int | None:
    """Examples in a part; None where only iterating would tell."""
    try:
        return len(part.dataset if isinstance(part, DataLoader) else part)  # type: ignore[arg-type]
    except TypeError:
        return None


def digest(part: Part) -> str:
    """sha256 of labels and pixels in memory, of names and lengths on disk, of the choice from a Dataset."""
    content = hashlib.sha256()
    if isinstance(part, Examples):
        content.update(part.y.numpy().data)
        content.update(part.x.contiguous().numpy().data)
    elif isinstance(part, Files):  # reading every byte of a data set that is too large for memory is not cheap
        content.update(part.y.numpy().data)
        for path in part.paths:
            content.update(f"{path.parent.name}/{path.name} {path.stat().st_size}\n".encode())
    else:
        indices = part.indices if isinstance(part, Subset) else ()
        content.update(f"{_count(part)} {list(indices)}".encode())
    return content.hexdigest()
