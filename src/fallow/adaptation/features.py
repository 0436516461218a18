"""What a model's head sees, for methods that have no use for the head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.weights.blocks import head_of
from fallow.weights.layers import execution_order


class Features(nn.Module):
    """The model up to its head: whatever it flows through before its last linear layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        path = head_of(model, execution_order(model))
        head = model.get_submodule(path)
        if not isinstance(head, nn.Linear):
            raise RequestError(f"the model's last layer {path!r} is no linear one: there are no features before it")
        self.model, self.width = model, head.in_features
        self.seen: Tensor | None = None
        head.register_forward_pre_hook(self._look)

    def _look(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.seen = inputs[0]

    def forward(self, x: Tensor) -> Tensor:
        """The features (n, width) of inputs."""
        self.model(x)  # the head's own product is too small to be worth a way around it
        found, self.seen = self.seen, None
        assert found is not None
        return found


def of_tasks(features: nn.Module, *sets: Tensor) -> list[Tensor]:
    """The features (tasks, n, width) of sets of inputs (tasks, n, …), in one pass over all of them."""
    flat = features(torch.cat([each.flatten(0, 1) for each in sets]))
    pieces = flat.split([each.shape[0] * each.shape[1] for each in sets])
    return [piece.view(*each.shape[:2], -1) for piece, each in zip(pieces, sets, strict=True)]
