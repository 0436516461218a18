"""MAML for policies by clipped surrogates (Schulman et al. 2017); ProMP (Rothfuss et al. 2019) adapts otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fallow.base.errors import RequestError
from fallow.base.numbers import is_whole
from fallow.control.surrogate import surrogate
from fallow.core.context import Context
from fallow.core.method import Gradients
from fallow.methods.fewshot.acting import ActingMAML, Met


@dataclass(eq=False)
class MAMLPPO(ActingMAML):
    """θ takes ``epochs`` steps of Adam on the clipped surrogate of the adapted policies, re-adapting before each::

    minimise  mean over tasks of −E[min(ρA, clamp(ρ, 1 − ε, 1 + ε)·A)],   ρ = π_θ'(a|s) / π_old(a|s)

    The surrogate is that of Schulman et al. 2017, equation 7; ProMP (Rothfuss et al. 2019) also has another
    inner loss.
    """

    name = "maml-ppo"
    summary = "MAML for policies: several steps of Adam on a clipped surrogate of the adapted policies"

    epochs: int = 5
    clip: float = 0.2  # ε

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.epochs, 1):
            raise RequestError(f"epochs is {self.epochs}: it must be a whole number from 1")
        if not 0 < self.clip < 1:
            raise RequestError(f"clip is {self.clip}: it must be between 0 and 1")

    def surrogate(self, output: Tensor, met: Met) -> Tensor:
        return surrogate(output, met.query[1], met.old, self.clip)

    def update(self, ctx: Context, gradients: Gradients) -> Tensor:
        for _ in range(self.epochs):
            gradients()
            self.average(ctx)
            ctx.step()
        self.note(kl=self.measure(ctx)[1])
        return self.outcome(ctx)
