"""A network with what makes tokens of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fallow.data.texts import to_strings

Tokens: TypeAlias = Callable[[Sequence[tuple[str, ...]]], Tensor]


class Reading(nn.Module):
    """Takes texts as the data hold them (bytes N×K×L), as strings or pairs of strings, or as tokens already."""

    def __init__(self, network: nn.Module, tokens: Tokens) -> None:
        super().__init__()
        self.network, self.tokens = network, tokens

    def forward(self, x: Tensor | Sequence[str | tuple[str, ...]]) -> Tensor:
        """The network's output."""
        if not isinstance(x, Tensor):
            x = self.tokens([(text,) if isinstance(text, str) else tuple(text) for text in x])
        elif x.dtype == torch.int8:
            x = self.tokens(to_strings(x))
        place = next((p.device for p in self.network.parameters()), None)
        return self.network(x.to(place))
