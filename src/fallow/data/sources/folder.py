"""A folder of images: one folder per class, perhaps under train/, val/ and test/."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.answers import index_labels
from fallow.data.examples import Examples, Files
from fallow.data.groups import of_files
from fallow.data.images import FLOATS, KINDS, SUFFIXES, decode, probe
from fallow.data.parts import Parts
from fallow.data.sources.places import (
    beside,
    files_below,
    folders_in,
    has_images,
    nested,
    or_table,
    printable,
    refuse_parts_below,
    splits,
)
from fallow.data.sources.wanted import alike
from fallow.data.targets import Classes

IN_MEMORY = 1 << 30  # bytes of pixels; beyond, files are decoded as they are needed
DEFAULT_SIZE = 64
MOST = 0.5  # of an image: where a cut leaves less, it is said
FAINT = 64  # of 255: what is no brighter has lost most of its 16 bits
DETECTION = (".json", ".xml")  # in which COCO and VOC keep boxes
HUGE = "have more pixels than Pillow opens, lest they fill the memory: make them smaller"
BOXES = "fallow learns classes and masks, not boxes"
LAYOUT = (
    f"give a folder with one folder of images per class (perhaps below train/ and test/), {KINDS}; or of .npy or .txt"
)

Given = TypeVar("Given")
Result = TypeVar("Result")


class Found(NamedTuple):
    """An image file, not opened yet."""

    part: str
    label: str
    path: Path


class Images(NamedTuple):
    """Images that can be read, and their pixels where these fit into memory."""

    found: list[Found]
    pixels: Tensor | None
    size: tuple[int, int]
    channels: int


def folder(root: Path, size: int | None, strict: bool = False, groups: str | None = None) -> Parts:
    """Read a folder of images; ``strict`` refuses unreadable ones, which are otherwise skipped and noted.

    Files whose names are the same before the separator ``groups`` belong together.

    Images become ``size``×``size``; without it they keep the size that they all have if that is at most 64,
    and otherwise become 64×64. Only if all are grey is there a single channel.
    """
    if size is not None and size < 1:
        raise RequestError(f"size is {size}: give the side of the images in pixels, at least 1")
    if groups is not None and not isinstance(groups, str):
        raise RequestError("groups of a folder are read from its file names: give the separator after the group")
    notes: list[str] = []
    places = splits(root)
    beside(root, places, notes)
    nested(places, notes)
    listed = [found for part, base in places.items() for found in _list(part, base, notes)]
    return _parts(root, read_images(root, listed, size, strict, notes), notes, groups)


def read_images(root: Path, listed: list[Found], size: int | None, strict: bool, notes: list[str]) -> Images:
    """Those of the files that can be read, of one size and with as many channels."""
    reasons: dict[str, int] = {}
    headers = _each(lambda found: probe(found.path), listed, reasons)
    broken = [found for found, header in zip(listed, headers, strict=True) if header is None]
    _check(broken, len(listed), strict, reasons)
    kept = [found for found, header in zip(listed, headers, strict=True) if header is not None]
    known = [header for header in headers if header is not None]
    target = _target({header.size for header in known}, size, notes)
    channels = 1 if all(header.grey for header in known) else 3
    if several := sum(header.several for header in known):
        notes.append(f"{several} file{'s' * (several > 1)} with several pages or frames: the first of each was taken.")
    pixels = None
    if len(kept) * channels * target[0] * target[1] <= IN_MEMORY:
        pixels, good = _decode(kept, target, channels, reasons)
        broken += [found for found, fine in zip(kept, good, strict=True) if not fine]
        _check(broken, len(listed), strict, reasons)
        kept = [found for found, fine in zip(kept, good, strict=True) if fine]
        if any(header.deep for header in known) and len(pixels) and (top := int(pixels.max())) < FAINT:
            notes.append(
                f"Images of 16 bits use {100 * (top + 1) / 256:.0f} % of their range, and become bytes of 0 to {top}: "
                "stretch them first if that is too coarse."
            )
        clear = torch.tensor([header.clear for header, fine in zip(known, good, strict=True) if fine], dtype=torch.bool)
        if blank := int((flat := pixels[clear].flatten(1)).eq(flat[:, :1]).all(1).sum()):
            notes.append(
                f"{blank} of {len(pixels)} images are blank now that their transparency is laid on white: lay them on "
                "another colour first if what they show is white."
            )
    else:
        notes.append("The images are too many for memory: they are decoded as they are needed.")
    if broken:
        names = printable(", ".join(str(found.path.relative_to(root)) for found in broken[:5]))
        counted = f"{len(broken)} unreadable image{'s' * (len(broken) > 1)}"
        notes.append(f"{counted} skipped: {names}{', …' if len(broken) > 5 else '.'}")
        notes += [f"{count} of them {why}." for why, count in reasons.items()]
    return Images(kept, pixels, target, channels)


def _list(part: str, base: Path, notes: list[str]) -> list[Found]:
    """The images of a part, in a fixed order."""
    classes = folders_in(base)
    if not classes:
        aside = "" if part == "train" else f"; if {base.name}/ has no labels, keep it elsewhere, for fallow predict"
        images_but = "images but " * has_images(base)
        raise RequestError(f"{base} has {images_but}no class folders: {LAYOUT}{aside}{or_table(base)}")
    if len(classes) == 1 and folders_in(only := classes[0]) and not has_images(only):
        raise RequestError(f"{base} holds a single folder, {only.name}, and that holds others: did you mean {only}?")
    if len(classes) == 1 and part == "train" and (table := or_table(base)):
        raise RequestError(f"{base} holds a single class folder, {printable(classes[0].name)}: give two or more{table}")
    refuse_parts_below(classes)
    images: dict[str, list[Path]] = {}
    others = strange = 0
    for place in classes:
        files = list(files_below(place))
        pictures = [path for path in files if path.suffix.lower() in SUFFIXES]
        images[place.name] = sorted(path for path in pictures if path.is_file())  # a FIFO would keep us waiting
        others += len(files) - len(pictures)
        strange += len(pictures) - len(images[place.name])
    if apart := sum(entry.suffix.lower() in SUFFIXES and entry.is_file() for entry in base.iterdir()):
        notes.append(f"{apart} image{'s' * (apart > 1)} in {printable(base.name)} ignored: in no class folder.")
    if not any(images.values()):
        raise RequestError(f"{base} holds no images: {LAYOUT}")
    for name, paths in images.items():
        if not paths:
            if any(path.suffix.lower() in DETECTION for path in files_below(base / name)):
                raise RequestError(f"{base} holds no class folders but images and annotations ({name}/): {BOXES}")
            raise RequestError(
                f"class {printable(name)!r} in {base} has 0 images: add some ({KINDS}), or remove its folder"
            )
    if strange:
        notes.append(
            f"{strange} images in {printable(base.name)} are not files (FIFOs, broken links) and were ignored."
        )
    if others:
        notes.append(f"{others} file{'s' * (others > 1)} in {printable(base.name)} ignored: not {KINDS}.")
    return [Found(part, name, path) for name, paths in images.items() for path in paths]


def _target(sizes: set[tuple[int, int]], size: int | None, notes: list[str]) -> tuple[int, int]:
    """The (height, width) that all images get, and a note if some are resized to it."""
    first = next(iter(sizes))
    side = DEFAULT_SIZE if size is None else size
    target = first if size is None and len(sizes) == 1 and max(first) <= DEFAULT_SIZE else (side, side)
    if sizes != {target}:
        lows, highs = np.min(list(sizes), 0), np.max(list(sizes), 0)
        span = f"{lows[0]}×{lows[1]}" + (f" to {highs[0]}×{highs[1]}" if len(sizes) > 1 else "")
        notes.append(f"Images of {span} pixels were cut to the centre and resized to {target[0]}×{target[1]}.")
        kept, (height, width) = min((_kept(held, target), held) for held in sizes)
        if kept < MOST:
            notes.append(
                f"The cut leaves {100 * kept:.0f} % of an image of {height}×{width}: if the rest matters, resize such "
                "images first, or give them in their own shape, as arrays in a .npz."
            )
    return target


def _kept(size: tuple[int, int], target: tuple[int, int]) -> float:
    """The share of an image that is left when it is cut to the proportions of another size."""
    ratio = size[0] * target[1] / (size[1] * target[0])
    return min(ratio, 1 / ratio)


def _decode(
    found: list[Found], size: tuple[int, int], channels: int, reasons: dict[str, int]
) -> tuple[Tensor, list[bool]]:
    """The pixels of the readable images, and which those are."""
    pixels = np.empty((len(found), channels, *size), np.uint8)

    def fill(row: int) -> bool:
        pixels[row] = decode(found[row].path, size, channels)
        return True

    good = [bool(done) for done in _each(fill, range(len(found)), reasons)]
    return torch.from_numpy(pixels if all(good) else pixels[good]), good


def _each(work: Callable[[Given], Result], items: Iterable[Given], reasons: dict[str, int]) -> list[Result | None]:
    """The work on each file, by threads (decoding releases the interpreter's lock); None where it fails."""

    def attempt(item: Given) -> Result | None:
        try:
            return work(item)
        except Exception as error:  # Pillow raises many kinds for a damaged file
            why = HUGE if type(error).__name__ == "DecompressionBombError" else str(error)
            if why in (HUGE, FLOATS):
                reasons[why] = reasons.get(why, 0) + 1
            return None

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(attempt, items))


