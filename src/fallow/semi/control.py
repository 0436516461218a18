"""What a learned weight must be compared with: the thesis' control, and those without which it means nothing."""

from __future__ import annotations

from dataclasses import replace

import torch

from fallow.base.errors import RequestError
from fallow.data import Data, Examples

CONTROLS: dict[str, dict[str, str]] = {  # settings of ConfidenceNetwork
    "zero after warm-up": {"source": "zero"},
    "constant signal": {"signal": "constant"},
    "shuffled signal": {"signal": "shuffled"},
    "untrained network": {"source": "untrained"},
    "oracle": {"source": "oracle"},
}


def with_validation(data: Data) -> Data:
    """The data with the validation labels among the training labels: what they are worth in plain training."""
    if not isinstance(data.train, Examples) or not isinstance(data.val, Examples):
        raise RequestError("the validation labels can join the training labels only where both are in memory")
    both = Examples(torch.cat([data.train.x, data.val.x]), torch.cat([data.train.y, data.val.y]))
    return replace(data, train=both, val=None)
