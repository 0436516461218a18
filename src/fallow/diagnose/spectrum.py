"""The spectrum of the loss's Hessian: both ends, trace, density and what is negative, each with its error bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.diagnose.batches import TopOfBatches, top_of_batches
from fallow.diagnose.intervals import Probed
from fallow.diagnose.lanczos import Eigenvalue, Lanczos, ends
from fallow.diagnose.products import GIGABYTE, Hessian
from fallow.diagnose.quadrature import tridiagonal
from fallow.diagnose.sums import Density, Sums
from fallow.diagnose.trace import hutch
from fallow.evaluate.losses import Loss

SETTLED = 1e-3  # residual, relative to the eigenvalue, below which a Ritz vector counts as an eigenvector

Progress = Callable[[int, int], None]  # products done, products at most


@dataclass(frozen=True)
class Spectrum:
    """What :func:`spectrum` found, and how."""

    largest: Eigenvalue
    smallest: Eigenvalue
    top: tuple[Eigenvalue, ...]  # the k largest, falling
    trace: Probed
    density: Density
    negative_share: Probed
    negative_mass: Probed
    converged: bool  # largest, smallest and all of top
    top_of_batches: TopOfBatches | None
    loss: float
    mode: str
    dtype: str
    parameters: int
    examples: int
    chunk: int
    steps: int  # Lanczos steps for both ends
    probes: int
    probe_steps: int  # Lanczos steps for each probe
    products: int  # with the Hessian, in all
    tolerance: float
    threshold: float
    seed: int

    def describe(self) -> dict[str, Any]:
        """As plain values for a report."""
        records = ("largest", "smallest", "trace", "density", "negative_share", "negative_mass")
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in records}
        plain["top"] = [one.describe() for one in self.top]
        plain["top_of_batches"] = self.top_of_batches and self.top_of_batches.describe()
        return {name: getattr(self, name).describe() for name in records} | plain


def spectrum(
    model: nn.Module,
    loss: str | Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    mode: str = "eval",
    parameters: Sequence[str] | None = None,
    top: int = 5,
    steps: int = 300,
    tolerance: float = 1e-4,
    probes: int = 10,
    probe_steps: int = 64,
    threshold: float = 1e-4,
    width: float = 0.01,
    batch_size: int | None = None,
    chunk: int | None = None,
    memory: int = GIGABYTE,
    seed: int = 0,
    progress: Progress | None = None,
) -> Spectrum:
    """The spectrum of H, the Hessian of the mean loss over ``inputs`` with respect to the trainable parameters.

    ===================  ===============================================================================================
    ``largest``          and ``smallest``, ``top``: by Lanczos, with error bars from residuals (see :class:`Lanczos`)
    ``trace``            Σλ, by Hutch++ with ``probes`` probes (see :func:`hutch`)
    ``negative_mass``    Σ|λ⁻| / Σ|λ|, by stochastic Lanczos quadrature with ``probes`` probes of ``probe_steps`` steps
    ``negative_share``   the share of eigenvalues below −``threshold`` × ``largest``, by the same quadrature
    ``density``          by the same quadrature, blurred by ``width`` × (``largest`` − ``smallest``)
    ``top_of_batches``   with a ``batch_size``: the count of earlier papers (see :func:`top_of_batches`)
    ===================  ===============================================================================================

    Intervals are of 95 % and hold the spread over probes and the error of the quadrature. Most eigenvalues of a network
    lie close to 0, where m steps cannot tell signs apart: the interval of the share is wide when they cannot, and the
    mass, in which such eigenvalues weigh nothing, is the steadier measure.

    Parameters
    ----------
    mode : "eval" or "train"; see :class:`Hessian` for what a ``chunk`` of examples means in either.
    parameters : names of parameters or modules; all trainable parameters by default.
    top, steps, tolerance : how many large eigenvalues, in at most how many products, to which relative error.
    memory : bytes for graphs, and again for the vectors that Lanczos keeps.
    progress : called with the products done, and with those needed at most, after every product.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    >>> found = spectrum(net, "cross_entropy", torch.randn(60, 4), torch.arange(60) % 3)
    >>> found.converged, found.smallest.value < 0 < found.largest.value
    (True, True)
    >>> found.trace.low <= found.trace.value <= found.trace.high
    True

    """
    counts = {"top": (top, 1), "steps": (steps, 2), "probes": (probes, 2), "probe_steps": (probe_steps, 1)}
    for name, (count, least) in counts.items():
        if count < least:
            raise RequestError(f"{name}={count} is too few for an estimate: use {least} or more")
    hessian = Hessian(
        model, loss, inputs, targets, mode=mode, parameters=parameters, chunk=chunk, memory=memory, seed=seed
    )
    size = hessian.size
    most = min(steps, size) + probes * (1 + min(probe_steps, size))

    def product(vector: Tensor) -> Tensor:
        image = hessian(vector)
        if progress is not None:
            progress(hessian.products, most)
        return image

    generator = torch.Generator().manual_seed(mix(seed, 0))

    def draw() -> Tensor:
        return torch.randn(size, generator=generator, dtype=hessian.dtype).to(hessian.device)

    room = max(2 * top + 8, memory // (size * hessian.dtype.itemsize))  # vectors
    found = Lanczos(product, draw(), ends(top, 1), tolerance=tolerance, steps=steps, basis=room)
    count = len(found.values)
    highest = tuple(found.eigenvalue(index) for index in range(count - 1, max(-1, count - 1 - top), -1))
    smallest = found.eigenvalue(0)
    trace = hutch(product, found, probes, generator)

    settled = np.flatnonzero(found.residuals <= SETTLED * np.abs(found.values))
    known, vectors = found.values[settled], found.vectors(settled)
    done = found.products
    del found  # its basis makes room for the probes'
    rest = size - len(known)
    rules = [
        tridiagonal(product, draw(), probe_steps, without=vectors, window=room) for _ in range(probes if rest else 0)
    ]
    scale = max(abs(highest[0].value), abs(smallest.value))
    sums = Sums(known, rules, rest, torch.finfo(hessian.dtype).eps * scale)
    batches = None
    if batch_size is not None:
        batches = top_of_batches(
            model, loss, inputs, targets, k=top, batch_size=batch_size, mode=mode, parameters=parameters, seed=seed
        )
    return Spectrum(
        largest=highest[0],
        smallest=smallest,
        top=highest,
        trace=trace,
        density=sums.density(width * (highest[0].value - smallest.value)),
        negative_share=sums.share_below(-threshold * abs(highest[0].value)),
        negative_mass=sums.negative_mass(),
        converged=smallest.converged and all(one.converged for one in highest),
        top_of_batches=batches,
        loss=hessian.loss,
        mode=mode,
        dtype=str(hessian.dtype).removeprefix("torch."),
        parameters=size,
        examples=hessian.examples,
        chunk=hessian.chunk,
        steps=done,
        probes=probes,
        probe_steps=probe_steps,
        products=hessian.products,
        tolerance=tolerance,
        threshold=threshold,
        seed=seed,
    )
