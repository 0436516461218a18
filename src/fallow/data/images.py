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
KINDS = "PNG, JPEG, BMP, GIF, TIFF or WebP"


class Header(NamedTuple):
    """What a file says of its image before it is decoded."""

    size: tuple[int, int]  # height, width, upright
    grey: bool
    several: bool  # pages or frames, of which the first is the image


def probe(path: Path) -> Header:
    """The header of an image; a damaged one raises all kinds of errors."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        # A photograph may lie on its side, see `decode`; asking a PNG would decode all of it.
        if image.format != "PNG" and image.getexif().get(0x0112, 1) >= 5:
            width, height = height, width
        grey = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
        return Header((height, width), grey, getattr(image, "is_animated", False))


def decode(path: Path, size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    """The image as channels × height × width, upright, transparency laid on white.

    An image of another size is cut to the right proportions around its centre, then resized
    (bilinear, antialiased). Raises whatever a damaged file makes Pillow raise.
    """
    from PIL import Image, ImageOps

    with Image.open(path, formats=FORMATS) as opened:
        image: Image.Image = ImageOps.exif_transpose(opened)
        image = _flatten(image).convert("L" if channels == 1 else "RGB")
    height, width = size
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), method=Image.Resampling.BILINEAR)
    pixels = np.array(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _flatten(image: Image) -> Image:
    """Without transparency, and in eight bits."""
    from PIL import Image

    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ValueError("pixels of 32 bits: nobody knows what is black and what is white")
    if image.mode.startswith("I"):  # 16 bits: Pillow would clip at 255 where we want to scale
        return Image.fromarray((np.asarray(image).astype(np.float64) / 257).round().astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image.convert("RGBA"))
    return image
