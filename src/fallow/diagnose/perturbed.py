"""The loss near a model's weights: move them, look, and put them back to the bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fallow.evaluate.features import CHUNK, place
from fallow.evaluate.losses import Loss
from fallow.evaluate.score import Score, score
from fallow.weights.layers import untouched


@contextmanager
def restored(weights: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Copies of the weights; whatever happens inside, the weights are these again in the end."""
    weights = list(weights)
    before = [weight.detach().clone() for weight in weights]
    try:
        yield before
    finally:
        with torch.no_grad():
            torch._foreach_copy_(weights, before)


def look(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Score:
    """Mean loss and accuracy in eval mode, with the weights as they are now."""
    batches = (
        (place(model, x), place(model, y)) for x, y in zip(inputs.split(CHUNK), targets.split(CHUNK), strict=True)
    )
    with untouched(model):
        return score(model, batches, loss)
