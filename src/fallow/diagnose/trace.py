"""The trace of a symmetric operator by Hutch++ (Meyer, Musco, Musco and Woodruff 2021).

    tr H = tr QᵀHQ + tr PHP,  P = I − QQᵀ.

The first term is exact over a space Q that holds the large eigenvalues, and only the small rest is estimated, by
gᵀPHPg with random signs g. The paper sketches Q by products of its own; here Q is the Krylov basis that the extreme
eigenvalues have paid for, which holds them better.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fallow.diagnose.intervals import Probed, half_width
from fallow.diagnose.lanczos import Lanczos, Product


def hutch(product: Product, known: Lanczos, probes: int, generator: torch.Generator) -> Probed:
    """The trace with its 95 % interval, exact but for rounding when ``known`` spans the whole space.

    >>> matrix = torch.diag(torch.arange(1.0, 101.0))
    >>> from fallow.diagnose.lanczos import ends
    >>> known = Lanczos(matrix.mv, torch.ones(100), ends(5))
    >>> found = hutch(matrix.mv, known, 20, torch.Generator().manual_seed(0))
    >>> found.low < 5050 < found.high
    True
    """
    basis = known.basis
    value, width = float(known.values.sum()), known.rounding * len(basis)
    if len(basis) < basis.shape[1]:
        samples = np.array([_sample(product, basis, generator) for _ in range(probes)])
        value, width = value + float(samples.mean()), width + half_width(samples)
    return Probed(value, value - width, value + width)


def _sample(product: Product, basis: Tensor, generator: torch.Generator) -> float:
    signs = torch.randint(0, 2, (basis.shape[1],), generator=generator).to(basis).mul_(2).sub_(1)
    rest = signs - (basis @ signs) @ basis
    return float((rest @ product(rest)).double())
