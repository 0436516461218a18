"""The toy of layer-wise forgetting (LW, section 1.1): a label in three of 128 coordinates, the rest noise."""

from __future__ import annotations

import torch

from fallow.base.errors import RequestError
from fallow.base.numbers import MOST, is_finite, require
from fallow.base.seeds import mix
from fallow.data.examples import Examples
from fallow.data.parts import Parts, Shares
from fallow.data.targets import Classes

DIMENSIONS, BITS, TRAIN = 128, 3, 256


def synthetic(cut: Shares, alpha: float = 1.0, n_test: int = 2000) -> Parts:
    """X ∈ R¹²⁸: the first three coordinates are ±α, the label in binary; the rest is N(0, 1).

    The most significant bit comes first: class 5 is (+α, −α, +α). 256 training examples, or as many as are
    asked for; validation in proportion; all drawn by seed, labels uniformly at random as in the paper (balanced
    classes would raise the accuracies in its table 1 by up to three points). They stay on their scale: by their own
    deviation the first three would be ±1, whatever α.

    >>> parts = synthetic(Shares(train=None, val=0.2, test=0.2, seed=0), alpha=0.5)
    >>> len(parts.train), len(parts.val), len(parts.test)
    (256, 64, 2000)
    >>> parts.train.x[parts.train.y == 5][0, :3]
    tensor([ 0.5000, -0.5000,  0.5000])
    """
    if not (is_finite(alpha) and alpha > 0):
        raise RequestError(f"alpha is {alpha!r}: give a positive number")
    if not (isinstance(n_test, int) and n_test >= 2**BITS):
        raise RequestError(f"n_test is {n_test!r}: give a whole number, at least {2**BITS}")
    train = TRAIN if cut.train is None else cut.train
    val = cut.beside(train, 2**BITS) if cut.val > 0 else 0
    for name, count in (("train", train), ("validation", val), ("n_test", n_test)):
        require(count <= MOST, name, count, f"at most {MOST} examples")
    classes = [str(label) for label in range(2**BITS)]
    parts = [_draw(n, alpha, mix(cut.seed, part)) for part, n in enumerate((train, val, n_test))]
    return Parts(parts[0], parts[1] if val else None, parts[2], Classes(classes), scaled=True)


def _draw(n: int, alpha: float, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2**BITS, (n,), generator=generator)
    x = torch.randn(n, DIMENSIONS, generator=generator)
    for place in range(BITS):
        bit = (y >> (BITS - 1 - place)) & 1
        x[:, place] = alpha * (2 * bit - 1)
    return Examples(x, y)
