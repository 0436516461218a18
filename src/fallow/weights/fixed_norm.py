"""LW's fixed normalisation (x − μ)/σ after a block: two scalars that are part of the model and never trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fallow.weights.layers import refuse_compiled

NAME = "fixed_norm"


class FixedNorm(nn.Module):
    """x ↦ (x − μ)/σ with scalars μ and σ (LW, algorithm 1, line 14); the identity until they are set."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """The normalised tensor."""
        return (x - self.mean) / self.std


def insert_norms(model: nn.Module, blocks: Iterable[str]) -> dict[str, FixedNorm]:
    """Put an identity ``FixedNorm`` behind each of these blocks, in place, as ``BLOCK.fixed_norm``.

    The block's other names stay as they are. A model that was trained with such normalisations loads
    anywhere after the same call::

        insert_norms(model, ["conv1", "conv2"])
        model.load_state_dict(load_file("last.safetensors"))

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> list(insert_norms(net, ["0"])), list(net.state_dict())[:4]
    (['0'], ['0.weight', '0.bias', '0.fixed_norm.mean', '0.fixed_norm.std'])
    """
    refuse_compiled(model, "a fixed normalisation")
    norms = {}
    for path in blocks:
        block = model.get_submodule(path)
        if not hasattr(block, NAME):
            parameter = next(block.parameters(), None)
            norm = FixedNorm() if parameter is None else FixedNorm().to(parameter.device)
            block.add_module(NAME, norm)
            if type(block).forward is not nn.Sequential.forward:  # which runs all that is in it, this one too
                block.register_forward_hook(_normalise_output)
        norms[path] = getattr(block, NAME)
    return norms


def _normalise_output(block: nn.Module, _: Any, output: Tensor) -> Tensor:
    return getattr(block, NAME)(output)
