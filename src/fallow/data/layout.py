"""Arrays in the layouts people keep them in, to the one layout that fallow computes in."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.precision import require_fine
from fallow.data.scales import DARK, same_scale

KINDS = {
    "images": "images, grey or in colours", "signals": "channels over time", "features": "rows of numbers",
    "texts": "texts, or pairs of them",
}  # fmt: skip
COLOURS = (1, 3, 4)  # an axis of this length can be one of channels
LEAST, LONGEST = 4, 2.0  # the shorter side of an image; how many times as long the other may be
SMOOTH, ALIKE = 0.2, 0.4  # correlation of neighbouring pixels; that of one axis as a share of the other's
CLIPPED = 0.01  # the share of pixels that are quite black or quite white
SAMPLE = 1024  # examples to look at
OWN: tuple[Literal["C"], Literal["W"]] = ("C", "W")  # what torch takes over as it is: contiguous, and writable
SHAPES = "give features N×F, signals N×C×L or images N×H×W or N×H×W×C"


def layout(
    arrays: dict[str, NDArray[Any]], notes: list[str], *, channels_first: bool = False, as_: str | None = None
) -> dict[str, Tensor]:
    """The examples of every part, channels first: uint8 images or volumes, float32 otherwise.

    ======  =================================================================
    N×F     features
    N×A×B   grey images if they look like it (`like_images`), else signals:
            N×C×L, or N×L×C where the first is more than twice the other
    4 axes  images: the last axis is the channels if its length is 1, 3 or 4,
            else the second is (``channels_first`` looks at the second first);
            if neither is, volumes N×D×H×W
    5 axes  volumes N×C×D×H×W; N×D×H×W×C if the last axis alone could be C
    ======  =================================================================

    ``as_`` decides where content should not: "images" (features of a square number become squares), "signals",
    "features" (anything is flattened). Four channels of uint8 are RGBA: laid on white. Images and volumes of whole
    numbers in 0…255 are uint8, whatever type they came in.

    >>> laid = layout({"train": np.zeros((4, 8, 8), np.uint8)}, [])
    >>> laid["train"].shape, laid["train"].dtype
    (torch.Size([4, 1, 8, 8]), torch.uint8)
    """
    for part, array in arrays.items():
        if array.ndim not in range(2, 6) or array.size == 0:
            raise RequestError(f"x of {part} has shape {array.shape}: {SHAPES}")
    train = arrays["train"]
    kind = as_ or ("features" if train.ndim == 2 else "images")
    if as_ is None and train.ndim == 3 and train.dtype != np.uint8:
        kind = "images" if like_images(train) else "signals"
        notes += _other(kind, train.shape)
        if kind == "signals" and train.shape[1] > LONGEST * train.shape[2]:  # channels are fewer than steps
            arrays = {part: np.moveaxis(array, 1, 2) if array.ndim == 3 else array for part, array in arrays.items()}
    elif as_ is None and train.ndim == 3 and not like_images(train):
        notes.append(
            "Arrays of three axes in bytes were read as grey images, and do not look like any: "
            "as_='signals' (--as signals) if they are none."
        )
    laid = {part: _laid(array, kind, channels_first, notes, as_ is not None) for part, array in arrays.items()}
    if kind in ("features", "signals"):
        what = "column {} of x" if kind == "features" else "channel {} of x"
        require_fine(np.moveaxis(laid["train"], 1, -1).reshape(-1, laid["train"].shape[1]), what)
    if kind == "images":
        same_scale(laid)
        if all(map(_bytes, laid.values())):
            same = {part: array.astype(np.uint8, copy=False) for part, array in laid.items()}
            return {part: torch.from_numpy(_opaque(array, notes)) for part, array in same.items()}
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return {part: torch.from_numpy(np.require(a, np.float32, OWN)) for part, a in laid.items()}


def like_images(array: NDArray[Any]) -> bool:
    """Whether N×A×B numbers look like grey images rather than signals of A channels.

    Their sides are comparable; neighbours are alike along both of them, which channels rarely are; and the values are
    those of pixels: none negative, or many at the very end of the range, where a sensor clips or a background lies.
    (Standardised photographs have neither; squares that are smooth both ways are taken for them.)

    >>> ramp = np.add.outer(np.arange(8.0), np.arange(8.0))
    >>> like_images(np.stack([ramp, ramp.T[::-1], 2 * ramp[::-1]])), like_images(np.random.randn(9, 8, 8))
    (True, False)
    """
    short, long = sorted(array.shape[1:])
    if short < LEAST or long > LONGEST * short:
        return False
    some = array[np.linspace(0, len(array) - 1, min(SAMPLE, len(array))).astype(int)].astype(np.float64)
    if not np.isfinite(some).all():
        return False
    low, high = some.min(), some.max()
    clipped = max(float((some == low).mean()), float((some == high).mean())) >= CLIPPED
    if not (low >= 0 or clipped or short == long):
        return False
    rough, smooth = sorted(_neighbours(some, axis) for axis in (1, 2))
    return rough >= SMOOTH and rough >= ALIKE * smooth


def _neighbours(array: NDArray[np.float64], axis: int) -> float:
    """The correlation of values with the next along an axis, over what examples differ in."""
    centred = np.moveaxis(array - array.mean(0), axis, 1)
    before, after = centred[:, :-1], centred[:, 1:]
    scale = math.sqrt(float((before**2).sum()) * float((after**2).sum()))
    return float((before * after).sum()) / scale if scale > 0 else 0.0


def _other(kind: str, shape: tuple[int, ...]) -> list[str]:
    """What to say of a choice that could have been another."""
    short, long = sorted(shape[1:])
    if kind == "images":
        return ["Arrays of three axes look like grey images and were read so: as_='signals' (--as signals) if not."]
    if shape[1] > LONGEST * shape[2]:
        return [
            f"Arrays of three axes were read as {shape[1]} steps of {shape[2]} channels, N×time×channels: "
            "as_='signals' (--as signals) if they are N×channels×time."
        ]
    if short < LEAST or long > 2 * LONGEST * short:
        return []  # nobody would take these for images
    return [f"Arrays of three axes were read as signals of {shape[1]} channels: as_='images' (--as images) if not."]


def _laid(array: NDArray[Any], kind: str, channels_first: bool, notes: list[str], asked: bool) -> NDArray[Any]:
    """Channels second; what cannot be of the kind that was asked for is refused."""
    if kind == "features":
        return array.reshape(len(array), -1)
    if kind == "signals":
        if array.ndim > 3:
            raise RequestError(f"x of shape {array.shape} cannot be signals: give N×L or N×C×L")
        return array[:, None] if array.ndim == 2 else array
    if array.ndim == 2:
        side = math.isqrt(array.shape[1])
        if side * side != array.shape[1]:
            raise RequestError(f"x of shape {array.shape} cannot be images: give N×H×W, or N×F of squares")
        array = array.reshape(-1, side, side)
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 5:
        return np.moveaxis(array, 4, 1) if _only(array, 4, 1) and not channels_first else array
    axes = [axis for axis in ((1, 3) if channels_first else (3, 1)) if array.shape[axis] in COLOURS]
    if axes:
        return np.moveaxis(array, axes[0], 1)
    if asked:  # of any number of channels: images are square more often than channels are as many as rows
        first = channels_first or array.shape[1] != array.shape[2] == array.shape[3]
        return array if first else np.moveaxis(array, 3, 1)
    notes.append(
        "Arrays of four axes without one of 1, 3 or 4 channels are read as volumes of one channel: "
        "as_='images' (--as images) if they are images of more channels."
    )
    return array[:, None]


def _only(array: NDArray[Any], axis: int, other: int) -> bool:
    """Whether one axis, and not the other, is as short as one of channels."""
    return array.shape[axis] in COLOURS and array.shape[other] not in COLOURS


def _bytes(array: NDArray[Any]) -> bool:
    """Whether values are whole numbers in 0…255; floats must look like a picture's besides."""
    if array.dtype == np.uint8:
        return True
    if not 0 <= array.min() <= array.max() <= 255:  # NaN is in no range
        return False
    return array.dtype.kind in "iu" or (array.max() > DARK and bool((array == np.rint(array)).all()))


