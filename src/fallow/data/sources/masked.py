"""A folder of images and one of masks, in which each pixel has its class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fallow.base.errors import RequestError
from fallow.data.arrays import from_tensors
from fallow.data.images import FORMATS, SUFFIXES
from fallow.data.parts import Parts
from fallow.data.sources.folder import BOXES, Found, read_images
from fallow.data.sources.places import folders_in, parts_in

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGES, MASKS = ("images", "image", "imgs"), ("masks", "mask", "labels")


def _pair(root: Path) -> tuple[Path, Path] | None:
    below = {entry.name.lower(): entry for entry in folders_in(root)}
    first, second = (next((below[name] for name in names if name in below), None) for names in (IMAGES, MASKS))
    return (first, second) if first is not None and second is not None else None


def is_masked(path: Path) -> bool:
    """Whether a folder holds images/ and masks/, or its train/ does."""
    return _pair(path) is not None or ("train" in (parts := parts_in(path)) and _pair(parts["train"]) is not None)


def _places(root: Path) -> dict[str, tuple[Path, Path]]:
    """The images and masks of each part: train/images and train/masks, images/train and masks/train, or no parts."""
    pair = _pair(root)
    if pair is None:
        parts = {part: (base, _pair(base)) for part, base in parts_in(root).items()}
        if bare := next((base for base, held in parts.values() if held is None), None):
            raise RequestError(f"{bare} has no images/ and masks/, as train/ has: give both, or keep it elsewhere")
        return {part: held for part, (_, held) in parts.items() if held is not None}
    images, masks = map(parts_in, pair)
    if "train" not in images:
        return {"train": pair}
    if bare := next((base for part, base in images.items() if part not in masks), None):
        raise RequestError(f"{bare} has no masks: give {pair[1] / bare.name}, or keep it elsewhere")
    return {part: (base, masks[part]) for part, base in images.items()}


def masked(root: Path, size: int | None, strict: bool = False) -> Parts:
    """Read images and, for each, the mask of the same name; their grey values are the classes."""
    places = _places(root)
    own: dict[Path, Path] = {}  # the mask of every image
    listed: list[Found] = []
    for part, (images, masks) in places.items():
        mine = _match(images, masks)
        own |= mine
        listed += [Found(part, path.stem, path) for path in mine]
    notes = _beside(root, places)
    read = read_images(root, listed, size, strict, notes)
    if read.pixels is None:
        raise RequestError(f"the images of {root} are too many for memory: give a smaller size")
    y = np.stack([_mask(own[found.path], found.path, read.size) for found in read.found])
    rows = {part: [row for row, found in enumerate(read.found) if found.part == part] for part in places}
    rows = {part: held for part, held in rows.items() if held}
    if "train" not in rows:
        raise RequestError(f"none of the training images in {root} can be read: repair them")
    parts = from_tensors({part: (read.pixels[held], y[held]) for part, held in rows.items()}, target="dense")
    parts.notes, parts.decoded = notes + parts.notes, True
    return parts


def _match(images: Path, masks: Path) -> dict[Path, Path]:
    """The mask of each image, by its name."""
    paths = sorted(p for p in images.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    own = {p.stem: p for p in masks.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file()}
    if not paths:
        raise RequestError(f"{images} holds no images: give some, and a mask for each in {masks}")
    if not own and any(path.suffix == ".txt" for path in masks.iterdir()):
        raise RequestError(f"{masks} holds texts and no masks, as if for boxes: {BOXES}")
    for path in paths:
        if path.stem not in own:
            raise RequestError(f"{path} has no mask: give {masks / path.stem}.png, or leave the image out")
    return {path: own[path.stem] for path in paths}


def _beside(root: Path, places: dict[str, tuple[Path, Path]]) -> list[str]:
    """A note on the folders that nothing reads."""
    used = {place for pair in places.values() for each in pair for place in (each, each.parent)} - {root}
    *first, last = (f"{entry.name}/" for entry in folders_in(root) if entry in used)
    known = f"{', '.join(first)} and {last}" if first else last
    others = [entry.name for entry in folders_in(root) if entry not in used]
    return [f"Ignored beside {known}: {', '.join(others)}."] if others else []


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
