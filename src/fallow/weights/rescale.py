"""Layers brought back to the size they had at initialisation (LW, algorithm 1, lines 2 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError


def norms(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """s_l = ‖W_l‖₂ of every tensor, on its device; a norm of 0 is refused, because nothing scales back to it."""
    if not parameters:
        return {}
    sizes = torch._foreach_norm([p.detach() for p in parameters.values()])
    for name, size in zip(parameters, torch.stack([s.double().cpu() for s in sizes]).tolist(), strict=True):
        if size == 0:
            raise RequestError(f"{name} has norm 0: it cannot be rescaled; leave it out or initialise it otherwise")
    return dict(zip(parameters, sizes, strict=True))


@torch.no_grad()
def rescale(parameters: Sequence[nn.Parameter], sizes: Sequence[Tensor]) -> None:
    """W ← (s / ‖W‖₂) · W, in place.

    >>> w = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> rescale([w], [torch.tensor(10.0)])
    >>> w.tolist()
    [[6.0, 8.0]]
    """
    weights = [p.detach() for p in parameters]
    if not weights:
        return
    # a layer that training has emptied stays empty: it is divided by 1, as s / 0 or s / tiny would be infinite
    present = [size + (size == 0) for size in torch._foreach_norm(weights)]
    torch._foreach_mul_(weights, list(torch._foreach_div(list(sizes), present)))
