"""A network with the scaling of its inputs inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fallow.data.normalise import normalise, resized


class Scaled(nn.Module):
    """Takes examples as the data hold them (bytes, or numbers on their own scale): network((x − mean) / std).

    Images are resized to ``size`` pixels a side first, where a pretrained network wants them so.

    >>> net = Scaled(nn.Identity(), torch.tensor([2.0]), torch.tensor([4.0]))
    >>> net(torch.tensor([[10.0]]))
    tensor([[2.]])
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, network: nn.Module, mean: Tensor | None, std: Tensor | None, size: int | None = None) -> None:
        super().__init__()
        self.network, self.size = network, size
        place = next((p.device for p in network.parameters()), None)
        self.register_buffer("mean", None if mean is None else mean.to(place, copy=True))
        self.register_buffer("std", None if std is None else std.to(place, copy=True))

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        if self.mean is None and not x.is_floating_point() and x.dtype not in (torch.uint8, torch.bool):
            return self.network(x)  # the numbers of words have no scale
        if x.dtype == torch.bool and x.ndim > 2:
            x = x.to(torch.uint8) * 255  # black and white, as they were trained on
        kind = next((p.dtype for p in self.network.parameters() if p.is_floating_point()), torch.float32)
        return self.network(resized(normalise(x, self.mean, self.std), self.size).to(kind))