def _opaque(images: NDArray[np.uint8], notes: list[str]) -> NDArray[np.uint8]:
    """RGBA laid on white; other images as torch takes them."""
    if images.ndim != 4 or images.shape[1] != 4:
        return np.require(images, requirements=OWN)
    notes.append("The fourth channel was read as transparency: the images were laid on white.")
    return on_white(images)


def on_white(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Red, green, blue and opacity (…×4×H×W) laid on white, three channels."""
    alpha = images[..., 3:, :, :].astype(np.float32) / 255
    return (images[..., :3, :, :] * alpha + 255 * (1 - alpha)).round().astype(np.uint8)


def relaid(x: Tensor, as_: str | None) -> Tensor:
    """Examples that are laid out already as what was asked for.

    >>> relaid(torch.zeros(5, 3, 2, 2, dtype=torch.uint8), "features").shape
    torch.Size([5, 12])
    """
    if as_ == "features":
        return x.flatten(1).float()
    if as_ is not None and x.ndim != {"images": 4, "signals": 3}.get(as_):
        raise RequestError(f"examples of shape {tuple(x.shape[1:])} cannot be {as_}: leave as_ (--as) out")
    return x


def numeric(x: Any, what: str, *, as_: str | None = None) -> NDArray[Any]:
    """Anything that holds numbers as an array; truth values become 0 and 1 in features, and else black and white.

    ``as_`` says what they are read as; where it is not known, rows of them are features.

    >>> numeric(np.array([[True, False]]), "x").tolist(), numeric(np.array([[[True, False]]]), "x").tolist()
    ([[1, 0]], [[[255, 0]]])
    """
    array = x.detach().cpu() if isinstance(x, Tensor) else x
    array = array.float() if isinstance(array, Tensor) and array.dtype == torch.bfloat16 else array
    try:
        array = np.asarray(array)
    except ValueError as error:  # rows of unequal lengths
        raise RequestError(f"{what} is not an array ({error}): give rows of equal lengths") from error
    if array.dtype == object and all(isinstance(value, Number | np.bool_) for value in array.flat):
        array = array.astype(np.float64)  # columns of several kinds, as pandas gives them
    if array.dtype == bool:
        white = 1 if as_ == "features" or (as_ is None and array.ndim == 2) else 255
        return array.astype(np.uint8) * np.uint8(white)
    if array.dtype.kind not in "iuf":
        raise RequestError(f"{what} has dtype {array.dtype}: give numbers (uint8 pixels or float features)")
    return array
