"""What y is (classes, numbers, labels or masks), and y as fallow keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.precision import require_fine
from fallow.data.targets import Classes, Dense, Labels, Numbers, Target
from fallow.evaluate.metrics import NO_LABEL

MANY, FEW = 20, 5  # more values than this, of which each has fewer examples than that on average, are no classes
IGNORED = 255  # by which many masks say that a pixel has no label
PLAIN: dict[str, Any] = {"strings": str, "bytes": bytes, "numbers": (Number, np.bool_)}  # that objects may be


def understand(
    ys: dict[str, Any], x: Tensor, notes: list[str], *, names: Sequence[str] | None = None, asked: str | None = None
) -> tuple[Target, dict[str, Tensor]]:
    """The target of the answers of every part, and the answers in its terms; ``x`` are the training examples.

    ``asked`` is the kind of target where it is not to be guessed; ``names`` are used where they fit.

    >>> x = torch.zeros(3, 2)
    >>> understand({"train": np.array(["cat", "dog", "cat"])}, x, [])
    (Classes(names=('cat', 'dog')), {'train': tensor([0, 1, 0])})
    >>> understand({"train": np.array([0.5, 2.0, 1.5])}, x, [])
    (Numbers(names=('y',), mean=(0.0,), std=(1.0,)), {'train': tensor([0.5000, 2.0000, 1.5000])})
    """
    size = tuple(x.shape[2:])
    arrays = {part: array_of(y, f"y of {part}", size) for part, y in ys.items()}
    kind = asked or kind_of(arrays["train"], "y of train", size)
    if kind == "classes":
        given = {part: _classes(y, f"y of {part}") for part, y in arrays.items()}
        classes, indices = index_labels(given, names)
        notes += _perhaps_none(np.unique(given["train"]))
        return Classes(classes), indices
    if kind == "dense":
        held = {part: masks(y, f"y of {part}", size) for part, y in arrays.items()}
        classes, indices = _index_masks(held, notes, names)
        return Dense(classes), indices
    convert = numbers if kind == "numbers" else labels
    values = {part: convert(y, f"y of {part}") for part, y in arrays.items()}
    shape = values["train"].shape[1:]
    for part, y in values.items():
        if y.shape[1:] != shape:
            raise RequestError(f"y of {part} has shape {tuple(y.shape)}, y of train {tuple(values['train'].shape)}")
    target = named(kind, shape[0] if shape else 1, names)
    if kind == "labels" and bool((values["train"].sum(1) == 1).all()):
        notes.append("Every example has exactly one label: target='classes' (--target classes) takes them for classes.")
    return target, values


def array_of(y: Any, what: str, size: tuple[int, ...]) -> NDArray[Any]:
    """Integers, finite numbers or strings; an axis of one channel is dropped."""
    held = y.detach().cpu() if isinstance(y, Tensor) else y
    held = held.float() if isinstance(held, Tensor) and held.dtype == torch.bfloat16 else held
    try:
        array = np.asarray(held)
    except ValueError as error:  # rows of unequal lengths
        raise RequestError(f"{what} is not an array ({error}): give rows of equal lengths") from error
    if array.dtype.kind == "O" and array.ndim > 0:
        array = _plain(array, what)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind not in "biufU" or array.ndim == 0:
        raise RequestError(f"{what} has dtype {array.dtype}: give classes, as integers or strings, or numbers")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array).reshape(len(array), -1).all(1)
        if bad.any():
            raise RequestError(
                f"{what} has NaN or infinite values in {int(bad.sum())} examples (the first is number "
                f"{int(bad.argmax())}): replace them or leave those examples out"
            )
    if array.ndim == len(size) + 2:
        axis = next((axis for axis in (1, array.ndim - 1) if array.shape[axis] == 1), None)
        array = array if axis is None else array.squeeze(axis)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _plain(array: NDArray[Any], what: str) -> NDArray[Any]:
    """An array of objects, as pandas keeps labels, as what its items are; only of one kind, strings or numbers."""
    items = array.ravel().tolist()
    rows = [place * len(array) // len(items) for place, item in enumerate(items) if lacking(item)]
    if rows:
        raise RequestError(
            f"{what} is missing in {len(set(rows))} examples (the first is number {rows[0]}): "
            "fill it in, or leave those examples out"
        )
    kinds = {next((name for name, kind in PLAIN.items() if isinstance(i, kind)), type(i).__name__) for i in items}
    if len(kinds) > 1:
        raise RequestError(f"{what} holds {' and '.join(sorted(kinds))}: give strings only, or numbers only")
    return np.array(items).reshape(array.shape) if kinds <= PLAIN.keys() else array


def lacking(item: Any) -> bool:
    """Whether an item stands for none: None, NaN, or what pandas has for them."""
    return item is None or (isinstance(item, float) and item != item) or type(item).__name__ in ("NAType", "NaTType")


def kind_of(y: NDArray[Any], what: str, size: tuple[int, ...]) -> str:
    """The kind of target that answers look like, for examples of this size (without channels).

    =====================================  =======
    y has the size of x                    dense
    N integers, whole numbers or strings   classes
    N numbers with fractions, or floats    numbers
    of which hardly any two are alike
    N×L of zeros and ones                  labels
    N×K with fractions                     numbers
    =====================================  =======

    >>> kind_of(np.array([3, 1, 3]), "y", ()), kind_of(np.array([[0, 1], [1, 1]]), "y", ())
    ('classes', 'labels')
    """
    if size and y.shape[1:] == size:
        return "dense"
    fractions = _fractions(y)
    if y.ndim == 1:
        return "numbers" if fractions or _many(y) else "classes"
    if y.ndim == 2 and y.dtype.kind != "U":
        return "numbers" if fractions else "labels"
    wanted = f" or masks of {'×'.join(map(str, size))}" if size else ""
    raise RequestError(f"{what} has shape {y.shape}: give one label for each example, N×L zeros and ones{wanted}")


def _many(y: NDArray[Any]) -> bool:
    """Whole numbers that are kept as floats, most of them different, are counts or measurements, not classes."""
    return y.dtype.kind == "f" and len(values := np.unique(y)) > MANY and len(y) < FEW * len(values)


def _fractions(y: NDArray[Any]) -> bool:
    return bool(y.dtype.kind == "f" and (y != y.round()).any())


def _classes(y: NDArray[Any], what: str) -> NDArray[Any]:
    """One label per example; rows of zeros with a single one become the places of the ones."""
    if y.ndim == 2 and y.dtype.kind != "U" and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all():
        return y.argmax(1)
    if y.ndim != 1:
        raise RequestError(f"{what} has shape {y.shape}: give one label for each example, not a vector")
    whole = _whole(y, what)
    gaps = _unlabelled(whole)
    if gaps.any() and (whole[~gaps] >= 0).all():
        raise RequestError(
            f"y is {NO_LABEL} in {int(gaps.sum())} examples, by which torch means that they have no label: "
            "leave them out, or give strings if a class is called so"
        )
    return whole


def masks(y: NDArray[Any], what: str, size: tuple[int, ...]) -> NDArray[Any]:
    """A class for each pixel."""
    if not size or y.shape[1:] != size:
        wanted = f"masks of {'×'.join(map(str, size))}, as the examples are" if size else "examples with pixels"
        raise RequestError(f"{what} has shape {y.shape}: give {wanted}")
    return _whole(y, what)


def _unlabelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where y says by −100, as torch's losses do, that there is no label."""
    return y == NO_LABEL if y.dtype.kind == "i" else np.zeros(y.shape, dtype=np.bool_)


