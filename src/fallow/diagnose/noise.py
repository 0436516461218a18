"""Robustness to noise on the weights (LW, section 4 and figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fallow.base.errors import RequestError
from fallow.base.seeds import mix
from fallow.diagnose.checks import chosen, refuse_mismatch, refuse_nonfinite
from fallow.diagnose.intervals import plain
from fallow.diagnose.perturbed import look, restored
from fallow.evaluate.losses import Loss, criterion

SIGMAS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


@dataclass(frozen=True)
class Noise:
    """How loss and accuracy change; a row for each σ, a column for each draw."""

    sigmas: tuple[float, ...]
    losses: np.ndarray  # changes of the loss
    accuracies: np.ndarray | None  # changes of the accuracy, where targets are classes
    loss: float  # without noise
    accuracy: float | None
    draws: int
    seed: int

    def describe(self) -> dict[str, Any]:
        """As plain values: for every σ the mean change and the standard deviation over draws."""
        summary: dict[str, Any] = {"sigmas": list(self.sigmas), "draws": self.draws, "seed": self.seed}
        for name, now, changes in (("loss", self.loss, self.losses), ("accuracy", self.accuracy, self.accuracies)):
            if changes is not None:
                with np.errstate(invalid="ignore"):  # large noise may overflow
                    spread = changes.std(1, ddof=1) if self.draws > 1 else np.zeros(len(changes))
                summary[name] = {"without": now, "mean": plain(changes.mean(1)), "std": plain(spread)}
                summary[name]["changes"] = plain(changes)
        return summary


@torch.no_grad()
def noise(
    model: nn.Module,
    loss: str | Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    sigmas: Sequence[float] = SIGMAS,
    draws: int = 10,
    parameters: Sequence[str] | None = None,
    seed: int = 0,
) -> Noise:
    """The change of training loss and accuracy when N(0, σ²) is added to every trainable weight.

    The same ``draws`` directions serve for every σ, so that a curve over σ is smooth and two models of one shape are
    compared under the same noise. The model runs in eval mode; its weights are restored to the bit.

    >>> net = nn.Linear(3, 2)
    >>> found = noise(net, "cross_entropy", torch.randn(20, 3), torch.arange(20) % 2, sigmas=(0.0, 1.0), draws=3)
    >>> found.losses.shape, found.losses[0].tolist()
    ((2, 3), [0.0, 0.0, 0.0])
    """
    if not sigmas or draws < 1 or any(not 0 <= sigma < float("inf") for sigma in sigmas):
        raise RequestError(f"sigmas={tuple(sigmas)} with {draws} draws is no noise: give σ ≥ 0 and at least one draw")
    refuse_mismatch(inputs, targets)
    refuse_nonfinite(model)
    function = criterion(loss)
    weights: list[Tensor] = list(chosen(model, parameters).values())
    before = look(model, function, inputs, targets)
    losses, accuracies = np.zeros((2, len(sigmas), draws))
    with restored(weights) as start:
        for draw in range(draws):
            generator = torch.Generator().manual_seed(mix(seed, draw))
            direction = [torch.randn(w.shape, generator=generator, dtype=w.dtype).to(w.device) for w in weights]
            for row, sigma in enumerate(sigmas):
                torch._foreach_copy_(weights, start)
                torch._foreach_add_(weights, direction, alpha=sigma)
                now = look(model, function, inputs, targets)
                losses[row, draw] = now.loss - before.loss
                accuracies[row, draw] = (now.accuracy or 0.0) - (before.accuracy or 0.0)
    return Noise(
        sigmas=tuple(float(sigma) for sigma in sigmas),
        losses=losses,
        accuracies=None if before.accuracy is None else accuracies,
        loss=before.loss,
        accuracy=before.accuracy,
        draws=draws,
        seed=seed,
    )
