"""Random flips and crops of a whole batch at once, each example by its own draw.

Drawing is apart from applying: every process draws for the global batch and moves its own slice, so that the
images a run sees do not depend on how many processes share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from fallow.base.errors import RequestError, unknown

POLICIES = {
    "none": "the examples as they are",
    "flip": "mirror an image or a volume left to right, every other time",
    "crop": "shift by up to an eighth of the size (at most 4 pixels; a long signal by a sixteenth), zeros move in",
    "flip+crop": "both",
    "reflect": "shift as crop does, the image's edge is mirrored in",
    "flip+reflect": "both: FixMatch's weak augmentation",
    "crop+cutout": "crop, and then a square of half the side becomes 0",
    "flip+crop+cutout": "all three",
    "auto": "crop for colour images of at least 16 pixels, otherwise none; never mirrored unless asked",
    "try": "what short trials on validation like best, of none, flip, crop and both",
}


@dataclass(frozen=True)
class Moves:
    """What happens to each example of a batch; index it to get the moves of a slice."""

    flip: Tensor | None = None  # mirror this one?
    start: Tensor | None = None  # where the window begins in the padded example: n × its axes
    margin: int = 0  # on each side
    mirrored: bool = False  # what the margin shows: the edge of the example, or zeros
    centre: Tensor | None = None  # n × 2, of a square that is cut out, as shares of the height and the width

    def __getitem__(self, index: slice | Tensor) -> Moves:
        flip = None if self.flip is None else self.flip[index]
        start = None if self.start is None else self.start[index]
        centre = None if self.centre is None else self.centre[index]
        return Moves(flip, start, self.margin, self.mirrored, centre)


def resolve(policy: str, shape: Sequence[int]) -> str:
    """The policy for examples of this shape, "auto" decided; refuses what cannot be done to such examples.

    >>> resolve("auto", (3, 32, 32)), resolve("auto", (1, 28, 28)), resolve("crop", (6, 128))
    ('crop', 'none', 'crop')
    """
    if policy not in POLICIES:
        raise unknown("augmentation", policy, POLICIES)
    if policy == "auto":
        return "crop" if len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= 16 else "none"
    if "flip" in policy and len(shape) not in (3, 4):
        raise RequestError(
            f"augment={policy} mirrors images and volumes, but an example has shape {tuple(shape)}: use none"
        )
    if "cutout" in policy and len(shape) != 3:
        raise RequestError(f"augment={policy} cuts squares out, but an example has shape {tuple(shape)}: use crop")
    if ("crop" in policy or "reflect" in policy) and len(shape) not in (2, 3, 4):
        raise RequestError(
            f"augment={policy} shifts images, signals and volumes, but an example has shape {tuple(shape)}: use none"
        )
    return policy


def draw(n: int, shape: Sequence[int], policy: str, generator: Generator) -> Moves:
    """Draw the moves of ``n`` examples of this shape, on the generator's device."""
    policy = resolve(policy, shape)
    flip = start = None
    shift, mirrored = "crop" in policy or "reflect" in policy, "reflect" in policy
    margin = furthest(shape) if shift else 0
    if "flip" in policy:
        flip = torch.randint(2, (n,), generator=generator, device=generator.device, dtype=torch.bool)
    if shift:
        axes = len(shape) - 1
        start = torch.randint(2 * margin + 1, (n, axes), generator=generator, device=generator.device)
    centre = torch.rand(n, 2, generator=generator, device=generator.device) if "cutout" in policy else None
    return Moves(flip, start, margin, mirrored, centre)


def furthest(shape: Sequence[int]) -> int:
    """How far a shift may go: an eighth of the shorter side, up to 4 pixels; a long signal by a sixteenth.

    >>> furthest((3, 32, 32)), furthest((3, 16, 16)), furthest((2, 32)), furthest((2, 500))
    (4, 2, 4, 31)
    """
    few = min(4, max(1, round(min(shape[1:]) / 8)))
    return max(few, round(shape[1] / 16)) if len(shape) == 2 else few


def apply(x: Tensor, moves: Moves) -> Tensor:
    """Move each example of ``x``: one gather for the batch, whatever its dtype and device."""
    flip = None if moves.flip is None else moves.flip.to(x.device).long()
    if moves.start is None:
        if flip is None:
            return x
        return torch.stack([x, x.flip(-1)])[flip, torch.arange(len(x), device=x.device)]
    # The windows are a strided view of the padded batch, nothing is copied until one window of each is taken.
    both = x[None] if flip is None else torch.stack([x, x.flip(-1)])
    windows = _reflected(both, moves.margin) if moves.mirrored else pad(both, [moves.margin] * 2 * (x.ndim - 2))
    for axis, length in enumerate(x.shape[2:], start=3):
        windows = windows.unfold(axis, length, 1)
    mirrored = torch.zeros(len(x), dtype=torch.long, device=x.device) if flip is None else flip
    example = torch.arange(len(x), device=x.device)
    place: tuple[Tensor | slice, ...] = (mirrored, example, slice(None), *moves.start.to(x.device).unbind(1))
    moved = windows[place]
    if moves.centre is not None:
        cutout(moved, moves.centre)
    return moved


def cutout(x: Tensor, centre: Tensor, fill: int = 0) -> None:
    """Fill a square of half the side somewhere in each image, cut off at the edges (16 of 32 pixels), in place."""
    inside = []
    for axis in (0, 1):
        length = x.shape[2 + axis]
        half, pixel = min(x.shape[2:]) / 4, torch.arange(length, device=x.device) + 0.5
        inside.append((pixel - length * centre[:, axis, None].to(x.device)).abs() <= half)
    x.masked_fill_((inside[0][:, :, None] & inside[1][:, None, :])[:, None], fill)


def _reflected(x: Tensor, margin: int) -> Tensor:
    """Padded on all axes but the first three by its own edge, mirrored (torch does so for floats only)."""
    for axis in range(3, x.ndim):
        last = x.shape[axis] - 1
        place = torch.arange(-margin, last + margin + 1, device=x.device).abs()
        x = x.index_select(axis, (last - (last - place).abs()).clamp(min=0))
    return x


def augment(x: Tensor, generator: Generator, policy: str) -> Tensor:
    """Draw and apply in one go.

    >>> images = torch.arange(2 * 3 * 16 * 16, dtype=torch.float32).view(2, 3, 16, 16)
    >>> augment(images, torch.Generator().manual_seed(0), "flip+crop").shape
    torch.Size([2, 3, 16, 16])
    """
    return apply(x, draw(len(x), tuple(x.shape[1:]), policy, generator))
