"""The gather against a plain loop over images."""

import pytest
import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.augment import Moves, apply, augment, draw, resolve


def by_hand(x: Tensor, moves: Moves) -> Tensor:
    """Pad, cut and mirror one image (or signal) after the other."""
    out = []
    for i, image in enumerate(x):
        flipped = moves.flip is not None and bool(moves.flip[i])
        image = image.flip(-1) if flipped else image
        if moves.start is not None:
            spatial, m = image.shape[1:], moves.margin
            padded = torch.zeros(image.shape[0], *(s + 2 * m for s in spatial), dtype=image.dtype)
            padded[(slice(None), *(slice(m, m + s) for s in spatial))] = image
            starts = moves.start[i].tolist()
            image = padded[(slice(None), *(slice(a, a + s) for a, s in zip(starts, spatial, strict=True)))]
        out.append(image)
    return torch.stack(out)


@pytest.mark.parametrize("policy", ["flip", "crop", "flip+crop"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (2, 20, 12), (2, 6, 9, 8)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_like_a_loop(policy: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randint(1, 256, (40, *shape)).to(dtype)
    moves = draw(40, shape, policy, torch.Generator().manual_seed(0))
    moved = apply(x, moves)
    assert moved.dtype == dtype
    assert torch.equal(moved, by_hand(x, moves))
    assert not torch.equal(moved, x)


def test_signals_are_shifted() -> None:
    x = torch.randn(30, 4, 64)
    moves = draw(30, (4, 64), "crop", torch.Generator().manual_seed(0))
    assert torch.equal(apply(x, moves), by_hand(x, moves))


def test_moves_have_the_right_ranges() -> None:
    moves = draw(2000, (3, 32, 32), "flip+crop", torch.Generator().manual_seed(0))
    assert moves.margin == 4
    assert moves.start is not None
    assert moves.flip is not None
    assert set(moves.start.flatten().tolist()) == set(range(9))
    assert 0.45 < moves.flip.float().mean() < 0.55
    assert draw(1, (1, 8, 8), "crop", torch.Generator()).margin == 1
    assert draw(1, (1, 16, 16), "crop", torch.Generator()).margin == 2
    assert draw(1, (3, 96, 96), "crop", torch.Generator()).margin == 4


def test_a_slice_of_the_moves_moves_a_slice() -> None:
    x = torch.randn(20, 3, 16, 16)
    moves = draw(20, (3, 16, 16), "flip+crop", torch.Generator().manual_seed(3))
    whole = apply(x, moves)
    assert torch.equal(apply(x[5:9], moves[5:9]), whole[5:9])
    some = torch.tensor([1, 7, 19])
    assert torch.equal(apply(x[some], moves[some]), whole[some])


def test_none_changes_nothing_and_draws_nothing() -> None:
    x, generator = torch.randn(5, 3, 8, 8), torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert torch.equal(augment(x, generator, "none"), x)
    assert torch.equal(generator.get_state(), before)


def test_auto_is_for_colour_images_of_some_size() -> None:
    assert resolve("auto", (3, 16, 16)) == "crop"  # no mirroring unless asked
    for shape in [(3, 15, 15), (1, 28, 28), (128,), (3, 64), (1, 8, 8, 8)]:
        assert resolve("auto", shape) == "none"


def test_refusals() -> None:
    with pytest.raises(RequestError, match="did you mean 'flip'"):
        resolve("flop", (3, 8, 8))
    for policy, shape in [("flip", (4, 64)), ("flip", (10,)), ("crop", (10,))]:
        with pytest.raises(RequestError, match="use none"):
            resolve(policy, shape)


def test_cutout_by_hand() -> None:
    """A square of half the side around the drawn centre, cut off at the edges; the rest is what crop gives."""
    x = torch.arange(1, 1 + 6 * 3 * 16 * 12).view(6, 3, 16, 12)
    moves = draw(6, (3, 16, 12), "flip+crop+cutout", torch.Generator().manual_seed(5))
    found, whole = apply(x, moves), apply(x, Moves(moves.flip, moves.start, moves.margin))
    assert moves.centre is not None
    for i, (down, across) in enumerate(moves.centre.tolist()):
        for row in range(16):
            for column in range(12):
                inside = abs(row + 0.5 - 16 * down) <= 3 and abs(column + 0.5 - 12 * across) <= 3
                wanted = torch.zeros(3, dtype=x.dtype) if inside else whole[i, :, row, column]
                assert torch.equal(found[i, :, row, column], wanted)
    half = apply(x[2:5], moves[2:5])
    assert torch.equal(half, found[2:5])
    with pytest.raises(RequestError, match="augment=crop\\+cutout cuts squares out, but an example has shape"):
        resolve("crop+cutout", (6, 128))
    with pytest.raises(RequestError, match="use crop"):
        resolve("crop+cutout", (1, 8, 8, 8))
