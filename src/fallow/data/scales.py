"""Whether images are on one scale: bytes, fractions of one, standardised, or of more bits than eight."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fallow.base.errors import RequestError

DARK = 31  # bytes that never exceed this are no picture's: a class for each pixel, or digits of 0 to 16
WHITE = 255
DEEP = 1000  # what goes beyond is of 10 bits or more
OVERSHOT = -0.2  # below black by so much at most may be what is left of resizing fractions of one
FAR = 100  # standard deviations between the mean of images and that of the training images: another scale


def rescaled(low: float, high: float) -> bool:
    """Whether floats of this range are fractions of one, or small and of both signs, as standardised images are.

    >>> rescaled(0, 1), rescaled(-2.1, 2.6), rescaled(0, 255), rescaled(-3.2, 258)
    (True, True, False, False)
    """
    return low < high and (high <= 1 or (low < 0 and high <= DARK))


def same_scale(parts: dict[str, NDArray[Any]]) -> None:
    """Refuse parts of which one is in bytes, in fractions, standardised, or of more bits, and another is not."""
    ends = {part: (array.min(), array.max()) for part, array in parts.items()}
    for part, (low, high) in ends.items():
        small = parts[part].dtype.kind == "f" and rescaled(low, high)
        fractions = small and low >= 0
        shallow = parts[part].dtype == np.uint8
        for other, (lowest, highest) in ends.items():
            brighter = small and highest > DARK and (lowest >= 0 or high <= 1)
            if brighter or (fractions and lowest < OVERSHOT) or (shallow and highest > DEEP):
                raise RequestError(
                    f"x of {part} goes from {low:g} to {high:g}, x of {other} from {lowest:g} to {highest:g}: "
                    "give all parts the same scale"
                )


def as_trained(x: Tensor, mean: Tensor, std: Tensor, pictures: bool) -> None:
    """Refuse images of another scale than those of this mean and deviation; ``pictures`` were in bytes.

    What is of one value, black or white, may be of any scale.
    """
    low, high, bright = float(x.min()), float(x.max()), float((mean + std).max())
    floats = x.is_floating_point()
    if pictures and floats and 0 <= low < high <= 1 < bright:
        raise RequestError(
            "the scale cannot be right: x is in 0…1, and the model was trained on bytes of 0…255: give 255·x"
        )
    if pictures:
        other = floats and rescaled(low, high) and bright > 1
    else:  # of any scale: what is small may be so by itself, but not in fractions of one alone
        other = -1 <= low < high <= 1 and bright > DARK and bool((x != x.round()).any())
        other |= x.dtype == torch.uint8 and float(mean.min()) > WHITE
    centre = x.float().mean([axis for axis in range(x.ndim) if axis != 1]).cpu()
    if other or (high > DARK and bool(((centre - mean).abs() > FAR * std.clamp_min(1e-12)).all())):
        raise RequestError(
            f"the scale cannot be right: x goes from {low:g} to {high:g}, "
            f"and the model was trained on about {float(mean.mean()):.3g} ± {float(std.mean()):.3g}"
        )
