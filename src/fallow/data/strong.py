"""FixMatch's strong augmentation: each image by two operations of its own, then a square cut out, all in one batch.

As in `fallow.data.augment`, drawing is apart from applying. By hand: kornia's RandAugment draws two operations for the
whole batch instead of two for each image, and one kornia operation per image is a loop over images. Here six of the
fourteen operations are tables of 256 values and five are places to fetch a pixel from, so that one gather serves all
images of a kind. Every operation gives what Pillow's gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import conv2d

from fallow.base.errors import RequestError
from fallow.data.augment import cutout

GREY = 127  # of the square
TURN = 30.0  # degrees, to either side
SLANT = 0.3  # of a shear, and the share of a side by which an image is moved


@dataclass(frozen=True)
class Strong:
    """What happens to each image of a batch; index it to get what happens to a slice."""

    operation: Tensor  # n × 2, numbers of OPERATIONS, one after the other
    magnitude: Tensor  # n × 2, from 0 to 1
    centre: Tensor  # n × 2, of the square, as shares of the height and the width

    def __getitem__(self, index: slice | Tensor) -> Strong:
        return Strong(self.operation[index], self.magnitude[index], self.centre[index])


def draw_strong(n: int, shape: Sequence[int], generator: Generator) -> Strong:
    """Draw what happens to ``n`` images of this shape: operations, magnitudes and places all uniformly."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise RequestError(f"strong augmentation is for grey or colour images, and an example has {tuple(shape)}")
    operation = torch.randint(len(OPERATIONS), (n, 2), generator=generator)
    return Strong(operation, torch.rand(n, 2, generator=generator), torch.rand(n, 2, generator=generator))


def apply_strong(x: Tensor, strong: Strong) -> Tensor:
    """Augment each image of ``x``, pixels from 0 to 255 in any dtype; a new tensor of the same dtype.

    >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    >>> apply_strong(images, draw_strong(4, (3, 32, 32), torch.Generator().manual_seed(0))).shape
    torch.Size([4, 3, 32, 32])
    """
    pixels = x.clone() if x.dtype == torch.uint8 else x.round().clamp(0, 255).to(torch.uint8)
    for stage in range(strong.operation.shape[1]):
        operate(pixels, strong.operation[:, stage], strong.magnitude[:, stage])
    cutout(pixels, strong.centre, GREY)
    return pixels.to(x.dtype)


def operate(x: Tensor, operation: Tensor, magnitude: Tensor) -> None:
    """One operation for each image of uint8, in place. ``operation`` and ``magnitude`` are on the host."""
    for kinds, apply in ((TABLES, _look_up), (PLACES, _fetch)):
        rows = [(operation == NUMBER[name]).nonzero()[:, 0] for name in kinds]
        chosen = torch.cat(rows)
        if len(chosen):
            apply(x, chosen, [len(r) for r in rows], magnitude)
    for name, change in BLENDS.items():
        chosen = (operation == NUMBER[name]).nonzero()[:, 0]
        if len(chosen):
            where, factor = chosen.to(x.device), _factor(magnitude[chosen]).to(x.device)
            some = x.index_select(0, where)
            x.index_copy_(0, where, _blend(change(some), some.float(), factor.view(-1, 1, 1, 1)).to(torch.uint8))


# ---- tables: a new value for each of the 256, per image and channel ------------------------------------------------


def _look_up(x: Tensor, chosen: Tensor, counts: list[int], magnitude: Tensor) -> None:
    where = chosen.to(x.device)
    some = x.index_select(0, where)
    strength = magnitude[chosen].to(x.device)
    parts = zip(TABLES.values(), some.split(counts), strength.split(counts), strict=True)
    tables = torch.cat([make(part, m).expand(-1, x.shape[1], -1) for make, part, m in parts])  # n × C × 256
    x.index_copy_(0, where, tables.gather(2, some.flatten(2).long()).view_as(some))


def _values(x: Tensor) -> Tensor:
    return torch.arange(256, device=x.device, dtype=torch.float32).view(1, 1, 256)


def _bytes(table: Tensor) -> Tensor:
    return table.clamp(0, 255).to(torch.uint8)  # cut off, not rounded, as Pillow does


def auto_contrast(x: Tensor, magnitude: Tensor) -> Tensor:
    """Stretch each channel to 0…255."""
    low, high = x.flatten(2).aminmax(dim=2)
    low, high = (value[..., None].double() for value in (low, high))  # Pillow's tables are in double precision
    scale = torch.full_like(high, 255) / (high - low)  # 255 / x would be 255 · (1 / x)
    stretched = _values(x) * scale - low * scale
    return _bytes(torch.where(high > low, stretched, _values(x).double()))


def brightness(x: Tensor, magnitude: Tensor) -> Tensor:
    """Towards black."""
    return _bytes(_values(x) * _factor(magnitude).view(-1, 1, 1))


def contrast(x: Tensor, magnitude: Tensor) -> Tensor:
    """Towards the mean brightness."""
    mean = (_luminance(x).float().mean((1, 2, 3)) + 0.5).floor()
    return _bytes(_blend(mean.view(-1, 1, 1), _values(x), _factor(magnitude).view(-1, 1, 1)))


