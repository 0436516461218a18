"""The batched operations against Pillow, image by image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.strong import NUMBER, OPERATIONS, PLACES, Strong, apply_strong, draw_strong, operate
from tests.data import pillow


def pictures(n: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Half noise in a narrow range, half smooth: equalisation and contrast have something to do."""
    draw = torch.Generator().manual_seed(seed)
    low = torch.randint(0, 100, (n, shape[0], 1, 1), generator=draw)
    noise = torch.rand(n, *shape, generator=draw) * torch.randint(1, 156, (n, 1, 1, 1), generator=draw)
    slope = torch.linspace(0, 1, shape[2]) * torch.arange(n).view(-1, 1, 1, 1) % 97
    return (low + torch.where(torch.arange(n).view(-1, 1, 1, 1) % 2 == 0, noise, slope)).to(torch.uint8)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 20, 13)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_pillows(name: str, shape: tuple[int, ...]) -> None:
    x = pictures(60, shape)
    magnitude = torch.rand(60, generator=torch.Generator().manual_seed(1))
    mine = x.clone()
    operate(mine, torch.full((60,), NUMBER[name]), magnitude)
    nothing = Strong(torch.full((60, 1), NUMBER[name]), magnitude[:, None], torch.full((60, 2), 9.0))  # no square
    theirs = pillow.strongly(x, nothing)
    # where a place lies on the edge of two pixels, Pillow's fixed point may take the other one
    assert (mine != theirs).float().mean() <= (1e-3 if name in PLACES else 0)
    changed = (mine != x).flatten(1).any(1).float().mean()
    assert changed == 0 if name == "identity" or (name == "color" and shape[0] == 1) else changed > 0.4


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_the_policy_is_pillows(shape: tuple[int, ...]) -> None:
    x = pictures(300, shape)
    strong = draw_strong(300, shape, torch.Generator().manual_seed(2))
    mine, theirs = apply_strong(x, strong), pillow.strongly(x, strong)
    assert (mine != theirs).flatten(1).any(1).float().mean() < 0.15  # a pixel from an edge, as above
    assert (mine != theirs).float().mean() < 1e-3


def test_constant_images_pass() -> None:
    for value in (0, 7, 255):
        x = torch.full((200, 3, 16, 16), value, dtype=torch.uint8)
        strong = draw_strong(200, (3, 16, 16), torch.Generator().manual_seed(0))
        assert torch.equal(apply_strong(x, strong), pillow.strongly(x, strong))


def test_every_operation_and_half_the_side_cut_out() -> None:
    strong = draw_strong(5000, (3, 32, 32), torch.Generator().manual_seed(0))
    counts = strong.operation.flatten().bincount(minlength=len(OPERATIONS))
    assert len(OPERATIONS) == 14
    assert counts.min() > 0.8 * 10000 / 14
    assert 0 <= strong.magnitude.min() < 0.01
    assert 0.99 < strong.magnitude.max() < 1
    identity = Strong(torch.full((1, 2), NUMBER["identity"]), torch.zeros(1, 2), torch.full((1, 2), 0.5))
    cut = apply_strong(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), identity)
    assert (cut[0, 0] == 127).sum() == 16 * 16
    assert torch.equal(cut[0, 0, 8:24, 8:24], torch.full((16, 16), 127, dtype=torch.uint8))


def test_seeded_sliced_and_of_any_dtype() -> None:
    x = pictures(40, (3, 32, 32))
    first, again = (draw_strong(40, (3, 32, 32), torch.Generator().manual_seed(5)) for _ in range(2))
    kept = x.clone()
    whole = apply_strong(x, first)
    assert torch.equal(x, kept)  # the images themselves stay
    assert torch.equal(whole, apply_strong(x, again))
    assert torch.equal(apply_strong(x[7:20], first[7:20]), whole[7:20])
    as_float = apply_strong(x.float(), first)
    assert as_float.dtype == torch.float32
    assert torch.equal(as_float, whole.float())


def test_refuses_what_is_no_image() -> None:
    with pytest.raises(RequestError, match=r"grey or colour images, and an example has \(6, 128\)"):
        draw_strong(2, (6, 128), torch.Generator())
