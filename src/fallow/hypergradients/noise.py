"""Gaussian noise on the inputs, an augmentation whose strength is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.hypergradients.penalty import inverse_softplus


class InputNoise(nn.Module):
    """x + σ·ε with ε ~ N(0, I), σ = softplus(raw): reparametrised, so that the training loss has a gradient by σ.

    Its one parameter is a hyperparameter for :func:`fallow.hypergradient`; validation is without noise::

        noise = InputNoise(0.1)
        loss = lambda: functional.cross_entropy(model(noise(x)), y)
        [gradient], _ = fallow.hypergradient(loss, val_loss, model, noise)

    A loss in several chunks is called again for every product, and needs the same ε each time: give a generator that
    is seeded anew. For a linear model and squared errors the mean over ε is ridge regression with the penalty σ²‖w‖².

    >>> noise, x = InputNoise(0.5), torch.zeros(2, 3)
    >>> draw = torch.Generator().manual_seed(0)
    >>> torch.allclose(noise(x, draw), 0.5 * torch.randn(2, 3, generator=draw.manual_seed(0)))
    True
    """

    def __init__(self, start: float = 0.1) -> None:
        super().__init__()
        if not 0 < start < float("inf"):
            raise RequestError(f"start is {start}: a strength to learn from must be above 0, and finite")
        self.raw = nn.Parameter(torch.tensor(inverse_softplus(start)))

    @property
    def strength(self) -> Tensor:
        """σ, on the scale of the inputs."""
        return functional.softplus(self.raw)

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The inputs with noise, fresh in every call."""
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        return torch.addcmul(x, self.strength.to(x.dtype), noise)
