"""A folder of images and one of masks, in which each pixel has its class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fallow.base.errors import RequestError
from fallow.data.arrays import from_tensors
from fallow.data.images import FORMATS, SUFFIXES
from fallow.data.parts import Parts
from fallow.data.sources.folder import Found, folders_in, read_images

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGES, MASKS = ("images", "image", "imgs"), ("masks", "mask", "labels")


def _pair(root: Path) -> tuple[Path, Path] | None:
    below = {entry.name.lower(): entry for entry in folders_in(root)}
    first, second = (next((below[name] for name in names if name in below), None) for names in (IMAGES, MASKS))
    return (first, second) if first is not None and second is not None else None


def is_masked(path: Path) -> bool:
    """Whether a folder holds images/ and masks/."""
    return _pair(path) is not None


def masked(root: Path, size: int | None, strict: bool = False) -> Parts:
    """Read images and, for each, the mask of the same name; their grey values are the classes."""
    pair = _pair(root)
    assert pair is not None
    paths = sorted(p for p in pair[0].iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    own = {p.stem: p for p in pair[1].iterdir() if p.suffix.lower() in SUFFIXES and p.is_file()}
    if not paths:
        raise RequestError(f"{pair[0]} holds no images: give some, and a mask for each in {pair[1]}")
    for path in paths:
        if path.stem not in own:
            raise RequestError(f"{path} has no mask: give {pair[1] / path.stem}.png, or leave the image out")
    others = [entry.name for entry in folders_in(root) if entry not in pair]
    notes = [f"Beside {pair[0].name}/ and {pair[1].name}/, {', '.join(others)} left alone."] if others else []
    images = read_images(root, [Found("train", path.stem, path) for path in paths], size, strict, notes)
    if images.pixels is None:
        raise RequestError(f"the images of {root} are too many for memory: give a smaller size")
    masks = np.stack([_mask(own[found.label], found.path, images.size) for found in images.found])
    parts = from_tensors({"train": (images.pixels, masks)}, target="dense")
    parts.notes, parts.decoded = notes + parts.notes, True
    return parts


def _mask(path: Path, of: Path, size: tuple[int, int]) -> np.ndarray:
    """The classes of the pixels; cut and resized as the image is, without mixing them."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=FORMATS) as opened, Image.open(of, formats=FORMATS) as image:
            if opened.size != ImageOps.exif_transpose(image).size:
                shown = "×".join(map(str, opened.size))
                raise RequestError(f"{path} is {shown}, and its image {of.name} is not: give a mask of the same size")
            mask = _values(opened, path)
    except OSError as error:
        raise RequestError(f"{path} cannot be read as an image ({error}): repair it") from error
    fitted = mask if mask.size == size[::-1] else ImageOps.fit(mask, size[::-1], method=Image.Resampling.NEAREST)
    return np.array(fitted).astype(np.int64)


def _values(mask: Image, path: Path) -> Image:
    """The mask by its values; what would blur or merge them is refused."""
    if mask.format == "JPEG":
        raise RequestError(f"{path} is a JPEG, which blurs values where classes meet: give masks as PNG")
    if mask.mode in ("P", "L") or mask.mode.startswith("I"):
        return mask.copy()
    if mask.mode == "1":
        return mask.convert("L")
    red, *others = mask.convert("RGBA").split()
    if all(red.tobytes() == other.tobytes() for other in others[:2]) and others[2].getextrema() == (255, 255):
        return red  # grey in colours
    raise RequestError(f"{path} is in colour: give masks in which a grey value, or a palette's index, is the class")
