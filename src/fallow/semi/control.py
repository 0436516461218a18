"""What a learned weight must be compared with: the thesis' control, and those without which it means nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fallow.base.errors import RequestError
from fallow.data import Data, Examples
from fallow.methods.semi.confidence import ConfidenceNetwork
from fallow.methods.semi.fixmatch import FixMatch
from fallow.training.fit import fit

CONTROLS: dict[str, dict[str, str]] = {  # settings of ConfidenceNetwork
    "zero after warm-up": {"source": "zero"},
    "constant signal": {"signal": "constant"},
    "shuffled signal": {"signal": "shuffled"},
    "untrained network": {"source": "untrained"},
    "oracle": {"source": "oracle"},
}


def frozen(model: Any, data: Data, confidence: ConfidenceNetwork, *, out: Path | str, **options: Any) -> dict[str, Any]:
    """The evaluation control of the thesis: does the frozen network help a fresh classifier? (section 5.3)

    Trains jointly, keeps the confidence network of the lowest validation loss, throws the classifier away, and trains
    two fresh ones on the same labels: with the frozen network and without. The results by name, runs below ``out``.
    """
    out = Path(out)
    given = confidence.settings()
    plain = {key: given[key] for key in FixMatch().settings()}
    joint = fit(model, data, confidence, out=out / "joint", **options)
    kept = ConfidenceNetwork(**given | {"source": "frozen", "file": str(out / "joint" / "confidence.safetensors")})
    return {
        "joint": joint,
        "frozen": fit(model, data, kept, out=out / "frozen", **options),
        "fixmatch": fit(model, data, FixMatch(**plain), out=out / "fixmatch", **options),
    }


def with_validation(data: Data) -> Data:
    """The data with the validation labels among the training labels: what they are worth in plain training."""
    if not isinstance(data.train, Examples) or not isinstance(data.val, Examples):
        raise RequestError("the validation labels can join the training labels only where both are in memory")
    both = Examples(torch.cat([data.train.x, data.val.x]), torch.cat([data.train.y, data.val.y]))
    return replace(data, train=both, val=None)
