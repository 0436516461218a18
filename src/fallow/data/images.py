"""Decode image files: PNG, JPEG, BMP, GIF, TIFF and WebP, to uint8, channels first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")  # of all that Pillow knows, what pictures are kept in
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
FLOATS = "have pixels of 32 bits, whose black and white are not known: save them in 8 or 16 bits"
KINDS = "PNG, JPEG, BMP, GIF, TIFF or WebP"


class Header(NamedTuple):
    """What a file says of its image before it is decoded."""

    size: tuple[int, int]  # height, width, upright
    grey: bool
    several: bool  # pages or frames, of which the first is the image
    deep: bool  # 16 bits
    clear: bool  # partly transparent, perhaps


def probe(path: Path) -> Header:
    """The header of an image; a damaged one raises all kinds of errors."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        if _lies(image):
            width, height = height, width
        deep = image.mode.startswith("I")
        grey = deep or image.mode in ("1", "L", "LA") or (image.mode == "P" and _grey(image.getpalette() or []))
        return Header((height, width), grey, getattr(image, "is_animated", False), deep, _clear(image))


def _clear(image: Image) -> bool:
    return image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info


def _lies(image: Image) -> bool:
    """Whether a photograph lies on its side, see `decode`, and its size says so."""
    if image.format == "PNG" and "exif" not in image.info:  # asking would decode all of it
        return False
    if image.format == "TIFF" and image.size != (image.tag_v2.get(256), image.tag_v2.get(257)):  # type: ignore[attr-defined]
        return False  # Pillow has turned it
    return bool(image.getexif().get(0x0112, 1) >= 5)


def _grey(palette: list[int]) -> bool:
    """Whether all colours are grey."""
    return palette[0::3] == palette[1::3] == palette[2::3]


def decode(path: Path, size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    """The image as channels × height × width, upright, transparency laid on white.

    An image of another size is cut to the right proportions around its centre, then resized
    (bilinear, antialiased). Raises whatever a damaged file makes Pillow raise.
    """
    from PIL import Image, ImageOps

    with Image.open(path, formats=FORMATS) as opened:
        image: Image.Image = ImageOps.exif_transpose(opened)
        image = _flatten(image, opened.format).convert("L" if channels == 1 else "RGB")
    height, width = size
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), method=Image.Resampling.BILINEAR)
    pixels = np.array(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def uncut(mask: NDArray[np.uint8], size: tuple[int, int], outside: int = 0) -> NDArray[np.uint8]:
    """A mask of a decoded image in the size (height, width) that the image has; ``outside``, what `decode` cut away.

    >>> uncut(np.array([[1, 2], [3, 4]], np.uint8), (2, 4)).tolist()
    [[0, 1, 2, 0], [0, 3, 4, 0]]
    """
    from PIL import Image

    height, width = size
    scale = min(height / mask.shape[0], width / mask.shape[1])
    inner = round(mask.shape[0] * scale), round(mask.shape[1] * scale)
    top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
    whole = np.full(size, outside, np.uint8)
    resized = Image.fromarray(mask).resize(inner[::-1], Image.Resampling.NEAREST)
    whole[top : top + inner[0], left : left + inner[1]] = np.asarray(resized)
    return whole


def _flatten(image: Image, form: str | None) -> Image:
    """Without transparency, and in eight bits."""
    from PIL import Image

    if image.mode == "F" or (image.mode == "I" and form != "PNG"):
        raise ValueError(FLOATS)
    if image.mode.startswith("I"):  # 16 bits: Pillow would clip at 255 where we want to scale
        return Image.fromarray((np.asarray(image).astype(np.float64) / 257).round().astype(np.uint8))
    if _clear(image):
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image.convert("RGBA"))
    return image
