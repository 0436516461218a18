"""Arrays in the layouts people keep them in, to the one layout that fallow computes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.answers import understand
from fallow.data.examples import Examples
from fallow.data.parts import Parts

Pair: TypeAlias = tuple[Any, Any]

COLOURS = (1, 3, 4)  # an axis of this length can be one of channels


def from_arrays(
    pairs: dict[str, Pair],
    *,
    names: Sequence[str] | None = None,
    channels_first: bool = False,
    target: str | None = None,
) -> Parts:
    """Parts from arrays: ``pairs`` maps "train", perhaps "val" and "test", to (x, y).

    ``names`` are names of classes (labels, numbers), used where they fit; ``target`` is the kind of y, where it is
    not to be guessed (see `fallow.data.answers.kind_of`).

    >>> x, y = np.zeros((4, 8, 8), np.uint8), np.array(["cat", "dog", "cat", "dog"])
    >>> parts = from_arrays({"train": (x, y)})
    >>> parts.train.x.shape, parts.train.y.tolist(), parts.classes
    (torch.Size([4, 1, 8, 8]), [0, 1, 0, 1], ['cat', 'dog'])
    """
    notes: list[str] = []
    laid = {key: (layout(x, f"x of {key}", channels_first, notes), y) for key, (x, y) in pairs.items()}
    parts = from_tensors(laid, names=names, target=target)
    parts.notes = [*dict.fromkeys(notes), *parts.notes]  # once, not once for each part
    return parts


def from_tensors(
    pairs: dict[str, tuple[Tensor, Any]], *, names: Sequence[str] | None = None, target: str | None = None
) -> Parts:
    """Parts from tensors that are laid out as `Examples` wants them, with any answers."""
    train = pairs["train"][0]
    notes: list[str] = []
    understood, ys = understand({key: y for key, (_, y) in pairs.items()}, train, notes, names=names, asked=target)
    for key, (x, _) in pairs.items():
        if len(x) != len(ys[key]):
            raise RequestError(f"{key} has {len(x)} examples but {len(ys[key])} labels: give one for each")
        if x.shape[1:] != train.shape[1:] or x.dtype != train.dtype:
            raise RequestError(
                f"an example of {key} is {x.dtype} {tuple(x.shape[1:])}, "
                f"one of train {train.dtype} {tuple(train.shape[1:])}: give all parts the same kind"
            )
        bad = ~x.isfinite().flatten(1).all(1) if x.is_floating_point() else torch.zeros(0)
        if bad.any():
            raise RequestError(
                f"x of {key} has NaN or infinite values in {int(bad.sum())} examples (the first is number "
                f"{int(bad.nonzero()[0])}): replace them or leave those examples out"
            )
    parts = {key: Examples(x, ys[key]) for key, (x, _) in pairs.items()}
    return Parts(parts["train"], parts.get("val"), parts.get("test"), understood, notes)


def layout(x: Any, what: str, channels_first: bool, notes: list[str]) -> Tensor:
    """An array of examples, channels first: uint8 images or volumes, float32 otherwise.

    ====================  =================================================================
    N×F                   features
    N×H×W, uint8          grey images
    N×C×L, other dtypes   signals
    4 axes                images: the last axis is the channels if its length is 1, 3 or 4,
                          else the second is (``channels_first`` looks at the second first);
                          if neither is, volumes N×D×H×W
    5 axes                volumes N×C×D×H×W
    ====================  =================================================================

    Four channels of uint8 are RGBA: laid on white. With four axes or more, any integers in 0…255 are uint8.
    """
    array = _numeric(x, what)
    if array.ndim == 1 or array.ndim > 5 or array.size == 0:
        raise RequestError(
            f"{what} has shape {array.shape}: give features N×F, signals N×C×L or images N×H×W or N×H×W×C"
        )
    if array.ndim >= 4 and array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255:
        array = array.astype(np.uint8)
    if array.ndim == 3 and array.dtype == np.uint8:
        array = array[:, None]
    elif array.ndim == 4:
        array = _four(array, channels_first, notes)
    if array.dtype == np.uint8 and array.ndim >= 4:
        return torch.from_numpy(_on_white(array, notes))
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def _four(array: NDArray[Any], channels_first: bool, notes: list[str]) -> NDArray[Any]:
    """Channels to the second axis."""
    axes = [axis for axis in ((1, 3) if channels_first else (3, 1)) if array.shape[axis] in COLOURS]
    if axes:
        return np.moveaxis(array, axes[0], 1)
    notes.append("Arrays of four axes without one of 1, 3 or 4 channels were taken for volumes of one channel.")
    return array[:, None]


def _on_white(images: NDArray[np.uint8], notes: list[str]) -> NDArray[np.uint8]:
    """RGBA laid on white; other images only made contiguous."""
    if images.ndim != 4 or images.shape[1] != 4:
        return np.ascontiguousarray(images)
    notes.append("The fourth channel was taken for transparency: the images were laid on white.")
    alpha = images[:, 3:].astype(np.float32) / 255
    return (images[:, :3] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)


def _numeric(x: Any, what: str) -> NDArray[Any]:
    array = x.detach().cpu() if isinstance(x, Tensor) else x
    array = array.float() if isinstance(array, Tensor) and array.dtype == torch.bfloat16 else array
    try:
        array = np.asarray(array)
    except ValueError as error:  # rows of unequal lengths
        raise RequestError(f"{what} is no array ({error}): give rows of equal lengths") from error
    if array.dtype == bool:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind not in "iuf":
        raise RequestError(f"{what} has dtype {array.dtype}: give numbers (uint8 pixels or float features)")
    return array