def _check(broken: list[Found], total: int, strict: bool, reasons: dict[str, int]) -> None:
    """Refuse unreadable files: any if strict, and more than half of all in any case."""
    known = "".join(f" ({count} {why})" for why, count in reasons.items())
    if broken and strict:
        raise RequestError(
            f"{broken[0].path} cannot be read as an image{known}: repair or remove it, or load without strict"
        )
    if 2 * len(broken) > total:
        raise RequestError(
            f"{len(broken)} of {total} images cannot be read, the first is {broken[0].path}{known}: "
            "convert or repair them"
        )


def _parts(root: Path, images: Images, notes: list[str], groups: str | None) -> Parts:
    """Readable images by part."""
    kept, pixels, size, channels = images
    rows: dict[str, list[int]] = {}
    for row, found in enumerate(kept):
        rows.setdefault(found.part, []).append(row)
    if "train" not in rows:
        raise RequestError(f"{root} holds no readable training images: {LAYOUT}")
    classes, ys = index_labels({part: np.array([printable(kept[row].label) for row in rows[part]]) for part in rows})
    notes += alike(printable(root.resolve().name), classes)
    parts: dict[str, Examples | Files] = {}
    for part, y in ys.items():
        if pixels is None:
            parts[part] = Files([kept[row].path for row in rows[part]], y, size, channels)
        else:
            parts[part] = Examples(pixels[rows[part]] if len(ys) > 1 else pixels, y)
    together: dict[str, Tensor] | None = None
    if groups is not None:
        together = of_files({part: [kept[row].path for row in rows[part]] for part in rows}, groups, notes)
    val, test = parts.get("val"), parts.get("test")
    return Parts(parts["train"], val, test, Classes(classes), notes, together, decoded=True)