def _index_masks(
    held: dict[str, NDArray[Any]], notes: list[str], names: Sequence[str] | None
) -> tuple[list[str], dict[str, Tensor]]:
    """As `index_labels`; pixels without a label are of no class and keep their mark.

    >>> y = np.array([[[3, -100], [1, 3]]])
    >>> _index_masks({"train": y}, [], None)
    (['1', '3'], {'train': tensor([[[   1, -100],
             [   0,    1]]])})
    """
    gaps = {part: _unlabelled(y) for part, y in held.items()}
    for part, gap in gaps.items():
        if len(bare := gap.reshape(len(gap), -1).all(1).nonzero()[0]):
            raise RequestError(
                f"{len(bare)} masks of {part} have no labelled pixel (the first is number {bare[0]}): leave them out"
            )
    values = np.unique(held["train"][~gaps["train"]])
    notes += _odd_values(values)
    if any(gap.any() for gap in gaps.values()):
        share = np.mean(np.concatenate([gap.reshape(-1) for gap in gaps.values()]))
        notes.append(f"{100 * share:.2g} % of the pixels have no label ({NO_LABEL}): they are not learned or judged.")
    filled = {part: np.where(gaps[part], values[0], y) for part, y in held.items()}
    classes, indices = index_labels(filled, names)
    for part, gap in gaps.items():
        indices[part][torch.from_numpy(gap)] = NO_LABEL
    return classes, indices