def equalize(x: Tensor, magnitude: Tensor) -> Tensor:
    """A flat histogram of each channel: the sum of the counts below a value, in steps of (all − the last) / 255."""
    rows = x.flatten(2).flatten(0, 1).long()
    counts = torch.zeros(len(rows), 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(1, rows, torch.ones_like(rows))
    last = counts.gather(1, rows.amax(1, keepdim=True))
    step = (rows.shape[1] - last) // 255
    below = counts.cumsum(1) - counts
    flat = (step // 2 + below) // step.clamp(min=1)
    table = torch.where(step > 0, flat, _values(x)[0].long())
    return _bytes(table.view(*x.shape[:2], 256))


def posterize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Keep 4 to 8 bits."""
    dropped = 4 - (magnitude * 5).long().clamp(max=4)
    return _bytes((_values(x).long() >> dropped.view(-1, 1, 1)) << dropped.view(-1, 1, 1))


def solarize(x: Tensor, magnitude: Tensor) -> Tensor:
    """Turn the values from a threshold on to their negatives."""
    return _bytes(torch.where(_values(x) < 256 * magnitude.view(-1, 1, 1), _values(x), 255 - _values(x)))


# ---- places: where in the image each pixel comes from; black where that is outside ---------------------------------


def _fetch(x: Tensor, chosen: Tensor, counts: list[int], magnitude: Tensor) -> None:
    where = chosen.to(x.device)
    some = x.index_select(0, where)
    height, width = x.shape[2:]
    parts = zip(PLACES.values(), magnitude[chosen].split(counts), strict=True)
    rows = torch.cat([torch.stack(make(2 * m - 1, height, width), 1) for make, m in parts])  # n × 6: both signs alike
    a, b, c, d, e, f = rows.to(x.device).float().view(-1, 6, 1, 1).unbind(1)
    across = torch.arange(width, device=x.device).view(1, 1, -1) + 0.5
    down = torch.arange(height, device=x.device).view(1, -1, 1) + 0.5
    column, row = (a * across + b * down + c).floor(), (d * across + e * down + f).floor()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row * width + column).long().mul_(inside).flatten(1)[:, None].expand(-1, x.shape[1], -1)
    fetched = some.flatten(2).gather(2, place).view_as(some)
    x.index_copy_(0, where, fetched.mul_(inside[:, None]))


Place = tuple[Tensor, ...]  # (x, y) comes from (a·x + b·y + c, d·x + e·y + f)


def rotate(m: Tensor, height: int, width: int) -> Place:
    """By up to 30 degrees about the centre, counter-clockwise for m > 0."""
    angle = torch.deg2rad(-TURN * m.double())
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    return cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y


def shear_x(m: Tensor, height: int, width: int) -> Place:
    """Shift rows by their height."""
    return _place(m, b=SLANT * m)


def shear_y(m: Tensor, height: int, width: int) -> Place:
    """Shift columns by their distance from the left."""
    return _place(m, d=SLANT * m)


def translate_x(m: Tensor, height: int, width: int) -> Place:
    """Shift to the side."""
    return _place(m, c=SLANT * width * m)


def translate_y(m: Tensor, height: int, width: int) -> Place:
    """Shift up or down."""
    return _place(m, f=SLANT * height * m)


def _place(m: Tensor, **changed: Tensor) -> Place:
    start = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0, "e": 1.0, "f": 0.0}
    m = m.double()
    return tuple(changed.get(key, torch.full_like(m, value)).double() for key, value in start.items())


# ---- blends with another image -------------------------------------------------------------------------------------


def _luminance(x: Tensor) -> Tensor:
    """ITU-R 601-2 in 16-bit fixed point, n × 1 × H × W."""
    if x.shape[1] == 1:
        return x.int()
    red, green, blue = x.int().split(1, dim=1)
    return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16


def _grey(x: Tensor) -> Tensor:
    return _luminance(x).float()


def _smooth(x: Tensor) -> Tensor:
    """The mean with the eight neighbours, the pixel itself counted five times; the edge stays."""
    n, channels, height, width = x.shape
    smooth = x.float()
    if min(height, width) >= 3:
        kernel = torch.ones(1, 1, 3, 3, device=x.device)
        kernel[0, 0, 1, 1] = 5
        inner = conv2d(smooth.view(n * channels, 1, height, width), kernel)
        smooth[:, :, 1:-1, 1:-1] = (inner / 13 + 0.5).floor().view(n, channels, height - 2, width - 2)
    return smooth


def _factor(magnitude: Tensor) -> Tensor:
    """From 5 % to 95 % of the image is left."""
    return 0.05 + 0.9 * magnitude


def _blend(other: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    """Other + factor·(x − other), cut to whole numbers: for factors up to 1 nothing leaves 0…255."""
    return (other + factor * (x - other)).floor()


TABLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "auto-contrast": auto_contrast, "brightness": brightness, "contrast": contrast, "equalize": equalize,
    "posterize": posterize, "solarize": solarize,
}  # fmt: skip
PLACES: dict[str, Callable[[Tensor, int, int], Place]] = {
    "rotate": rotate, "shear-x": shear_x, "shear-y": shear_y, "translate-x": translate_x, "translate-y": translate_y,
}  # fmt: skip
BLENDS: dict[str, Callable[[Tensor], Tensor]] = {"color": _grey, "sharpness": _smooth}
OPERATIONS = (
    "auto-contrast", "brightness", "color", "contrast", "equalize", "identity", "posterize", "rotate", "sharpness",
    "shear-x", "shear-y", "solarize", "translate-x", "translate-y",
)  # fmt: skip
NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
