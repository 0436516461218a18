"""What a data set is, once it is loaded: `Examples` in memory, `Files` on disk, `Data` with its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from fallow.base.errors import RequestError, WorkError
from fallow.data.augment import resolve
from fallow.data.content import of_files, of_tensor, together
from fallow.data.images import decode
from fallow.data.scales import DARK
from fallow.data.tables import DataTable
from fallow.data.targets import Classes, Target
from fallow.data.texts import TextsOf
from fallow.data.understood import MOVES, kind, wanted

PARTS = {"train": "training", "val": "validation", "test": "testing", "unlabelled": "learning without labels"}
HELD = ("targets", "data", "samples")  # where Datasets often keep what they hold


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Labelled examples in memory.

    ``x`` holds uint8 images N×C×H×W (or volumes N×C×D×H×W), or float32: features N×F, signals N×C×L, images
    and volumes; or texts as bytes N×K×L (int8) or tokens N×3×L (int64, see `fallow.data.texts`). ``y`` holds int64
    class indices, float32 numbers (N or N×K), labels of 0 and 1 (N×L, uint8 or float32), or an int64 class index for
    every pixel (N×H×W, N×D×H×W, N×L for signals).

    >>> few = Examples(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])).subset(torch.tensor([1, 2]))
    >>> len(few), few.y.tolist()
    (2, [1, 1])
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        dimensions = {torch.uint8: (4, 5), torch.float32: (2, 3, 4, 5), torch.int8: (3,), torch.int64: (3,)}
        if self.x.ndim not in dimensions.get(self.x.dtype, ()):
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

    def __repr__(self) -> str:
        return f"Examples(x: {_form(self.x)}, y: {_form(self.y)})"

    def subset(self, indices: Tensor) -> Examples:
        """The examples at ``indices``, copied."""
        return Examples(self.x[indices], self.y[indices])


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        return f"Files({len(self):,} images, decoded to {self.channels}×{self.size[0]}×{self.size[1]})"

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


def united(one: Part, other: Part) -> Part:
    """Two parts as one.

    >>> a, b = Examples(torch.zeros(2, 1), torch.tensor([0, 1])), Examples(torch.ones(1, 1), torch.tensor([0]))
    >>> united(a, b).y.tolist()
    [0, 1, 0]
    """
    if isinstance(one, Examples) and isinstance(other, Examples):
        return Examples(torch.cat([one.x, other.x]), torch.cat([one.y, other.y]))
    if isinstance(one, Files) and isinstance(other, Files):
        return Files([*one.paths, *other.paths], torch.cat([one.y, other.y]), one.size, one.channels)
    raise RequestError("only examples that fallow loads can be put together: join your own Datasets yourself")


@dataclass(eq=False, repr=False)
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
    grouped: bool = False  # whether what belongs together was kept on one side of every split
    target: Target = None  # type: ignore[assignment]  # what is learned; by default one of the classes
    whole: list[Any] = field(default_factory=list)  # of all that was carved from: digests, or the Files themselves
    size: int | None = None  # pixels a side to which images are resized on the way to a pretrained network
    table: DataTable | None = None  # from whose rows the features were made, with what was learned of the training rows
    texts_of: TextsOf = ()  # where texts stood
    flattened: tuple[int, ...] = ()  # the shape that image files were decoded to before they became features
    columns: tuple[str, ...] = ()  # of a table: those of pixels or samples, in their order
    decoded: bool = False  # from image files: pictures, however dark

    def __post_init__(self) -> None:
        if self.target is None or self.target.kind == "classes":
            self.target = Classes(self.classes)

    def __repr__(self) -> str:
        return f"Data({self.name}: {self._counted()})"

    def normalisation(self) -> dict[str, Any] | None:
        """Mean, standard deviation and perhaps a size as plain values; None where examples are taken as they are."""
        if self.mean is None or self.std is None:
            return None
        size = {} if self.size is None else {"size": self.size}
        return {"mean": self.mean.tolist(), "std": self.std.tolist()} | size

    @property
    def pictures(self) -> bool:
        """Whether examples are what image files hold: bytes from black to white, grey or in colours."""
        in_bytes = isinstance(self.train, Files) or (
            isinstance(self.train, Examples)
            and self.train.x.dtype == torch.uint8
            and (self.decoded or int(self.train.x.max()) > DARK)
        )
        return in_bytes and len(self.shape) == 3 and self.shape[0] in (1, 3)

    @property
    def texts(self) -> bool:
        """Whether examples are texts, as bytes or as tokens already."""
        return isinstance(self.train, Examples) and self.train.x.dtype in (torch.int8, torch.int64)

    @property
    def sizes(self) -> dict[str, int | None]:
        """How many examples each part has; None where only iterating would tell."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        more = {} if self.unlabelled is None else {"unlabelled": len(self.unlabelled)}
        return {key: 0 if part is None else _count(part) for key, part in parts.items()} | more

    def understood(self, augment: str = "auto") -> str:
        """What was understood, in a sentence, for training with this augmentation.

        >>> four = Examples(torch.zeros(4, 1, 8, 8), torch.arange(4) % 2)
        >>> Data("four", four, None, None, ["a", "b"], (1, 8, 8)).understood()
        '4 grey images of 8×8, 2 classes (a, b), 4 for training; not scaled; not augmented'
        """
        if self.texts:
            return self._counted()
        held = isinstance(self.train, Examples | Files)
        return "; ".join([
            self._counted(),
            "scaled inside the model" if self.mean is not None or self.table is not None else "not scaled",
            MOVES[self.policy(augment)] if held else "augmented by the Dataset alone",
        ])  # fmt: skip

    def _counted(self) -> str:
        """How many examples of what there are, what is learned, and the size of each part."""
        sizes = self.sizes
        labelled = [sizes[key] for key in ("train", "val", "test")]
        count = f"{sum(filter(None, labelled)):,} " * (None not in labelled)
        what = (
            ("texts" if self.shape[0] == 1 else "pairs of texts")
            if self.texts
            else kind(self.shape, equal_channels(self.train))
        )
        parts = [f"{sizes[key]:,} for {word}" for key, word in PARTS.items() if sizes.get(key)]
        return ", ".join([f"{count}{what}", wanted(self.target), *parts])

    def policy(self, augment: str) -> str:
        """How to augment: "auto" decided, by what the images show; in three equal channels they are grey."""
        if self.texts:
            if augment not in ("auto", "none", "try"):
                raise RequestError(f"augment={augment} moves pictures, and these are texts: use none")
            return "none"
        if augment == "try":
            return augment
        grey = augment == "auto" and equal_channels(self.train)
        return resolve(augment, (1, *self.shape[1:]) if grey else self.shape)

    def content(self) -> str:
        """What identifies all examples that the data were carved from, whatever the seed, and the unlabelled ones."""
        whole = [digest(part) if isinstance(part, Files) else part for part in self.whole]
        parts = whole or [digest(part) for part in (self.train, self.val, self.test)]
        return together(self.classes, *parts, digest(self.unlabelled))

    def describe(self) -> dict[str, Any]:
        """The data set as plain JSON, with a digest by which a resumed run knows that it is the same data."""
        parts = (self.train, self.val, self.test, self.unlabelled)
        return {
            "name": self.name,
            "sizes": self.sizes,
            "classes": list(self.classes),
            "target": self.target.describe(),
            "shape": list(self.shape),
            "notes": list(self.notes),
            "digest": together(self.classes, *map(digest, parts)),
        }