def _odd_values(values: NDArray[Any]) -> list[str]:
    """What to say of the values of masks: every one is a class, and the lowest is the background.

    >>> _odd_values(np.array([0, 1, 2])), _odd_values(np.array([-1, 0]))
    ([], ['The background of masks is their lowest value, here -1, not 0.'])
    """
    found = []
    if values.dtype.kind in "iu" and values[0] != 0:
        found.append(f"The background of masks is their lowest value, here {values[0]}, not 0.")
    if len(values) > 2 and values[-1] == IGNORED and values[-2] == len(values) - 2:
        found.append(
            f"The masks hold {IGNORED} beside 0 to {values[-2]}: it is learned and judged as a class like the others, "
            f"also if it means 'not labelled'; pixels that are {NO_LABEL} in an array y are left out."
        )
    return found


def _perhaps_none(values: NDArray[Any]) -> list[str]:
    """What to say of a −1 among classes: it often stands for examples without a label.

    >>> len(_perhaps_none(np.array([-1, 0, 1, 2]))), _perhaps_none(np.array([-1, 0, 1]))
    (1, [])
    """
    if len(values) < 4 or values.dtype.kind not in "iu" or values.tolist() != list(range(-1, len(values) - 1)):
        return []
    return [f"y holds −1 beside 0 to {values[-1]}: it is a class like the others; leave out what has no label."]


def _whole(y: NDArray[Any], what: str) -> NDArray[Any]:
    if _fractions(y):
        raise RequestError(f"{what} has fractions: give classes, as integers or strings, or say target='numbers'")
    return y.astype(np.int64) if y.dtype.kind == "f" else y


def numbers(y: NDArray[Any], what: str) -> Tensor:
    """One number per example, or several, as float32."""
    if y.dtype.kind == "U" or y.ndim > 2:
        raise RequestError(f"{what} is {y.dtype} of shape {y.shape}: give numbers, N or N×K")
    with np.errstate(over="ignore"):
        values = y.astype(np.float32)
    if not np.isfinite(values).all():
        raise RequestError(f"{what} goes up to {np.abs(y).max():g}, more than float32 holds: choose another unit")
    require_fine(y.reshape(len(y), -1), what if y.ndim == 1 else f"{what}, column {{}},")
    return torch.from_numpy(values)


def labels(y: NDArray[Any], what: str) -> Tensor:
    """Zeros and ones, a row per example, as float32."""
    if y.ndim != 2 or y.dtype.kind == "U":
        raise RequestError(f"{what} is {y.dtype} of shape {y.shape}: give labels as N×L zeros and ones")
    strange = np.argwhere((y != 0) & (y != 1))
    if len(strange):
        row, column = strange[0].tolist()
        raise RequestError(
            f"{what} holds {y[row, column]:g} in row {row}, column {column}: "
            "give each label as 0 or 1, or say target='numbers'"
        )
    if not y.any():
        raise RequestError(f"{what} has no label in any of the {len(y)} examples: give some that have one")
    return torch.from_numpy(y.astype(np.float32))


def named(kind: str, outputs: int, names: Sequence[str] | None) -> Target:
    """Numbers or labels of these names if there are as many, else by place."""
    if names is None or len(names) != outputs:
        names = [str(place) for place in range(outputs)]
        if kind == "numbers":
            names = ["y"] if outputs == 1 else [f"y{place}" for place in names]
    return Numbers(names) if kind == "numbers" else Labels(names)


def index_labels(
    labels: dict[str, NDArray[Any]], names: Sequence[str] | None = None
) -> tuple[list[str], dict[str, Tensor]]:
    """Class names in sorted order of the labels, and the labels as indices into them.

    >>> index_labels({"train": np.array([3, -1, 3]), "test": np.array([-1])})
    (['-1', '3'], {'train': tensor([1, 0, 1]), 'test': tensor([0])})
    """
    known = np.unique(labels["train"])
    if len(known) < 2:
        found = f"1 class, {_names(known, names)[0]!r}" if len(known) else "no class"
        raise RequestError(f"training holds examples of {found}: give two or more")
    indices = {}
    for part, values in labels.items():
        strange = np.setdiff1d(values, known)
        if len(strange):
            raise RequestError(
                f"class {str(strange[0])!r} is in {part} but not in train: give training examples of it, "
                f"or leave it out of {part}"
            )
        indices[part] = torch.from_numpy(np.searchsorted(known, values).astype(np.int64))
    return _names(known, names), indices


def _names(known: NDArray[Any], names: Sequence[str] | None) -> list[str]:
    """Given names, where they fit: by label, or in order if there are as many as classes."""
    if names is not None and known.dtype.kind in "iu":
        if known[0] >= 0 and known[-1] < len(names):
            return [str(names[label]) for label in known]
        if len(names) == len(known):
            return [str(name) for name in names]
    return [str(label) for label in known.tolist()]
