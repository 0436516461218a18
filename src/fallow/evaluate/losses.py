"""Losses by name, for those who measure a model without a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional

from fallow.base.errors import unknown

Loss = Callable[[Any, Any], Tensor]


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """The mean squared error; targets of one number may lack the axis that the output has."""
    return functional.mse_loss(output, y.view_as(output) if y.numel() == output.numel() else y)


LOSSES: dict[str, Loss] = {"cross_entropy": functional.cross_entropy, "squared_error": squared_error}


def criterion(loss: str | Loss) -> Loss:
    """A loss by its name, or the function itself: (output, targets) → the mean over the examples.

    >>> criterion("crossentropy")
    Traceback (most recent call last):
    fallow.base.errors.RequestError: unknown loss 'crossentropy': did you mean 'cross_entropy'? ...
    """
    if not isinstance(loss, str):
        return loss
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    return LOSSES[loss]