def _form(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} {'×'.join(map(str, values.shape))}"


def equal_channels(part: Part) -> bool:
    """Whether these are grey images in the three channels of colour ones."""
    if not (isinstance(part, Examples) and part.x.ndim == 4 and part.x.shape[1] == 3):
        return False
    return all(bool((x == x[:, :1]).all()) for x in part.x.split(256))  # most are found out by the first


def _count(part: Part) -> int | None:
    """Examples in a part; None where only iterating would tell."""
    try:
        return len(part.dataset if isinstance(part, DataLoader) else part)  # type: ignore[arg-type]
    except TypeError:
        return None


def digest(part: Part | None) -> bytes:
    """What identifies a part: answers and pixels, the bytes of files, or what can be had of a Dataset."""
    return bytes.fromhex(together(*_pieces(part)))


def _pieces(part: Any) -> list[Any]:
    if isinstance(part, Examples):
        return [of_tensor(part.y), of_tensor(part.x)]
    if isinstance(part, Files):
        return [of_tensor(part.y), part.size, part.channels, *of_files(part.paths)]
    if isinstance(part, DataLoader):
        return [part.batch_size, *_pieces(part.dataset)]
    if isinstance(part, Subset):
        return [list(map(int, part.indices)), *_pieces(part.dataset)]
    if isinstance(part, TensorDataset):
        return [of_tensor(tensor) for tensor in part.tensors]
    if part is None:
        return [None]
    held = [getattr(part, name, None) for name in HELD]  # of others, only iterating would tell more
    return [_count(part), *(of_tensor(h) if isinstance(h, Tensor) else _plain(h) for h in held)]


def _plain(held: Any) -> Any:
    """Arrays and lists as they are; of anything else, which may print its address, nothing."""
    if isinstance(held, np.ndarray) and held.dtype != object:
        return (str(held.dtype), held.shape, held.tobytes())
    return held if isinstance(held, list) and all(isinstance(one, str | int | float | tuple) for one in held) else None
